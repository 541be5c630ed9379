// `longhand-cli plan`: that what it says will be taken is what is taken.

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <QTest>

#include "tests/engine/cli/cli_harness.h"

using nlohmann::json;
using namespace longhand::tests;  // NOLINT(google-build-using-namespace)
namespace fs = std::filesystem;
namespace tests = longhand::tests;

class CliPlanTest : public QObject {
  Q_OBJECT

 private slots:
  void planSaysTheSizesOfTheDesign();
  void planReadsFoldersConfigFilesAndShapes();
  void planAgreesWithWhatIsLoaded_data();
  void planAgreesWithWhatIsLoaded();
  void planSaysWhetherAContextFitsAndHow();
  void aCardIsPlannedForWithWhatTheBackendAndTheDriverTake();
  void aDeviceThatIsNotThereIsAnError();
  void explicitOptionsOverrideThePreset();
};

void CliPlanTest::planSaysTheSizesOfTheDesign() {
  const auto plan = [](const QStringList& options) {
    return run(QStringList{"plan", "--json", "--model", "llama-2-7b", "--weights", "nf4",
                           "--backend", "cpu", "--context", "100000"} +
               options)
        .parsed();
  };
  const auto cacheGiB = [](const json& result) {
    return gibOf(result["bytes"], {"kv_codes", "kv_scales", "kv_exact"});
  };
  // DESIGN section 4, which counts pages only: sink and residual add up to 0.2 GiB.
  const std::vector<std::pair<QStringList, double>> sizes = {
      {{"--preset", "exact"}, 48.8},
      {{"--preset", "throughput"}, 25.9},
      {{"--preset", "quality"}, 13.7},
      {{"--preset", "balanced"}, 10.7},
      {{"--key-bits", "2", "--value-bits", "2"}, 7.6}};
  for (const auto& [options, gib] : sizes) {
    const json result = plan(options);
    QVERIFY(std::abs(cacheGiB(result) - gib) < 0.25);
    QVERIFY(std::abs(gibOf(result["bytes"], {"weights"}) - 3.49) < 0.02);
  }
  QVERIFY(plan({"--memory", "24GiB"})["largest_context"].get<std::int64_t>() > 100000);
  QVERIFY(plan({"--memory", "8GiB"})["largest_context"].get<std::int64_t>() < 100000);
  QCOMPARE(plan({"--memory", "3GiB"})["largest_context"].get<std::int64_t>(), 0);
  QCOMPARE(plan({"--memory", "24 GB"})["memory_bytes"].get<std::int64_t>(), 24'000'000'000);

  const Outcome table =
      run({"plan", "--model", "llama-2-7b", "--memory", "8GiB", "--backend", "cpu"});
  QVERIFY(table.out.find("3.49 GiB") != std::string::npos);
  QVERIFY(table.out.find(" GB") == std::string::npos);
}

void CliPlanTest::planReadsFoldersConfigFilesAndShapes() {
  const json folder = run({"plan", "--json", "--model", demoFolder()}).parsed();
  QVERIFY(hasKeys(folder, {"model", "weights", "context", "trained_length", "bytes"}));
  QVERIFY(hasKeys(folder["bytes"],
                  {"weights", "kv_codes", "kv_scales", "kv_exact", "workspace", "total"}));
  QCOMPARE(folder["context"].get<int>(), 2048);
  const json file = run({"plan", "--json", "--model", demoFolder() + "/config.json"}).parsed();
  QVERIFY(file["bytes"] == folder["bytes"]);
  QVERIFY(run({"plan", "--json"}).parsed()["bytes"] == folder["bytes"]);
}

void CliPlanTest::planAgreesWithWhatIsLoaded_data() {
  QTest::addColumn<QString>("model");
  QTest::addColumn<QString>("weights");
  for (const char* model :
       {"stories260K", "stories260K-f16", "stories260K-bf16", "stories260K-sharded",
        "stories260K-bnb-nf4", "stories260K-bnb-nf4-nodq", "random-hd64", "longhand-demo"}) {
    QTest::addRow("%s", model) << model << "auto";
  }
  QTest::addRow("F32 as NF4") << "stories260K"
                              << "nf4";
  QTest::addRow("NF4 as F16") << "stories260K-bnb-nf4"
                              << "f16";
}

void CliPlanTest::planAgreesWithWhatIsLoaded() {
  QFETCH(QString, model);
  QFETCH(QString, weights);
  const fs::path folder = tests::modelPath(model.toStdString());
  LONGHAND_SKIP_WITHOUT(folder);
  const QStringList options = {"--json", "--model", pathOf(folder), "--weights", weights};
  const json real =
      run(QStringList{"generate", "--tokens", "1", "--max-tokens", "1"} + options).parsed();
  const json plan = run(QStringList{"plan"} + options).parsed();
  const auto expected = real["bytes"]["weights"].get<double>();
  const auto planned = plan["bytes"]["weights"].get<double>();
  qInfo("plan %.0f, loaded %.0f", planned, expected);
  QVERIFY(std::abs(planned - expected) <= 0.03 * expected);
}

void CliPlanTest::planSaysWhetherAContextFitsAndHow() {
  const QStringList plan = {"plan",     "--json", "--shape",   "llama-2-7b",
                            "--memory", "24GiB",  "--backend", "cpu"};
  const json whole = run(plan + QStringList{"--context", "4096"}).parsed();
  QVERIFY(whole["fits"].get<bool>());
  QCOMPARE(whole["chunk"].get<int>(), 4096);
  QVERIFY(whole["largest_context_chunk"].get<int>() >= 256);
  const auto largest = whole["largest_context"].get<std::int64_t>();

  // The largest context fits, with the chunk that is named; its table says the same.
  const json full = run(plan + QStringList{"--context", QString::number(largest)}).parsed();
  QVERIFY(full["fits"].get<bool>());
  QVERIFY(full["chunk"] == whole["largest_context_chunk"]);
  QVERIFY(full["bytes"]["total"].get<std::uint64_t>() <= (std::uint64_t{24} << 30U));

  const json beyond = run(plan + QStringList{"--context", "900000"}).parsed();
  QVERIFY(!beyond["fits"].get<bool>());
  QVERIFY(beyond["bytes"]["total"].get<std::uint64_t>() > (std::uint64_t{24} << 30U));
  const Outcome text =
      run({"plan", "--shape", "llama-2-7b", "--memory", "24GiB", "--backend", "cpu"});
  QVERIFY(text.out.find("4,096 tokens fit, read in one go") != std::string::npos);
}

void CliPlanTest::aCardIsPlannedForWithWhatTheBackendAndTheDriverTake() {
  const QStringList plan = {"plan", "--json", "--shape", "llama-2-7b", "--context", "100000"};
  const QStringList card = {"--card", "h200", "--chunk", "2048"};
  const json plain = run(plan + QStringList{"--backend", "cpu", "--chunk", "2048"}).parsed();
  const json result = run(plan + card).parsed();
  const json& device = result["device"];
  const auto bytes = [](const json& value) { return value.get<std::uint64_t>(); };
  QCOMPARE(bytes(result["bytes"]["workspace"]),
           bytes(plain["bytes"]["workspace"]) + bytes(device["own_bytes"]));
  QCOMPARE(bytes(result["used_bytes"]),
           bytes(result["bytes"]["total"]) + bytes(device["other_bytes"]));
  QVERIFY(result["fits"].get<bool>());
  QVERIFY(!plain.contains("device"));

  // --memory then is all of the card's.
  const json small = run(plan + card + QStringList{"--memory", "16GiB"}).parsed();
  QVERIFY(!small["fits"].get<bool>());
  QCOMPARE(bytes(small["memory_bytes"]), (std::uint64_t{16} << 30U) - bytes(device["other_bytes"]));

  // The chunk that is named for the largest context is the one of that context's own plan.
  const QStringList chosen = {"plan", "--json", "--shape", "llama-2-7b", "--card", "rtx-3060"};
  const json most = run(chosen).parsed();
  const QStringList full = {"--context",
                            QString::number(most["largest_context"].get<std::int64_t>())};
  QVERIFY(run(chosen + full).parsed()["chunk"] == most["largest_context_chunk"]);
  // A given chunk is taken where it fits, though the engine would have chosen less.
  const int given = most["largest_context_chunk"].get<int>() + 1;
  const json stretched =
      run(chosen + full + QStringList{"--chunk", QString::number(given)}).parsed();
  QVERIFY(stretched["fits"].get<bool>());
  QCOMPARE(stretched["chunk"].get<int>(), given);
  const Outcome said = run({"plan", "--shape", "llama-2-7b", "--card", "rtx-3060", full[0], full[1],
                            "--chunk", QString::number(given)});
  QVERIFY(said.out.find("fit, read in chunks of " + std::to_string(given)) != std::string::npos);

  const Outcome text = run({"plan", "--shape", "llama-2-7b", "--card", "rtx-4090"});
  QVERIFY(text.out.find("All of it: ") != std::string::npos);
  QCOMPARE(run({"plan", "--card", "rtx-1"}).exitCode, 2);
}

void CliPlanTest::aDeviceThatIsNotThereIsAnError() {
  const Outcome outcome = run({"plan", "--backend", "cuda", "--cuda-plugin", "/nowhere/plugin.so"});
  QCOMPARE(outcome.exitCode, 1);
  QVERIFY(outcome.isErrorLine("name a card with --card"));
}

void CliPlanTest::explicitOptionsOverrideThePreset() {
  const json result = run({"plan", "--json", "--preset", "memory-limit", "--key-bits", "8",
                           "--group-size", "32", "--residual-length", "7", "--sink-length", "0"})
                          .parsed();
  QCOMPARE(result["key_bits"].get<int>(), 8);
  QCOMPARE(result["value_bits"].get<int>(), 2);
  QCOMPARE(result["group_size"].get<int>(), 32);
  QCOMPARE(result["residual_length"].get<int>(), 7);
  QCOMPARE(result["sink_length"].get<int>(), 0);
}

QTEST_GUILESS_MAIN(CliPlanTest)
#include "cli_plan_test.moc"
