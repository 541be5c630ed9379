// The real longhand-cli as its users run it: output, JSON, exit statuses and error lines.

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
#include <QProcess>
#include <QTemporaryDir>
#include <QTest>

#include "tests/support/golden_file.h"
#include "tests/support/paths.h"

#include <nlohmann/json.hpp>

using nlohmann::json;
namespace fs = std::filesystem;
namespace tests = longhand::tests;

namespace {

struct Outcome {
  int exitCode = -1;
  std::string out;
  std::string err;

  json parsed() const { return json::parse(out); }
  /// One line on stderr that begins with the program's name and holds `words`.
  bool isErrorLine(const std::string& words) const {
    const bool isOneLine = std::count(err.begin(), err.end(), '\n') == 1 && err.ends_with('\n');
    return out.empty() && isOneLine && err.starts_with("longhand-cli: ") &&
           err.find(words) != std::string::npos;
  }
};

Outcome run(const QStringList& arguments, const QByteArray& input = {}) {
  QProcess process;
  process.start(LONGHAND_CLI, arguments);
  process.write(input);
  process.closeWriteChannel();
  if (!process.waitForFinished(60000)) process.kill();
  const bool hasExited = process.exitStatus() == QProcess::NormalExit;
  Outcome outcome{hasExited ? process.exitCode() : -1,
                  process.readAllStandardOutput().toStdString(),
                  process.readAllStandardError().toStdString()};
  if (outcome.exitCode != 0) qDebug() << arguments << outcome.err.c_str();
  return outcome;
}

QString pathOf(const fs::path& path) { return QString::fromStdString(path.string()); }

QString demoFolder() { return pathOf(tests::resourcePath("longhand-demo")); }

QString idList(const std::vector<std::int32_t>& ids) {
  QStringList texts;
  for (const std::int32_t id : ids) texts << QString::number(id);
  return texts.join(',');
}

std::vector<json> demoPrompts() {
  std::ifstream file(tests::dataPath("longhand-demo/longhand-demo.json"));
  return json::parse(file)["prompts"];
}

json demoPrompt(const std::string& name) {
  for (const json& prompt : demoPrompts()) {
    if (prompt["name"] == name) return prompt;
  }
  return {};
}

/// A writable copy of the bundled model, to be damaged.
fs::path copyDemo(const QTemporaryDir& folder) {
  const fs::path copy = fs::path(folder.path().toStdString()) / "model";
  fs::create_directories(copy);
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.model", "model.safetensors"}) {
    fs::copy_file(tests::resourcePath("longhand-demo") / name, copy / name);
    fs::permissions(copy / name, fs::perms::owner_all);
  }
  return copy;
}

bool hasKeys(const json& object, std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [&object](const char* key) { return object.contains(key); });
}

double gibOf(const json& bytes, std::initializer_list<const char*> keys) {
  double sum = 0.0;
  for (const char* key : keys) sum += bytes[key].get<double>();
  return sum / (1024.0 * 1024.0 * 1024.0);
}

}  // namespace

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
  void planSaysTheSizesOfTheDesign();
  void planReadsFoldersConfigFilesAndShapes();
  void planAgreesWithWhatIsLoaded_data();
  void planAgreesWithWhatIsLoaded();
  void planSaysWhetherAContextFitsAndHow();
  void explicitOptionsOverrideThePreset();
  void benchMeasuresEveryDepthWithEveryCache();
  void chatAnswersQuestionsAboutADocument();
  void chatObeysItsCommands();
  void chatInJsonPrintsNothingElse();
  void chatBeginsAgain();
  void chatGoesOnAfterAnError();
  void documentsMustBeTextInUtf8();
  void pipesAreNoModelFiles();
  void tokenizerOfAnotherModelIsRefused();
  void closedStandardInputIsSaid();
  void chatIsKeptForTheNextCommand();
  void sessionsThatDoNotFitAreRefused();
  void sessionsReplaceNothingButSessions();
  void interruptStopsGenerationCleanly();
  void interruptStopsTheCountingOfADocument();
  void interruptIsRememberedByAPipedChat();
  void interruptStaysIgnored();
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
    QVERIFY(std::abs(gibOf(result["bytes"], {"weights"}) - 3.60) < 0.02);
  }
  QVERIFY(plan({"--memory", "24GiB"})["largest_context"].get<std::int64_t>() > 100000);
  QVERIFY(plan({"--memory", "8GiB"})["largest_context"].get<std::int64_t>() < 100000);
  QCOMPARE(plan({"--memory", "3GiB"})["largest_context"].get<std::int64_t>(), 0);
  QCOMPARE(plan({"--memory", "24 GB"})["memory_bytes"].get<std::int64_t>(), 24'000'000'000);

  const Outcome table = run({"plan", "--model", "llama-2-7b", "--memory", "8GiB"});
  QVERIFY(table.out.find("3.60 GiB") != std::string::npos);
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

void CliTest::benchMeasuresEveryDepthWithEveryCache() {
  const json result =
      run({"bench", "--json", "--model", demoFolder(), "--depth", "200,0", "--cache", "16/16,4/2",
           "--prefill-tokens", "16", "--decode-tokens", "4", "--residual-length", "32"})
          .parsed();
  QCOMPARE(result["rows"].size(), std::size_t{4});
  const std::vector<std::array<int, 3>> expected = {
      {0, 16, 16}, {200, 16, 16}, {0, 4, 2}, {200, 4, 2}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const json& row = result["rows"][i];
    QCOMPARE((std::array<int, 3>{row["depth"], row["key_bits"], row["value_bits"]}), expected[i]);
    QVERIFY(row["prefill_tokens_per_second"].get<double>() > 0.0);
    QVERIFY(row["decode_tokens_per_second"].get<double>() > 0.0);
    QVERIFY(row["bytes"]["weights"].get<std::uint64_t>() > 4'000'000);
  }
  QVERIFY(result["rows"][3]["bytes"]["kv_codes"].get<std::uint64_t>() > 0);
}

void CliTest::chatAnswersQuestionsAboutADocument() {
  std::ifstream file(tests::resourcePath("longhand-demo/sample-questions.json"));
  const json questions = json::parse(file)["questions"];
  QByteArray input;
  for (std::size_t i = 0; i < 3; ++i) {
    input += QByteArray::fromStdString(questions[i]["question"].get<std::string>()) + "\n";
  }
  const QString document = demoFolder() + "/sample-document.txt";
  const Outcome outcome = run({"chat", "--json", "--document", document}, input);
  QCOMPARE(outcome.exitCode, 0);
  QVERIFY(outcome.err.empty());
  const QStringList lines = QString::fromStdString(outcome.out).split('\n', Qt::SkipEmptyParts);
  QCOMPARE(lines.size(), 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const json answer = json::parse(lines[static_cast<int>(i)].toStdString());
    QVERIFY(answer["question"] == questions[i]["question"]);
    QCOMPARE(QString::fromStdString(answer["text"]).trimmed().toStdString(),
             questions[i]["answer"].get<std::string>());
    // The document is read once; a follow-up computes only what is new.
    const auto nNew = answer["prompt_tokens"].get<int>() - answer["reused_tokens"].get<int>();
    QVERIFY(i == 0 || nNew < 60);
  }
}

void CliTest::chatObeysItsCommands() {
  const Outcome outcome =
      run({"chat"},
          "/stats\n/help\nHello!\n/stats\n/memory\n/preset exact\n/preset fast\n"
          "/dance\nHello!\n/quit\nHello!\n");
  QVERIFY(outcome.out.starts_with("No answer yet.\n"));
  QVERIFY(outcome.out.find("/preset NAME") != std::string::npos);
  QVERIFY(outcome.out.find("tokens/s") != std::string::npos);
  QVERIFY(outcome.out.find("KV codes") != std::string::npos);
  QVERIFY(outcome.out.find("Exact: ") != std::string::npos);
  QVERIFY(outcome.err.find("\"fast\"") != std::string::npos);
  QVERIFY(outcome.err.find("/dance") != std::string::npos);
  const std::string answer = "Hello! Open a document and ask me about it.";
  std::size_t nAnswers = 0;
  for (std::size_t at = outcome.out.find(answer); at != std::string::npos;
       at = outcome.out.find(answer, at + 1)) {
    ++nAnswers;
  }
  QCOMPARE(nAnswers, std::size_t{2});  // after /quit: nothing
}

void CliTest::chatInJsonPrintsNothingElse() {
  const Outcome outcome =
      run({"chat", "--json", "--key-bits", "8"},
          "/stats\n/help\nHello!\n/stats\n/memory\n/preset memory-limit\n/new\n");
  QCOMPARE(outcome.exitCode, 0);
  const QStringList lines = QString::fromStdString(outcome.out).split('\n', Qt::SkipEmptyParts);
  QCOMPARE(lines.size(), 7);
  std::vector<json> values;
  for (const QString& line : lines) values.push_back(json::parse(line.toStdString()));
  QVERIFY(values[0]["stats"].is_null());
  QVERIFY(values[1]["help"].get<std::string>().find("/preset NAME") != std::string::npos);
  QVERIFY(values[2]["text"] == values[3]["text"]);
  // What is used, not what the preset says.
  QCOMPARE(values[5]["key_bits"].get<int>(), 8);
  QCOMPARE(values[5]["value_bits"].get<int>(), 2);
  QVERIFY(values[6]["new"].get<bool>());
}

void CliTest::chatBeginsAgain() {
  const Outcome outcome = run({"chat", "--json"}, "Hello!\nHello!\n/new\nHello!\n");
  const QStringList lines = QString::fromStdString(outcome.out).split('\n', Qt::SkipEmptyParts);
  QCOMPARE(lines.size(), 4);
  const json first = json::parse(lines[0].toStdString());
  const json second = json::parse(lines[1].toStdString());
  const json again = json::parse(lines[3].toStdString());
  QVERIFY(second["prompt_tokens"].get<int>() > first["prompt_tokens"].get<int>());
  QVERIFY(again["prompt_tokens"] == first["prompt_tokens"]);
  QVERIFY(again["text"] == first["text"]);
}

void CliTest::documentsMustBeTextInUtf8() {
  const QTemporaryDir folder;
  const QString file = folder.filePath("letter.txt");
  const auto refusal = [&](const QByteArray& contents) {
    QFile writer(file);
    if (writer.open(QIODevice::WriteOnly)) writer.write(contents);
    writer.close();
    return run({"chat", "--document", file}, "What?\n");
  };
  QVERIFY(refusal("Dear\nfriend, caf\xE9 is\n").isErrorLine("line 2 is not in UTF-8"));
  QVERIFY(refusal(" \n\t\n").isErrorLine("letter.txt: the document is blank"));
  QVERIFY(refusal("").isErrorLine("letter.txt: the document is blank"));
}

void CliTest::pipesAreNoModelFiles() {
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.model"}) {
    QTemporaryDir folder;
    const fs::path model = copyDemo(folder);
    fs::remove(model / name);
    QCOMPARE(::mkfifo((model / name).c_str(), 0600), 0);
    QVERIFY(run({"generate", "--prompt", "a", "--model", pathOf(model)}).isErrorLine(name));
  }
}

void CliTest::tokenizerOfAnotherModelIsRefused() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K"));
  QTemporaryDir folder;
  const fs::path model = copyDemo(folder);
  fs::copy_file(tests::modelPath("stories260K") / "tokenizer.model", model / "tokenizer.model",
                fs::copy_options::overwrite_existing);
  QVERIFY(run({"generate", "--prompt", "a", "--model", pathOf(model)})
              .isErrorLine("tokenizer.model has 512 tokens and the model 1536"));
}

void CliTest::closedStandardInputIsSaid() {
  const auto runClosed = [](const QString& arguments) {
    QProcess process;
    process.start("sh", {"-c", QString("exec \"%1\" %2 <&-").arg(LONGHAND_CLI, arguments)});
    process.waitForFinished(60000);
    return Outcome{process.exitCode(), process.readAllStandardOutput().toStdString(),
                   process.readAllStandardError().toStdString()};
  };
  QVERIFY(runClosed("tokenize --file -").isErrorLine("The standard input: reading failed"));
  const Outcome chat = runClosed("chat");
  QCOMPARE(chat.exitCode, 1);
  QVERIFY(chat.isErrorLine("standard input"));
}

void CliTest::chatGoesOnAfterAnError() {
  const QByteArray longQuestion = QByteArray("word ").repeated(300);
  const Outcome outcome = run({"chat", "--context", "100"}, longQuestion + "\nHello!\n");
  QCOMPARE(outcome.exitCode, 1);
  QVERIFY(outcome.err.starts_with("longhand-cli: "));
  QCOMPARE(QString::fromStdString(outcome.out).trimmed().toStdString(),
           std::string("Hello! Open a document and ask me about it."));
}

void CliTest::chatIsKeptForTheNextCommand() {
  const QTemporaryDir folder;
  const QString file = folder.filePath("chat.lhkv");
  const QString document = demoFolder() + "/sample-document.txt";
  const QStringList chat = {"chat", "--json", "--document", document};
  const Outcome first =
      run(chat + QStringList{"--save-session", file}, "Where does the captain live?\n");
  QCOMPARE(first.exitCode, 0);
  const Outcome second = run(chat + QStringList{"--restore-session", file, "--save-session", file},
                             "Who is the baker?\n");
  QCOMPARE(second.exitCode, 0);
  QVERIFY(second.parsed()["prompt_tokens"].get<int>() > 500);
  QVERIFY(second.parsed()["prompt_tokens"].get<int>() -
              second.parsed()["reused_tokens"].get<int>() <
          60);

  // generate goes on with the very tokens.
  const QStringList generate = {"generate", "--json", "--greedy", "--max-tokens", "4"};
  const QString ids = idList(demoPrompts().front()["ids"].get<std::vector<std::int32_t>>());
  const Outcome own = run(generate + QStringList{"--tokens", ids, "--save-session", file});
  const Outcome again = run(generate + QStringList{"--tokens", ids, "--restore-session", file});
  QCOMPARE(again.exitCode, 0);
  QVERIFY(again.parsed()["tokens"] == own.parsed()["tokens"]);
  QCOMPARE(again.parsed()["reused_tokens"].get<int>(),
           again.parsed()["prompt_tokens"].get<int>() - 1);
}

void CliTest::sessionsThatDoNotFitAreRefused() {
  const QTemporaryDir folder;
  const QString file = folder.filePath("chat.lhkv");
  const QStringList generate = {"generate", "--json", "--tokens", "1,5,6", "--max-tokens", "2"};
  QCOMPARE(run(generate + QStringList{"--save-session", file}).exitCode, 0);

  const QStringList restore = generate + QStringList{"--restore-session", file};
  QVERIFY(run(restore + QStringList{"--preset", "exact"}).isErrorLine("other cache settings"));
  QVERIFY(run(restore + QStringList{"--rope-theta", "10000"}).isErrorLine("RoPE"));
  const QStringList missing = {"--restore-session", "/no/chat.lhkv"};
  QVERIFY(run(generate + missing).isErrorLine("/no/chat.lhkv"));
  // Seen before anything is generated.
  const QStringList unwritable = {"--save-session", "/no/chat.lhkv"};
  QVERIFY(run(generate + unwritable).isErrorLine("/no/chat.lhkv cannot be written"));
  QVERIFY(run({"chat", "--json", "--save-session", "/no/chat.lhkv"}, "Hello!\n")
              .isErrorLine("/no/chat.lhkv cannot be written"));
}

void CliTest::sessionsReplaceNothingButSessions() {
  const QTemporaryDir folder;
  const QString file = folder.filePath("notes.txt");
  const QStringList generate = {"generate",     "--json", "--tokens",       "1,5,6",
                                "--max-tokens", "2",      "--save-session", file};
  const QByteArray notes = "my only copy\n";
  {
    QFile writer(file);
    QVERIFY(writer.open(QIODevice::WriteOnly));
    writer.write(notes);
  }
  QVERIFY(run(generate).isErrorLine("notes.txt exists and is no session"));
  QFile reader(file);
  QVERIFY(reader.open(QIODevice::ReadOnly));
  QCOMPARE(reader.readAll(), notes);
  QCOMPARE(QDir(folder.path()).entryList(QDir::Files | QDir::Hidden), QStringList{"notes.txt"});
  QVERIFY(reader.remove());
  QCOMPARE(run(generate).exitCode, 0);
  QCOMPARE(run(generate).exitCode, 0);  // a session is replaced
}

void CliTest::interruptStopsGenerationCleanly() {
  QProcess process;
  // Hot enough that the end of the text (1 token of 1536) is a long time off.
  process.start(LONGHAND_CLI, {"generate", "--prompt", "", "--temperature", "100", "--top-k", "0",
                               "--top-p", "1", "--context", "100000", "--max-tokens", "0"});
  QVERIFY(process.waitForReadyRead(30000));
  ::kill(static_cast<pid_t>(process.processId()), SIGINT);
  QElapsedTimer timer;
  timer.start();
  QVERIFY(process.waitForFinished(30000));
  QVERIFY(timer.elapsed() < 2000);
  QCOMPARE(process.exitStatus(), QProcess::NormalExit);
  QCOMPARE(process.exitCode(), 130);
  QVERIFY(process.readAllStandardOutput().endsWith('\n'));
  QCOMPARE(process.readAllStandardError(), QByteArray());
}

void CliTest::interruptStopsTheCountingOfADocument() {
  const QTemporaryDir folder;
  const QString file = folder.filePath("long.txt");
  {
    QFile writer(file);
    QVERIFY(writer.open(QIODevice::WriteOnly));
    const QByteArray line = "The captain lives in the old house by the harbour.\n";
    writer.write(line.repeated(600'000));  // 30 MB: half a minute
  }
  for (const QStringList& arguments :
       {QStringList{"chat", "--document", file}, QStringList{"generate", "--prompt-file", file},
        QStringList{"perplexity", "--file", file}}) {
    QProcess process;
    process.start(LONGHAND_CLI, arguments);
    QVERIFY(process.waitForStarted());
    QTest::qWait(2000);
    ::kill(static_cast<pid_t>(process.processId()), SIGINT);
    QElapsedTimer timer;
    timer.start();
    QVERIFY(process.waitForFinished(30000));
    QVERIFY(timer.elapsed() < 5000);
    // On a slow machine it may still be reading, where the signal ends it at once.
    QVERIFY(process.exitStatus() == QProcess::CrashExit || process.exitCode() == 130);
  }
}

void CliTest::interruptIsRememberedByAPipedChat() {
  QProcess process;
  process.start(LONGHAND_CLI, {"chat", "--temperature", "100", "--top-k", "0", "--top-p", "1",
                               "--context", "100000"});
  process.write("Hello!\n");
  QVERIFY(process.waitForReadyRead(30000));
  ::kill(static_cast<pid_t>(process.processId()), SIGINT);
  process.write("/stats\n");
  process.closeWriteChannel();
  QVERIFY(process.waitForFinished(30000));
  QCOMPARE(process.exitStatus(), QProcess::NormalExit);
  QCOMPARE(process.exitCode(), 130);
  QVERIFY(process.readAllStandardOutput().endsWith("ended by: cancelled\n"));
}

void CliTest::interruptStaysIgnored() {
  QProcess process;
  const QString command =
      "trap '' INT; exec \"%1\" generate --prompt '' --temperature 100 "
      "--top-k 0 --top-p 1 --max-tokens 40 --context 1000 --seed 1";
  process.start("sh", {"-c", command.arg(LONGHAND_CLI)});
  QVERIFY(process.waitForReadyRead(30000));
  ::kill(static_cast<pid_t>(process.processId()), SIGINT);
  QVERIFY(process.waitForFinished(60000));
  QCOMPARE(process.exitStatus(), QProcess::NormalExit);
  QCOMPARE(process.exitCode(), 0);
}

QTEST_GUILESS_MAIN(CliTest)
#include "cli_test.moc"
