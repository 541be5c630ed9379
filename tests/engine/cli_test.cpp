// The commands of the real longhand-cli: output, JSON, exit statuses and error lines.

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>

#include <QDir>
#include <QElapsedTimer>
#include <QFile>
#include <QTest>

#include "tests/engine/cli_harness.h"
#include "tests/support/golden_file.h"

using nlohmann::json;
using namespace longhand::tests;  // NOLINT(google-build-using-namespace)
namespace fs = std::filesystem;
namespace tests = longhand::tests;

class CliTest : public QObject {
  Q_OBJECT

 private slots:
  void saysWhatItCanDoAndItsVersion();
  void usageErrorsExitWithTwoAndOneLine_data();
  void usageErrorsExitWithTwoAndOneLine();
  void failuresExitWithOneAndOneLine_data();
  void failuresExitWithOneAndOneLine();
  void damagedModelsAreRefusedWithTheFile();
  void weightsThatAreNoNumbersAreNotMeasured();
  void generatesTheTokensOfTheReference();
  void generateWrapsAPromptInTheChatFormat();
  void generateStreamsTheSameTextWithoutJson();
  void generateEndsAtAStopTextAndAtTheLimit();
  void theSameSeedGivesTheSameTokens();
  void generateStartsFromBosAloneForAnEmptyPrompt();
  void tokenizeShowsIdsAndPieces();
  void logitsEqualTheReference();
  void ropeOptionsReplaceTheModelsOwn();
  void perplexityOfTheStoryEqualsTheReference();
  void qualityComparesThePresets();
  void qualityComparesOwnSettings();
  void planSaysTheSizesOfTheDesign();
  void planReadsFoldersConfigFilesAndShapes();
  void planAgreesWithWhatIsLoaded_data();
  void planAgreesWithWhatIsLoaded();
  void planSaysWhetherAContextFitsAndHow();
  void explicitOptionsOverrideThePreset();
};

void CliTest::saysWhatItCanDoAndItsVersion() {
  const Outcome help = run({"--help"});
  QCOMPARE(help.exitCode, 0);
  for (const char* command :
       {"chat", "generate", "tokenize", "logits", "perplexity", "quality", "plan", "bench"}) {
    QVERIFY(help.out.find(command) != std::string::npos);
    const Outcome own = run({command, "--help"});
    QCOMPARE(own.exitCode, 0);
    QVERIFY(own.out.find("--json") != std::string::npos);
    QVERIFY(own.err.empty());
  }
  QVERIFY(run({"logits", "--help"}).out.find("1e-4") != std::string::npos);
  const Outcome version = run({"--version"});
  QCOMPARE(version.exitCode, 0);
  QVERIFY(version.out.starts_with("longhand-cli 0."));
}

void CliTest::usageErrorsExitWithTwoAndOneLine_data() {
  QTest::addColumn<QStringList>("arguments");
  QTest::addColumn<QString>("words");
  QTest::addRow("no command") << QStringList{} << "--help";
  QTest::addRow("unknown command") << QStringList{"sing"} << "sing";
  QTest::addRow("unknown option") << QStringList{"generate", "--loud"} << "--loud";
  QTest::addRow("no prompt") << QStringList{"generate"} << "--prompt";
  QTest::addRow("two prompts") << QStringList{"generate", "--prompt", "a", "--tokens", "1"}
                               << "--prompt";
  QTest::addRow("chat of ids") << QStringList{"generate", "--chat", "--tokens", "1"} << "--chat";
  QTest::addRow("bits") << QStringList{"generate", "--prompt", "a", "--key-bits", "5"}
                        << "--key-bits";
  QTest::addRow("preset") << QStringList{"generate", "--prompt", "a", "--preset", "fast"}
                          << "--preset";
  QTest::addRow("weights") << QStringList{"generate", "--prompt", "a", "--weights", "int3"}
                           << "--weights";
  QTest::addRow("residual") << QStringList{"plan", "--residual-length", "5000"} << "4096";
  QTest::addRow("number") << QStringList{"plan", "--context", "many"} << "--context";
  QTest::addRow("no text") << QStringList{"tokenize"} << "--text";
  QTest::addRow("no file") << QStringList{"perplexity"} << "--file";
  QTest::addRow("negative seed") << QStringList{"generate", "--prompt", "a", "--seed", "-1"}
                                 << "--seed";
  QTest::addRow("scaling without factor")
      << QStringList{"generate", "--prompt", "a", "--rope-scaling", "linear"} << "--rope-factor";
  QTest::addRow("factor without scaling")
      << QStringList{"generate", "--prompt", "a", "--rope-factor", "2"} << "--rope-scaling";
  QTest::addRow("huge context") << QStringList{"generate", "--prompt", "a", "--context",
                                               "1000000000000"}
                                << "--context: '1000000000000' is no whole number from 0";
  QTest::addRow("huge plan") << QStringList{"plan", "--context", "1073741825"} << "1073741824";
  QTest::addRow("context beyond 64 bits")
      << QStringList{"plan", "--context", "99999999999999999999"} << "99999999999999999999";
  QTest::addRow("negative context") << QStringList{"plan", "--context", "-1"} << "from 0 to";
  QTest::addRow("factor NaN") << QStringList{"generate", "--prompt",      "a",  "--rope-scaling",
                                             "linear",   "--rope-factor", "nan"}
                              << "--rope-factor: 'nan' is no number from 1 to 1024";
  QTest::addRow("theta NaN") << QStringList{"generate", "--prompt", "a", "--rope-theta", "nan"}
                             << "--rope-theta";
  QTest::addRow("huge depth") << QStringList{"bench", "--depth", "9000000000000000000"}
                              << "--depth";
  QTest::addRow("empty depth") << QStringList{"bench", "--depth", "1,,2"}
                               << "--depth: '1,,2' has an empty part";
  QTest::addRow("empty depth of a self-test")
      << QStringList{"selftest", "--depth", "0,"} << "has an empty part";
  QTest::addRow("no depth") << QStringList{"bench", "--depth", ""} << "--depth";
  QTest::addRow("cache and nothing")
      << QStringList{"bench", "--cache", "4/2,"} << "--cache: '4/2,' has an empty part";
  QTest::addRow("nothing and a cache of quality")
      << QStringList{"quality", "--file", "-", "--cache", ",4/2"} << "has an empty part";
  QTest::addRow("no preset between commas")
      << QStringList{"quality", "--file", "-", "--presets", "exact,,balanced"}
      << "has an empty part";
  QTest::addRow("preset of quality")
      << QStringList{"quality", "--file", "-", "--presets", "exact,fast"} << "fast";
  QTest::addRow("shape and model in a plan")
      << QStringList{"plan", "--shape", "llama-2-7b", "--model", demoFolder()} << "--shape";
  QTest::addRow("shape and model")
      << QStringList{"bench", "--shape", "llama-2-7b", "--model", demoFolder()} << "--shape";
}

void CliTest::usageErrorsExitWithTwoAndOneLine() {
  QFETCH(QStringList, arguments);
  QFETCH(QString, words);
  const Outcome outcome = run(arguments);
  QCOMPARE(outcome.exitCode, 2);
  QVERIFY(outcome.isErrorLine(words.toStdString()));
}

void CliTest::failuresExitWithOneAndOneLine_data() {
  QTest::addColumn<QStringList>("arguments");
  QTest::addColumn<QString>("words");
  QTest::addRow("no such model") << QStringList{"generate", "--prompt", "a", "--model", "/no/where"}
                                 << "/no/where";
  QTest::addRow("no such tokenizer")
      << QStringList{"tokenize", "--text", "a", "--model", "/no"} << "tokenizer.model";
  QTest::addRow("no such prompt file")
      << QStringList{"generate", "--prompt-file", "/no/prompt.txt"} << "/no/prompt.txt";
  QTest::addRow("no such document")
      << QStringList{"chat", "--document", "/no/doc.txt"} << "/no/doc.txt";
  QTest::addRow("no such text") << QStringList{"perplexity", "--file", "/no/text.txt"}
                                << "/no/text.txt";
  QTest::addRow("window beyond the context")
      << QStringList{"quality", "--window", "9000", "--file", demoFolder() + "/config.json"}
      << "9000";
  QTest::addRow("folder as text") << QStringList{"tokenize", "--file", "/"} << "cannot be opened";
  QTest::addRow("no text") << QStringList{"tokenize", "--file", demoFolder() + "/model.safetensors"}
                           << "no plain text";
  QTest::addRow("token too high") << QStringList{"generate", "--tokens", "1,1536"}
                                  << "Token 1536 is not in the model's vocabulary of 1536";
  QTest::addRow("token below zero") << QStringList{"logits", "--tokens", "-1"} << "Token -1";
  QTest::addRow("no ids") << QStringList{"logits", "--tokens", "1,,2"} << "1,,2";
  QTest::addRow("no ids at all") << QStringList{"logits", "--tokens", ""} << "token ids";
  QTest::addRow("empty message") << QStringList{"generate", "--chat", "--prompt", " \n"} << "empty";
  QTest::addRow("prompt too long")
      << QStringList{"generate", "--tokens", "1,2,3,4,5", "--context", "4"} << "4";
  QTest::addRow("document too long") << QStringList{"chat", "--context", "500", "--document",
                                                    demoFolder() + "/sample-document.txt"}
                                     << "1,2";
  QTest::addRow("unreadable text")
      << QStringList{"tokenize", "--file", "/proc/self/mem"} << "/proc/self/mem: reading failed";
  QTest::addRow("no plan") << QStringList{"plan", "--model", "/no/where"} << "/no/where";
  QTest::addRow("no size") << QStringList{"plan", "--memory", "lots"} << "24GiB";
  QTest::addRow("no cache setting") << QStringList{"bench", "--cache", "4"} << "4/2";
}

void CliTest::failuresExitWithOneAndOneLine() {
  QFETCH(QStringList, arguments);
  QFETCH(QString, words);
  const Outcome outcome = run(arguments);
  QCOMPARE(outcome.exitCode, 1);
  QVERIFY(outcome.isErrorLine(words.toStdString()));
}

void CliTest::damagedModelsAreRefusedWithTheFile() {
  const auto damage = [](const char* name, const std::function<void(const fs::path&)>& change) {
    QTemporaryDir folder;
    const fs::path model = copyDemo(folder);
    change(model / name);
    const Outcome outcome = run({"generate", "--json", "--prompt", "a", "--model", pathOf(model)});
    return outcome.exitCode == 1 && outcome.isErrorLine(name);
  };
  const auto truncate = [](const fs::path& file) {
    fs::resize_file(file, fs::file_size(file) / 2);
  };
  const auto overwrite = [](const fs::path& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream << "garbage!garbage!";
  };
  const auto remove = [](const fs::path& file) { fs::remove(file); };
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.model"}) {
    QVERIFY2(damage(name, truncate), name);
    QVERIFY2(damage(name, overwrite), name);
  }
  QVERIFY(damage("config.json", remove));
}

void CliTest::weightsThatAreNoNumbersAreNotMeasured() {
  QTemporaryDir folder;
  const fs::path model = copyDemo(folder);
  {
    // 0xFFFF is NaN in F16. The last 384 bytes are a norm, which is checked while it is loaded;
    // before them ends a weight that is used as it lies.
    std::fstream stream(model / "model.safetensors",
                        std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-386, std::ios::end);
    stream << "\xFF\xFF";
  }
  const QString file = folder.filePath("text.txt");
  QFile text(file);
  QVERIFY(text.open(QIODevice::WriteOnly));
  text.write("The captain lives in the old house by the harbour.\n");
  text.close();
  const QStringList options = {"--json", "--model", pathOf(model)};
  QVERIFY(run(QStringList{"quality", "--file", file} + options).isErrorLine("NaN"));
  QVERIFY(run(QStringList{"perplexity", "--file", file} + options).isErrorLine("NaN"));
  QVERIFY(run(QStringList{"logits", "--prompt", "Hello"} + options).isErrorLine("NaN"));
}

void CliTest::generatesTheTokensOfTheReference() {
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

void CliTest::generateWrapsAPromptInTheChatFormat() {
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

void CliTest::generateStreamsTheSameTextWithoutJson() {
  const json result = run({"generate", "--json", "--chat", "--prompt", "Hello!"}).parsed();
  const Outcome plain = run({"generate", "--chat", "--prompt-file", "-"}, "\xEF\xBB\xBFHello!\n");
  QCOMPARE(plain.exitCode, 0);
  QCOMPARE(plain.out, result["text"].get<std::string>() + "\n");
  QVERIFY(plain.err.empty());  // no progress where stderr is no terminal
}

void CliTest::generateEndsAtAStopTextAndAtTheLimit() {
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

void CliTest::theSameSeedGivesTheSameTokens() {
  const auto tokens = [](const char* seed) {
    return run({"generate", "--json", "--prompt", "The", "--temperature", "1.5", "--top-k", "0",
                "--max-tokens", "20", "--seed", seed})
        .parsed()["tokens"];
  };
  QVERIFY(tokens("7") == tokens("7"));
  QVERIFY(tokens("7") != tokens("8"));
}

void CliTest::generateStartsFromBosAloneForAnEmptyPrompt() {
  const json result = run({"generate", "--json", "--prompt", "", "--max-tokens", "2"}).parsed();
  QCOMPARE(result["prompt_tokens"].get<int>(), 1);
}

void CliTest::tokenizeShowsIdsAndPieces() {
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

void CliTest::logitsEqualTheReference() {
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

void CliTest::ropeOptionsReplaceTheModelsOwn() {
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

void CliTest::perplexityOfTheStoryEqualsTheReference() {
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

void CliTest::qualityComparesThePresets() {
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

void CliTest::qualityComparesOwnSettings() {
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

void CliTest::planSaysTheSizesOfTheDesign() {
  const auto plan = [](const QStringList& options) {
    return run(QStringList{"plan", "--json", "--model", "llama-2-7b", "--weights", "nf4",
                           "--context", "100000"} +
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

  const Outcome table = run({"plan", "--model", "llama-2-7b", "--memory", "8GiB"});
  QVERIFY(table.out.find("3.49 GiB") != std::string::npos);
  QVERIFY(table.out.find(" GB") == std::string::npos);
}

void CliTest::planReadsFoldersConfigFilesAndShapes() {
  const json folder = run({"plan", "--json", "--model", demoFolder()}).parsed();
  QVERIFY(hasKeys(folder, {"model", "weights", "context", "trained_length", "bytes"}));
  QVERIFY(hasKeys(folder["bytes"],
                  {"weights", "kv_codes", "kv_scales", "kv_exact", "workspace", "total"}));
  QCOMPARE(folder["context"].get<int>(), 2048);
  const json file = run({"plan", "--json", "--model", demoFolder() + "/config.json"}).parsed();
  QVERIFY(file["bytes"] == folder["bytes"]);
  QVERIFY(run({"plan", "--json"}).parsed()["bytes"] == folder["bytes"]);
}

void CliTest::planAgreesWithWhatIsLoaded_data() {
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

void CliTest::planAgreesWithWhatIsLoaded() {
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

void CliTest::planSaysWhetherAContextFitsAndHow() {
  const QStringList plan = {"plan", "--json", "--shape", "llama-2-7b", "--memory", "24GiB"};
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
  const Outcome text = run({"plan", "--shape", "llama-2-7b", "--memory", "24GiB"});
  QVERIFY(text.out.find("4,096 tokens fit, read in one go") != std::string::npos);
}

void CliTest::explicitOptionsOverrideThePreset() {
  const json result = run({"plan", "--json", "--preset", "memory-limit", "--key-bits", "8",
                           "--group-size", "32", "--residual-length", "7", "--sink-length", "0"})
                          .parsed();
  QCOMPARE(result["key_bits"].get<int>(), 8);
  QCOMPARE(result["value_bits"].get<int>(), 2);
  QCOMPARE(result["group_size"].get<int>(), 32);
  QCOMPARE(result["residual_length"].get<int>(), 7);
  QCOMPARE(result["sink_length"].get<int>(), 0);
}

QTEST_GUILESS_MAIN(CliTest)
#include "cli_test.moc"
