// What all commands of the real longhand-cli share: help, exit statuses and error lines.

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <QFile>
#include <QTest>

#include "tests/engine/cli/cli_harness.h"

using nlohmann::json;
using namespace longhand::tests;  // NOLINT(google-build-using-namespace)
namespace fs = std::filesystem;

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

QTEST_GUILESS_MAIN(CliTest)
#include "cli_test.moc"
