// `longhand-cli perplexity` and `quality`: their numbers, tables and settings.

#include <cmath>
#include <string>

#include <QTest>

#include "tests/engine/cli/cli_harness.h"

using nlohmann::json;
using namespace longhand::tests;  // NOLINT(google-build-using-namespace)
namespace tests = longhand::tests;

class CliQualityTest : public QObject {
  Q_OBJECT

 private slots:
  void perplexityOfTheStoryEqualsTheReference();
  void qualityComparesThePresets();
  void qualityComparesOwnSettings();
};

void CliQualityTest::perplexityOfTheStoryEqualsTheReference() {
  const json own = run({"perplexity", "--json", "--window", "100", "--file",
                        pathOf(tests::dataPath("texts/story.txt"))})
                       .parsed();
  QVERIFY(own["perplexity"].get<double>() > 1.0);
  QVERIFY(own["tokens"].get<int>() > 500);

  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K/config.json"));
  const QStringList common = {"perplexity", "--json",
                              "--model",    pathOf(tests::modelPath("stories260K")),
                              "--weights",  "f32",
                              "--window",   "425",
                              "--file",     pathOf(tests::dataPath("texts/story.txt"))};
  const json prefill = run(common).parsed();
  QCOMPARE(prefill["tokens"].get<int>(), 851);
  QVERIFY(std::abs(prefill["perplexity"].get<double>() / 4.037796610766532 - 1.0) < 1e-5);
  const json quantized =
      run(common + QStringList{"--mode", "stepwise", "--key-bits", "2", "--value-bits", "2",
                               "--group-size", "32", "--residual-length", "32"})
          .parsed();
  // 4.217 in the reference; flips near ties may move it by 0.5 %.
  QVERIFY(std::abs(quantized["perplexity"].get<double>() / 4.217 - 1.0) < 0.01);
}

void CliQualityTest::qualityComparesThePresets() {
  const QString file = pathOf(tests::resourcePath("longhand-demo/sample-document.txt"));
  const json report = run({"quality", "--json", "--sample-tokens", "100", "--file", file}).parsed();
  QVERIFY(hasKeys(report, {"text_tokens", "scored_tokens", "windows", "context", "rows"}));
  QCOMPARE(report["scored_tokens"].get<int>(), 100);
  QCOMPARE(report["windows"].size(), std::size_t{1});
  QCOMPARE(report["rows"].size(), std::size_t{5});
  for (const json& row : report["rows"]) {
    QVERIFY(hasKeys(row, {"preset", "key_bits", "value_bits", "perplexity", "mean_kl", "p99_kl",
                          "equal_top_share", "packed_tokens", "cache_bytes"}));
  }
  const json& exact = report["rows"][0];
  const json& limit = report["rows"][4];
  QCOMPARE(exact["preset"].get<std::string>(), std::string("exact"));
  QCOMPARE(exact["mean_kl"].get<double>(), 0.0);
  QCOMPARE(limit["preset"].get<std::string>(), std::string("memory-limit"));
  QVERIFY(limit["mean_kl"].get<double>() > report["rows"][1]["mean_kl"].get<double>());
  QVERIFY(limit["cache_bytes"].get<double>() < 0.4 * exact["cache_bytes"].get<double>());

  const Outcome table = run({"quality", "--sample-tokens", "0", "--window", "150", "--presets",
                             "balanced", "--file", file});
  QVERIFY(table.out.find("windows of up to 150, fed one by one") != std::string::npos);
  QVERIFY(table.out.find("\nexact ") != std::string::npos);
  QVERIFY(table.out.find("\nbalanced ") != std::string::npos);
  QVERIFY(table.out.find("\nquality ") == std::string::npos);
}

void CliQualityTest::qualityComparesOwnSettings() {
  const QString file = pathOf(tests::resourcePath("longhand-demo/sample-document.txt"));
  const QStringList common = {"quality",   "--json",   "--sample-tokens", "100",
                              "--presets", "balanced", "--file",          file};
  const json report =
      run(common + QStringList{"--cache", "8/4,2/2/32/64", "--cache", "2/2", "--sink-length", "8"})
          .parsed();
  QCOMPARE(report["rows"].size(), std::size_t{5});
  const auto row = [&](std::size_t index) { return report["rows"][index]; };
  QCOMPARE(row(1)["preset"].get<std::string>(), std::string("balanced"));
  QCOMPARE(row(2)["preset"].get<std::string>(), std::string("8/4"));
  QCOMPARE(row(2)["key_bits"].get<int>(), 8);
  QCOMPARE(row(2)["value_bits"].get<int>(), 4);
  QCOMPARE(row(3)["preset"].get<std::string>(), std::string("2/2/32/64"));
  QCOMPARE(row(4)["key_bits"].get<int>(), 2);
  // A shorter residual leaves more tokens packed; of the same bits, smaller groups lose less.
  QVERIFY(row(3)["packed_tokens"].get<int>() > row(4)["packed_tokens"].get<int>());
  QVERIFY(row(2)["mean_kl"].get<double>() < row(3)["mean_kl"].get<double>());

  const json custom = run(common + QStringList{"--key-bits", "2"}).parsed();
  QCOMPARE(custom["rows"].size(), std::size_t{3});
  QCOMPARE(custom["rows"][2]["preset"].get<std::string>(), std::string("custom"));
  QCOMPARE(custom["rows"][2]["key_bits"].get<int>(), 2);
  QCOMPARE(custom["rows"][2]["value_bits"].get<int>(), 4);
  for (const QString& wrong :
       QStringList{"4", "4/", "4/4/32/1/1", "4/x", "5/4", "4/4/33", "-4/4"}) {
    QVERIFY2(run(common + QStringList{"--cache=" + wrong}).exitCode != 0, qPrintable(wrong));
  }
}

QTEST_GUILESS_MAIN(CliQualityTest)
#include "cli_quality_test.moc"
