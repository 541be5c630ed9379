// `longhand-cli bench`: what it measures and how it says so.

#include <array>
#include <chrono>
#include <set>

#include <QtTest>

#include "tests/engine/cli/cli_harness.h"

using namespace longhand::tests;  // NOLINT: a test file
using nlohmann::json;

namespace {

QStringList benchDemo(const QStringList& arguments) {
  const QStringList rounds =
      arguments.contains("--rounds") ? QStringList() : QStringList{"--rounds", "1"};
  return QStringList{"bench", "--json", "--model", demoFolder()} + rounds + arguments;
}

std::uint64_t bytesOf(const json& object, const char* key) {
  return object[key].get<std::uint64_t>();
}

}  // namespace

class CliBenchTest : public QObject {
  Q_OBJECT

 private slots:
  void everyDepthIsMeasuredWithEveryCache();
  void rowsSayWhatWasReadAndHowNearTheFloorItCame();
  void bytesOfATokenAreThoseOfThePlan();
  void presetsAreCachesToo();
  void depth100000CostsNoReading();
  void prefillOrDecodeCanBeLeftOut();
  void eachKernelIsMeasuredAlone();
  void noKernelIsMeasuredTwice();
  void tablesAreForPeople();
};

void CliBenchTest::everyDepthIsMeasuredWithEveryCache() {
  const json result = run(benchDemo({"--depth", "200,0", "--cache", "16/16,4/2", "--prefill-tokens",
                                     "16", "--decode-tokens", "4", "--residual-length", "32"}))
                          .parsed();
  QCOMPARE(result["rows"].size(), std::size_t{4});
  const std::vector<std::array<int, 3>> expected = {
      {0, 16, 16}, {0, 4, 2}, {200, 16, 16}, {200, 4, 2}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const json& row = result["rows"][i];
    QCOMPARE((std::array<int, 3>{row["depth"], row["key_bits"], row["value_bits"]}), expected[i]);
    QVERIFY(row["prefill_tokens_per_second"].get<double>() > 0.0);
    QVERIFY(row["decode_tokens_per_second"].get<double>() > 0.0);
    QVERIFY(bytesOf(row["bytes"], "weights") > 4'000'000);
  }
  QVERIFY(bytesOf(result["rows"][3]["bytes"], "kv_codes") > 0);
}

void CliBenchTest::rowsSayWhatWasReadAndHowNearTheFloorItCame() {
  const json result = run(benchDemo({"--depth", "512", "--cache", "4/4", "--prefill-tokens", "16",
                                     "--decode-tokens", "4", "--rounds", "3"}))
                          .parsed();
  QVERIFY(hasKeys(result, {"model", "weights", "backend", "machine", "prefill_tokens",
                           "decode_tokens", "rounds"}));
  QVERIFY(hasKeys(result["machine"], {"read_bytes_per_second", "float_multiply_adds_per_second",
                                      "bf16_multiply_adds_per_second",
                                      "int8_multiply_adds_per_second", "cache_bytes"}));
  const json& row = result["rows"][0];
  QVERIFY(hasKeys(row, {"resident_bytes", "prefill_rounds", "prefill_multiply_adds",
                        "prefill_multiply_adds_per_second", "prefill_percent_of_floor",
                        "first_token_seconds", "decode_rounds", "decode_bytes_per_second"}));
  for (const char* kind : {"prefill", "decode"}) {
    const json& rounds = row[std::string(kind) + "_rounds"];
    const auto median = rounds["median"].get<double>();
    QVERIFY(rounds["lowest"].get<double>() <= median);
    QVERIFY(rounds["highest"].get<double>() >= median);
    QCOMPARE(row[std::string(kind) + "_tokens_per_second"].get<double>(), median);
  }
  QVERIFY(row["prefill_percent_of_floor"].get<double>() > 0.0);
  const auto bandwidth = result["machine"]["read_bytes_per_second"].get<double>();
  QVERIFY(bandwidth > 1e7);
  const auto total = row["decode_bytes"]["total"].get<double>();
  QCOMPARE(row["decode_bytes_per_second"].get<double>(),
           total * row["decode_tokens_per_second"].get<double>());
  // What the processor's caches hold needs no memory: the bundled model on most machines.
  const json& percent = row["decode_percent_of_floor"];
  const bool isCached = total <= result["machine"]["cache_bytes"].get<double>();
  QCOMPARE(percent.is_null(), isCached);
  QVERIFY(isCached || percent.get<double>() > 0.0);
}

void CliBenchTest::bytesOfATokenAreThoseOfThePlan() {
  const QStringList cache = {"--residual-length", "64"};
  for (const char* bits : {"16", "8", "4", "2"}) {
    const QString depth = QString::number(4 + 64 + 64 * 40);  // sink, residual, whole pages
    const json row =
        run(benchDemo(QStringList{"--depth", depth, "--cache", QString("%1/%1").arg(bits),
                                  "--prefill-tokens", "0", "--decode-tokens", "1"} +
                      cache))
            .parsed()["rows"][0];
    const json plan = run(QStringList{"plan", "--json", "--model", demoFolder(), "--context", depth,
                                      "--key-bits", bits, "--value-bits", bits} +
                          cache)
                          .parsed();
    const json& planned = plan["bytes"];
    const json& read = row["decode_bytes"];
    QCOMPARE(bytesOf(read, "kv_codes"), bytesOf(planned, "kv_codes"));
    QCOMPARE(bytesOf(read, "kv_scales"), bytesOf(planned, "kv_scales"));
    // Room for another group of exact tokens is planned, and not read while it is empty.
    QVERIFY(bytesOf(read, "kv_exact") <= bytesOf(planned, "kv_exact"));
    QVERIFY(bytesOf(read, "weights") + bytesOf(read, "weight_scales") <=
            bytesOf(planned, "weights"));
    QCOMPARE(bytesOf(read, "total"), bytesOf(read, "weights") + bytesOf(read, "weight_scales") +
                                         bytesOf(read, "kv_codes") + bytesOf(read, "kv_scales") +
                                         bytesOf(read, "kv_exact"));
  }
}

void CliBenchTest::presetsAreCachesToo() {
  const json rows = run(benchDemo({"--depth", "300", "--cache", "memory-limit,quality,2/2",
                                   "--prefill-tokens", "0", "--decode-tokens", "2"}))
                        .parsed()["rows"];
  QCOMPARE(rows[0]["cache"].get<std::string>(), std::string("memory-limit"));
  QCOMPARE(rows[0]["residual_length"].get<int>(), 64);
  QCOMPARE(rows[1]["cache"].get<std::string>(), std::string("quality"));
  QCOMPARE(rows[1]["key_bits"].get<int>(), 4);
  QCOMPARE(rows[2]["cache"].get<std::string>(), std::string("2/2"));
}

/// Reading so many tokens would take minutes.
void CliBenchTest::depth100000CostsNoReading() {
  const auto start = std::chrono::steady_clock::now();
  const json row = run(benchDemo({"--depth", "100000", "--cache", "4/4", "--prefill-tokens", "0",
                                  "--decode-tokens", "2"}))
                       .parsed()["rows"][0];
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  QCOMPARE(row["depth"].get<int>(), 100000);
  QVERIFY(row["decode_tokens_per_second"].get<double>() > 0.0);
  qInfo("%.2f s", took.count());
  QVERIFY(took.count() < 30.0);  // a second or two, but for sanitizers and busy machines
}

void CliBenchTest::prefillOrDecodeCanBeLeftOut() {
  const json decode = run(benchDemo({"--prefill-tokens", "0", "--decode-tokens", "2"})).parsed();
  QVERIFY(!decode["rows"][0].contains("prefill_tokens_per_second"));
  QVERIFY(decode["rows"][0].contains("decode_tokens_per_second"));
  const json prefill = run(benchDemo({"--prefill-tokens", "9", "--decode-tokens", "0"})).parsed();
  QVERIFY(prefill["rows"][0].contains("prefill_tokens_per_second"));
  QVERIFY(!prefill["rows"][0].contains("decode_tokens_per_second"));
}

void CliBenchTest::eachKernelIsMeasuredAlone() {
  const json result = run(benchDemo({"--kernels", "--depth", "128", "--cache", "16/16,4/2",
                                     "--prefill-tokens", "16", "--weights", "nf4"}))
                          .parsed();
  std::vector<std::string> seen;
  for (const json& row : result["kernels"]) {
    QVERIFY(hasKeys(row, {"kernel", "format", "size", "tokens", "seconds", "bytes", "multiply_adds",
                          "bytes_per_second", "multiply_adds_per_second", "percent_of_floor"}));
    QVERIFY(row["seconds"]["median"].get<double>() > 0.0);
    const json& percent = row["percent_of_floor"];
    QVERIFY(percent.is_null() || percent.get<double>() > 0.0);
    QVERIFY(!percent.is_null() || row["multiply_adds"].get<double>() == 0.0);
    seen.push_back(row["kernel"].get<std::string>() + " " + row["format"].get<std::string>());
  }
  for (const char* kernel : {"matmul nf4", "matmul f16", "decode attention 16/16",
                             "decode attention 4/2", "prefill attention 4/2", "packing 4/2"}) {
    QVERIFY2(std::find(seen.begin(), seen.end(), kernel) != seen.end(), kernel);
  }
}

void CliBenchTest::noKernelIsMeasuredTwice() {
  const json result = run(benchDemo({"--kernels", "--prefill-tokens", "8"})).parsed();
  std::set<std::string> seen;
  for (const json& row : result["kernels"]) {
    const std::string what = row["kernel"].get<std::string>() + row["format"].get<std::string>() +
                             row["size"].get<std::string>() + row["tokens"].dump();
    QVERIFY2(seen.insert(what).second, what.c_str());
  }
}

void CliBenchTest::tablesAreForPeople() {
  const Outcome model = run({"bench", "--model", demoFolder(), "--rounds", "1", "--depth", "64",
                             "--prefill-tokens", "8", "--decode-tokens", "2"});
  QCOMPARE(model.exitCode, 0);
  for (const char* words : {"prefill tokens/s", "%floor", "KV scales", "The machine reads"}) {
    QVERIFY2(model.out.find(words) != std::string::npos, words);
  }
  const Outcome kernels = run({"bench", "--kernels", "--model", demoFolder(), "--rounds", "1",
                               "--depth", "64", "--prefill-tokens", "8"});
  QCOMPARE(kernels.exitCode, 0);
  QVERIFY(kernels.out.find("decode attention") != std::string::npos);
}

QTEST_GUILESS_MAIN(CliBenchTest)
#include "cli_bench_test.moc"
