// `longhand-cli selftest`: that right kernels pass, that a wrong one and a broken device are
// noticed, and what the report says.

#include "engine/cli/selftest/selftest.h"

#include <fstream>
#include <set>
#include <sstream>

#include <QtTest>

#include "engine/backend_factory.h"
#include "engine/base/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/cli/wrong_backend.h"
#ifdef LONGHAND_EMULATED_PLUGIN
#include "tests/cuda_on_cpu/emulated_plugin.h"
#endif

#include <nlohmann/json.hpp>

using namespace longhand;
using namespace longhand::engine;
using namespace longhand::engine::cli;
using nlohmann::json;

namespace {

struct Outcome {
  bool isGood = false;
  json report;
  std::string table;
  std::string progress;
};

json readJson(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return json::parse(file, nullptr, false);
}

SelftestOptions smallOptions() {
  SelftestOptions options;
  options.model = selftestShape("tiny");
  options.depths = {0, 300};
  options.prefillTokens = 16;
  options.secondsEach = 0.0;
  options.workingSetBytes = 100'000;
  options.extent = kernels::checks::CheckExtent::kQuick;
  return options;
}

std::set<std::string> wrongOperations(const json& report) {
  std::set<std::string> wrong;
  for (const json& row : report["kernels"]) {
    if (!row["is_right"].get<bool>()) wrong.insert(row["operation"]);
  }
  return wrong;
}

}  // namespace

class SelftestTest : public QObject {
  Q_OBJECT

 private slots:
  void init() { folder_ = std::make_unique<QTemporaryDir>(); }

  void theCpuPassesAndIsMeasured();
  void theEmulatedDevicePassesAndIsMeasured();
  void aWrongKernelIsReported_data();
  void aWrongKernelIsReported();
  void aBrokenDeviceIsReported();
  void whatDoesNotFitTheMemoryIsLeftOut();
  void aPromptMayBeLongerThanTheDeepestDepth();
  void whatDoesNotFitTheBudgetIsLeftOut();
  void aStoppedTestLeavesWhatItHas();
  void aFileThatCannotBeWrittenIsRefusedAtOnce();
  void theProgramSaysWhyThereIsNoDevice();
  void everyRowIsPredictedToo();
  void aPredictionNamesWhatACardHasNoRoomFor();
  void theProgramPredictsWithoutADevice();

 private:
  Outcome run(kernels::Backend& backend, SelftestOptions options,
              const std::stop_token& stop = {}) const {
    options.jsonFile = folder_->filePath("report.json").toStdString();
    std::ostringstream table;
    std::ostringstream progress;
    Outcome outcome;
    outcome.isGood = runSelftest(backend, options, table, progress, stop);
    outcome.report = readJson(options.jsonFile);
    outcome.table = table.str();
    outcome.progress = progress.str();
    return outcome;
  }
  Outcome predict(const char* card, SelftestOptions options) const {
    options.jsonFile = folder_->filePath("predicted.json").toStdString();
    std::ostringstream table;
    predictSelftest(cardByName(card), options, table);
    return {true, readJson(options.jsonFile), table.str(), {}};
  }
  static void checkWhole(const Outcome& outcome);

  std::unique_ptr<QTemporaryDir> folder_;
};

/// Of all parts with smallOptions().
void SelftestTest::checkWhole(const Outcome& outcome) {
  const json& report = outcome.report;
  QVERIFY2(outcome.isGood, outcome.table.c_str());
  QVERIFY(report["is_complete"].get<bool>());
  QVERIFY(!report.contains("left_out"));
  QVERIFY(report["kernels"].size() > 60);
  for (const json& row : report["kernels"]) {
    QVERIFY(row["cases"].get<int>() > 0);
    QVERIFY(row["error_of_tolerance"].get<double>() <= 1.0);
  }
  std::set<std::string> stages;
  for (const json& row : report["stages"]) {
    stages.insert(row["stage"]);
    QVERIFY(row["seconds"]["median"].get<double>() > 0.0);
    QVERIFY(row["bytes"].get<double>() > 0.0);
    QVERIFY(row["predicted_seconds"].get<double>() > 0.0);
  }
  const std::set<std::string> expected = {
      "copy",    "matmul",           "norm + matmul each", "norm + gate + up", "decode attention",
      "packing", "prefill attention"};
  QVERIFY(stages == expected);
  QCOMPARE(report["decode"].size(), std::size_t{10});  // (4 with NF4 + 1 with F16) x 2 depths
  for (const json& row : report["decode"]) {
    QVERIFY(row["tokens_per_second"].get<double>() > 0.0);
    QVERIFY(row["predicted_tokens_per_second"].get<double>() > 0.0);
  }
  QCOMPARE(report["prefill"].size(), std::size_t{5});  // 2 + 2, and the longest prompt
  QCOMPARE(report["memory"].size(), std::size_t{2});
  QVERIFY(report["targets"].size() >= 9);
  QVERIFY(outcome.table.find("All that was checked is right.") != std::string::npos);
}

void SelftestTest::theCpuPassesAndIsMeasured() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  checkWhole(run(*backend, smallOptions()));
}

void SelftestTest::theEmulatedDevicePassesAndIsMeasured() {
#ifdef LONGHAND_EMULATED_PLUGIN
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  BackendOptions options;
  options.backend = "cuda";
  options.cudaPlugin = plugin.file();
  auto chosen = createBackend(options);
  checkWhole(run(*chosen.backend, smallOptions()));
  chosen.backend.reset();
  QCOMPARE(plugin.counters().deviceBytes.load(), std::size_t{0});
#else
  QSKIP("CUDA's headers are missing");
#endif
}

void SelftestTest::aWrongKernelIsReported_data() {
  QTest::addColumn<QString>("operation");
  QTest::addColumn<QStringList>("reported");
  QTest::newRow("matmul") << "matmul"
                          << QStringList{"matmul", "norm + gate + up", "norm + matmul each"};
  QTest::newRow("rope") << "rope" << QStringList{"rope", "rope + store"};
  QTest::newRow("store") << "storeExact" << QStringList{"rope + store", "store exact"};
  QTest::newRow("pack") << "packPage" << QStringList{"pack page"};
  QTest::newRow("attend") << "attend" << QStringList{"decode attention"};
  QTest::newRow("argmax") << "argmax" << QStringList{"argmax"};
}

void SelftestTest::aWrongKernelIsReported() {
  QFETCH(QString, operation);
  QFETCH(QStringList, reported);
  const auto right = kernels::createCpuBackend({1, kernels::CpuPath::kPortable});
  tests::WrongBackend backend(*right, operation.toStdString());
  SelftestOptions options = smallOptions();
  options.parts = "a";
  const Outcome outcome = run(backend, options);
  QCOMPARE(outcome.isGood, reported.isEmpty());
  QCOMPARE(outcome.report["has_failed"].get<bool>(), !reported.isEmpty());
  std::set<std::string> expected;
  for (const QString& each : reported) expected.insert(each.toStdString());
  QVERIFY2(wrongOperations(outcome.report) == expected, outcome.table.c_str());
  QCOMPARE(outcome.table.find("WRONG") != std::string::npos, !reported.isEmpty());
}

void SelftestTest::aBrokenDeviceIsReported() {
#ifdef LONGHAND_EMULATED_PLUGIN
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  BackendOptions options;
  options.backend = "cuda";
  options.cudaPlugin = plugin.file();
  const auto chosen = createBackend(options);
  plugin.failures().launch = 20;
  const Outcome outcome = run(*chosen.backend, smallOptions());
  QVERIFY(!outcome.isGood);
  QVERIFY(outcome.report["has_failed"].get<bool>());
  QVERIFY(outcome.report["is_complete"].get<bool>());
  QVERIFY(outcome.table.find("FAILED") != std::string::npos);
  QVERIFY(outcome.progress.find("the device failed") != std::string::npos);
#else
  QSKIP("CUDA's headers are missing");
#endif
}

void SelftestTest::whatDoesNotFitTheMemoryIsLeftOut() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  SelftestOptions options = smallOptions();
  options.parts = "c";
  options.depths = {0, 1'000'000'000};
  options.prefillTokens = 0;
  const Outcome outcome = run(*backend, options);
  QVERIFY(outcome.isGood);
  QVERIFY(outcome.report["decode"].size() >= 5);
  QVERIFY(outcome.report["left_out"].size() >= 1);
  QVERIFY(outcome.table.find("Left out") != std::string::npos);
  QVERIFY(outcome.table.find("All that was checked is right.") == std::string::npos);
  QVERIFY2(outcome.table.find("What was checked is right, but 5 rows were left out") !=
               std::string::npos,
           outcome.table.c_str());
}

void SelftestTest::aPromptMayBeLongerThanTheDeepestDepth() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  SelftestOptions options = smallOptions();
  options.parts = "c";
  options.depths = {0};
  options.prefillTokens = 100;
  const Outcome outcome = run(*backend, options);
  QVERIFY(outcome.isGood);
  QVERIFY(outcome.report["is_complete"].get<bool>());
  QVERIFY(!outcome.report["prefill"].empty());
}

void SelftestTest::whatDoesNotFitTheBudgetIsLeftOut() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  SelftestOptions options = smallOptions();
  options.parts = "bc";
  options.budgetSeconds = 0.2;
  options.secondsEach = 0.05;
  const Outcome outcome = run(*backend, options);
  QVERIFY(outcome.isGood);
  QVERIFY(outcome.report["is_complete"].get<bool>());
  QVERIFY(outcome.report["left_out"].size() >= 10);
  QVERIFY(!outcome.report.contains("decode"));
  const std::string verdict = outcome.report["verdict"];
  QVERIFY2(verdict.find("nothing at all was measured of: decode, prefill; ") != std::string::npos,
           verdict.c_str());
  QVERIFY(outcome.table.find(verdict) != std::string::npos);
}

void SelftestTest::aStoppedTestLeavesWhatItHas() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  std::stop_source source;
  source.request_stop();
  QVERIFY_THROWS_EXCEPTION(Error, run(*backend, smallOptions(), source.get_token()));
  const json report = readJson(folder_->filePath("report.json").toStdString());
  QCOMPARE(report["kernels"].size(), std::size_t{1});
  QCOMPARE(report["is_complete"].get<bool>(), false);
}

void SelftestTest::aFileThatCannotBeWrittenIsRefusedAtOnce() {
  const auto backend = kernels::createCpuBackend({.threads = 1});
  SelftestOptions options = smallOptions();
  const std::filesystem::path folder = folder_->path().toStdString();
  std::filesystem::create_symlink("/dev/null", folder / "link");  // a device must stay one
  for (const std::filesystem::path& file : {folder / "none" / "report.json", folder / "link"}) {
    options.jsonFile = file;
    std::ostringstream table;
    try {
      runSelftest(*backend, options, table, table, {});
      QFAIL("was not refused");
    } catch (const Error& error) {
      QCOMPARE(error.code(), ErrorCode::kFileUnwritable);
    }
    QVERIFY(table.str().empty());
  }
  QVERIFY(std::filesystem::is_character_file(folder / "link"));
}

void SelftestTest::theProgramSaysWhyThereIsNoDevice() {
  QProcess process;
  process.start(LONGHAND_SELFTEST, {"--cuda-plugin", "/nonexistent/liblonghand_cuda.so"});
  QVERIFY(process.waitForFinished());
  QCOMPARE(process.exitStatus(), QProcess::NormalExit);
  QCOMPARE(process.exitCode(), 1);
  const QByteArray said = process.readAllStandardError();
  QCOMPARE(said.count('\n'), 1);
  QVERIFY2(said.contains("There is no CUDA plug-in"), said.constData());
  QVERIFY(process.readAllStandardOutput().isEmpty());
}

void SelftestTest::everyRowIsPredictedToo() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  SelftestOptions options = smallOptions();
  options.parts = "bc";
  const json measured = run(*backend, options).report;
  const json predicted = predict("h200", options).report;
  for (const auto& [section, keys] :
       {std::pair{"stages", std::vector{"stage", "format", "size", "tokens", "operations"}},
        {"decode", {"weights", "bits", "depth"}},
        {"prefill", {"weights", "bits", "depth", "tokens"}},
        {"memory", {"weights", "bits", "depth"}},
        {"targets", {"what", "wanted", "is_limit"}}}) {
    QCOMPARE(predicted[section].size(), measured[section].size());
    for (std::size_t i = 0; i < measured[section].size(); ++i) {
      for (const char* const key : keys) {
        QVERIFY2(predicted[section][i][key] == measured[section][i][key], key);
      }
      QVERIFY(!predicted[section][i].contains("seconds"));
    }
  }
  for (std::size_t i = 1; i < measured["stages"].size(); ++i) {  // behind the copy
    QVERIFY(predicted["stages"][i]["bytes"] == measured["stages"][i]["bytes"]);
    QVERIFY(predicted["stages"][i]["predicted_seconds"].get<double>() > 0.0);
  }
}

void SelftestTest::aPredictionNamesWhatACardHasNoRoomFor() {
  SelftestOptions options;
  options.model = selftestShape("llama-2-7b");
  const Outcome small = predict("rtx-3060", options);
  std::set<std::string> leftOut;
  for (const json& row : small.report["left_out"]) leftOut.insert(row["what"]);
  QVERIFY(leftOut.contains("decode with nf4 weights and 16 bits at depth 32768"));
  QVERIFY(leftOut.contains("decode with f16 weights and 16 bits at depth 0"));
  QVERIFY(!leftOut.contains("decode with nf4 weights and 2 bits at depth 32768"));
  QVERIFY(small.table.find("GiB are needed, and of 11.76 GiB") != std::string::npos);
  const Outcome large = predict("h200", options);
  QVERIFY(!large.report.contains("left_out"));
  QVERIFY(large.table.find("nothing was measured.") != std::string::npos);
  for (const json& row : large.report["targets"]) {
    QVERIFY(row["is_predicted"].get<bool>());
    QVERIFY(!row.contains("measured"));
  }
}

void SelftestTest::theProgramPredictsWithoutADevice() {
  QProcess process;
  process.start(LONGHAND_SELFTEST, {"--predict", "h200", "--parts", "c"});
  QVERIFY(process.waitForFinished());
  QCOMPARE(process.exitCode(), 0);
  const QByteArray said = process.readAllStandardOutput();
  QVERIFY2(said.contains("NVIDIA H200, by its data sheet"), said.constData());
  QVERIFY(said.contains("NF4 + int4 decode against F16 + F16, depth 100000"));
  process.start(LONGHAND_SELFTEST, {"--predict", "abacus"});
  QVERIFY(process.waitForFinished());
  QCOMPARE(process.exitCode(), 2);
}

QTEST_GUILESS_MAIN(SelftestTest)
#include "selftest_test.moc"
