// `longhand-cli generate`, `tokenize` and `logits`: their text, JSON and numbers.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <QTest>

#include "tests/engine/cli/cli_harness.h"
#include "tests/support/golden_file.h"

using nlohmann::json;
using namespace longhand::tests;  // NOLINT(google-build-using-namespace)
namespace tests = longhand::tests;

class CliGenerateTest : public QObject {
  Q_OBJECT

 private slots:
  void generatesTheTokensOfTheReference();
  void generateWrapsAPromptInTheChatFormat();
  void generateStreamsTheSameTextWithoutJson();
  void generateEndsAtAStopTextAndAtTheLimit();
  void theSameSeedGivesTheSameTokens();
  void generateStartsFromBosAloneForAnEmptyPrompt();
  void tokenizeShowsIdsAndPieces();
  void logitsEqualTheReference();
  void ropeOptionsReplaceTheModelsOwn();
};

void CliGenerateTest::generatesTheTokensOfTheReference() {
  for (const json& prompt : demoPrompts()) {
    const auto name = prompt["name"].get<std::string>();
    auto expected = prompt["greedy64"].get<std::vector<std::int32_t>>();
    QCOMPARE(expected.back(), 2);
    expected.pop_back();  // EOS
    const Outcome outcome = run({"generate", "--json", "--greedy", "--preset", "exact", "--tokens",
                                 idList(prompt["ids"].get<std::vector<std::int32_t>>())});
    QCOMPARE(outcome.exitCode, 0);
    QVERIFY(outcome.err.empty());
    const json result = outcome.parsed();
    QVERIFY2(result["tokens"].get<std::vector<std::int32_t>>() == expected, name.c_str());
    // The reference text is stripped of the blank before EOS.
    const std::string text = QString::fromStdString(result["text"]).trimmed().toStdString();
    QCOMPARE(text, prompt["text"].get<std::string>());
    QCOMPARE(result["stop_reason"].get<std::string>(), std::string("end_of_text"));
    QCOMPARE(result["prompt_tokens"].get<std::size_t>(), prompt["ids"].size());
    QVERIFY(result["prefill_tokens_per_second"].get<double>() > 0.0);
    QVERIFY(result["decode_tokens_per_second"].get<double>() > 0.0);
    QVERIFY(result["bytes"]["total"].get<std::uint64_t>() > 4'000'000);
  }
}

void CliGenerateTest::generateWrapsAPromptInTheChatFormat() {
  const json hello = demoPrompt("hello");
  const json result = run({"generate", "--json", "--chat", "--prompt", "Hello!"}).parsed();
  QCOMPARE(result["prompt_tokens"].get<std::size_t>(), hello["ids"].size());
  QCOMPARE(QString::fromStdString(result["text"]).trimmed().toStdString(),
           hello["text"].get<std::string>());
  const json system = demoPrompt("who_system");
  const json other = run({"generate", "--json", "--chat", "--system",
                          "You are a helpful assistant.", "--prompt", "Who are you?"})
                         .parsed();
  QCOMPARE(other["prompt_tokens"].get<std::size_t>(), system["ids"].size());
}

void CliGenerateTest::generateStreamsTheSameTextWithoutJson() {
  const json result = run({"generate", "--json", "--chat", "--prompt", "Hello!"}).parsed();
  const Outcome plain = run({"generate", "--chat", "--prompt-file", "-"}, "\xEF\xBB\xBFHello!\n");
  QCOMPARE(plain.exitCode, 0);
  QCOMPARE(plain.out, result["text"].get<std::string>() + "\n");
  QVERIFY(plain.err.empty());  // no progress where stderr is no terminal
}

void CliGenerateTest::generateEndsAtAStopTextAndAtTheLimit() {
  const json stopped = run({"generate", "--json", "--chat", "--prompt", "Hello!", "--stop",
                            "nothing", "--stop", "document"})
                           .parsed();
  QCOMPARE(stopped["stop_reason"].get<std::string>(), std::string("stop_text"));
  QCOMPARE(stopped["text"].get<std::string>(), std::string("Hello! Open a "));
  const json limited =
      run({"generate", "--json", "--chat", "--prompt", "Hello!", "--max-tokens", "3"}).parsed();
  QCOMPARE(limited["stop_reason"].get<std::string>(), std::string("token_limit"));
  QCOMPARE(limited["tokens"].size(), std::size_t{3});
  const json full =
      run({"generate", "--json", "--tokens", "1,276,279", "--context", "5", "--temperature", "5"})
          .parsed();
  QCOMPARE(full["stop_reason"].get<std::string>(), std::string("context_full"));
}

void CliGenerateTest::theSameSeedGivesTheSameTokens() {
  const auto tokens = [](const char* seed) {
    return run({"generate", "--json", "--prompt", "The", "--temperature", "1.5", "--top-k", "0",
                "--max-tokens", "20", "--seed", seed})
        .parsed()["tokens"];
  };
  QVERIFY(tokens("7") == tokens("7"));
  QVERIFY(tokens("7") != tokens("8"));
}

void CliGenerateTest::generateStartsFromBosAloneForAnEmptyPrompt() {
  const json result = run({"generate", "--json", "--prompt", "", "--max-tokens", "2"}).parsed();
  QCOMPARE(result["prompt_tokens"].get<int>(), 1);
}

void CliGenerateTest::tokenizeShowsIdsAndPieces() {
  const json result = run({"tokenize", "--json", "--text", "Hello! </s>"}).parsed();
  QCOMPARE(result["tokens"].size(), result["pieces"].size());
  for (const json& id : result["tokens"]) QVERIFY(id.get<int>() > 2);
  std::string joined;
  for (const json& piece : result["pieces"]) joined += piece.get<std::string>();
  QCOMPARE(joined, std::string("\u2581Hello!\u2581</s>"));
  QVERIFY(run({"tokenize", "--json", "--text", ""}).parsed()["tokens"].empty());
  const Outcome plain = run({"tokenize", "--file", "-"}, "Hi");
  QVERIFY(plain.out.find('\t') != std::string::npos);
  // A piece for bytes that are no UTF-8 must not break the JSON.
  QVERIFY(run({"tokenize", "--json", "--file", "-"}, "a\xFF\xF0").parsed()["tokens"].size() > 2);
}

void CliGenerateTest::logitsEqualTheReference() {
  const tests::GoldenFile golden(tests::dataPath("longhand-demo/longhand-demo.safetensors"));
  for (const char* name : {"hello", "fact"}) {
    const std::vector<std::int32_t> ids = demoPrompt(name)["ids"];
    const std::vector<double> expected = golden.at(std::string(name) + ".logits_last").doubles();
    const auto differenceOf = [&expected](const json& logits) {
      double difference = 0.0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        difference = std::max(difference, std::abs(logits[i].get<double>() - expected[i]));
      }
      return difference;
    };
    const json last =
        run({"logits", "--json", "--weights", "f32", "--tokens", idList(ids)}).parsed();
    QCOMPARE(last["logits"].size(), expected.size());
    QVERIFY(differenceOf(last["logits"]) < 1e-4);
    const json all =
        run({"logits", "--json", "--all", "--weights", "f32", "--tokens", idList(ids)}).parsed();
    QCOMPARE(all["logits"].size(), ids.size());
    QVERIFY(differenceOf(all["logits"].back()) < 1e-4);
    const json stepwise = run({"logits", "--json", "--stepwise", "--preset", "exact", "--weights",
                               "f32", "--tokens", idList(ids)})
                              .parsed();
    QVERIFY(differenceOf(stepwise["logits"]) < 1e-4);
  }
  const Outcome table = run({"logits", "--prompt", "Hello"});
  QCOMPARE(std::count(table.out.begin(), table.out.end(), '\n'), 10);
}

void CliGenerateTest::ropeOptionsReplaceTheModelsOwn() {
  const auto logits = [](const QStringList& options) {
    return run(QStringList{"logits", "--json", "--tokens", "1,276,279,1469,866"} + options)
        .parsed()["logits"];
  };
  const json own = logits({});
  QVERIFY(logits({"--rope-scaling", "none"}) == own);
  QVERIFY(logits({"--rope-theta", "100000"}) == own);
  QVERIFY(logits({"--rope-theta", "10000"}) != own);
  QVERIFY(logits({"--rope-scaling", "linear", "--rope-factor", "4"}) != own);
  QVERIFY(logits({"--rope-scaling", "yarn", "--rope-factor", "4"}) != own);
  // Within the trained length the dynamic formula changes nothing.
  QVERIFY(logits({"--rope-scaling", "dynamic", "--rope-factor", "4"}) == own);
}

QTEST_GUILESS_MAIN(CliGenerateTest)
#include "cli_generate_test.moc"
