// longhand-cli in use: chats, documents, sessions, and Ctrl+C.

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

#include "tests/engine/cli/cli_harness.h"
#include "tests/support/golden_file.h"

using nlohmann::json;
using namespace longhand::tests;  // NOLINT(google-build-using-namespace)
namespace fs = std::filesystem;
namespace tests = longhand::tests;

class CliChatTest : public QObject {
  Q_OBJECT

 private slots:
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

void CliChatTest::chatAnswersQuestionsAboutADocument() {
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

void CliChatTest::chatObeysItsCommands() {
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

void CliChatTest::chatInJsonPrintsNothingElse() {
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

void CliChatTest::chatBeginsAgain() {
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

void CliChatTest::documentsMustBeTextInUtf8() {
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

void CliChatTest::pipesAreNoModelFiles() {
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.model"}) {
    QTemporaryDir folder;
    const fs::path model = copyDemo(folder);
    fs::remove(model / name);
    QCOMPARE(::mkfifo((model / name).c_str(), 0600), 0);
    QVERIFY(run({"generate", "--prompt", "a", "--model", pathOf(model)}).isErrorLine(name));
  }
}

void CliChatTest::tokenizerOfAnotherModelIsRefused() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K"));
  QTemporaryDir folder;
  const fs::path model = copyDemo(folder);
  fs::copy_file(tests::modelPath("stories260K") / "tokenizer.model", model / "tokenizer.model",
                fs::copy_options::overwrite_existing);
  QVERIFY(run({"generate", "--prompt", "a", "--model", pathOf(model)})
              .isErrorLine("tokenizer.model has 512 tokens and the model 1536"));
}

void CliChatTest::closedStandardInputIsSaid() {
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

void CliChatTest::chatGoesOnAfterAnError() {
  const QByteArray longQuestion = QByteArray("word ").repeated(300);
  const Outcome outcome = run({"chat", "--context", "100"}, longQuestion + "\nHello!\n");
  QCOMPARE(outcome.exitCode, 1);
  QVERIFY(outcome.err.starts_with("longhand-cli: "));
  QCOMPARE(QString::fromStdString(outcome.out).trimmed().toStdString(),
           std::string("Hello! Open a document and ask me about it."));
}

void CliChatTest::chatIsKeptForTheNextCommand() {
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
  const Outcome bare = run({"chat", "--restore-session", file}, "Who is the baker?\n");
  QCOMPARE(bare.exitCode, 0);
  QVERIFY(bare.err.find("name it with --document") != std::string::npos);

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

void CliChatTest::sessionsThatDoNotFitAreRefused() {
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

void CliChatTest::sessionsReplaceNothingButSessions() {
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

void CliChatTest::interruptStopsGenerationCleanly() {
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

void CliChatTest::interruptStopsTheCountingOfADocument() {
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

void CliChatTest::interruptIsRememberedByAPipedChat() {
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

void CliChatTest::interruptStaysIgnored() {
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

QTEST_GUILESS_MAIN(CliChatTest)
#include "cli_chat_test.moc"
