#include "app/conversation_store.h"

#include <signal.h>

#include <cstdio>
#include <memory>
#include <optional>

#include <QCoreApplication>
#include <QFile>
#include <QProcess>
#include <QTemporaryDir>
#include <QThread>
#include <QtTest>

#include "app/database.h"
#include "tests/app/error_check.h"

namespace longhand::app {

using tests::errorOf;

namespace {

std::vector<QString> texts(const std::vector<Message>& messages) {
  std::vector<QString> result;
  for (const Message& message : messages) result.push_back(message.text);
  return result;
}

using Texts = std::vector<QString>;

const QString kWriterOption = QStringLiteral("--stream-until-killed");

/// The text of an answer after `step` updates.
QString streamedText(int step) {
  QString text;
  for (int i = 1; i <= step; ++i) text += QStringLiteral("word%1 ").arg(i);
  return text;
}

/// The program that is killed: streams an answer for ever and prints the number of each update
/// after it is stored.
int streamUntilKilled(const QString& path) {
  Database database(path);
  ConversationStore store(database);
  const std::int64_t id = store.createConversation(QStringLiteral("quality"));
  const std::int64_t question = store.addUserMessage(id, 0, QStringLiteral("Tell me a story."));
  const std::int64_t answer = store.addAnswer(id, question);
  for (int step = 1;; ++step) {
    store.updateStreaming(answer, streamedText(step));
    std::printf("%d\n", step);
    std::fflush(stdout);
    QThread::msleep(1);
  }
}

}  // namespace

class ConversationStoreTest : public QObject {
  Q_OBJECT

 private:
  std::unique_ptr<QTemporaryDir> folder_;
  QString path_;
  std::unique_ptr<Database> database_;
  std::optional<ConversationStore> store_;

  std::int64_t addPair(std::int64_t conversation, std::int64_t parent, const QString& question,
                       const QString& text) {
    const std::int64_t asked = store_->addUserMessage(conversation, parent, question);
    return finish(store_->addAnswer(conversation, asked), text);
  }

  std::int64_t finish(std::int64_t id, const QString& text,
                      MessageState state = MessageState::kComplete) {
    Message answer;
    answer.id = id;
    answer.text = text;
    answer.state = state;
    store_->finishAnswer(answer);
    return id;
  }

  void reopen() {
    store_.reset();
    database_.reset();
    database_ = std::make_unique<Database>(path_);
    store_.emplace(*database_);
  }

 private slots:
  void init() {
    store_.reset();
    database_.reset();
    folder_ = std::make_unique<QTemporaryDir>();
    path_ = folder_->filePath(QStringLiteral("longhand.sqlite"));
    reopen();
  }

  void everythingOfAnAnswerIsKept() {
    const std::int64_t id = store_->createConversation(QStringLiteral("balanced"));
    const std::int64_t asked = store_->addUserMessage(id, 0, QStringLiteral("Why? 为什么？"));
    Message answer;
    answer.id = store_->addAnswer(id, asked);
    answer.text = QStringLiteral("Because 🙂.");
    answer.tokens = {5, -1, 2147483647};
    answer.tokenizerFingerprint = 0xFEDCBA9876543210U;
    answer.state = MessageState::kStopped;
    answer.stopReason = QStringLiteral("cancelled");
    answer.statistics = {1000, 900, 3, 0.25, 41.5, 800.0};
    store_->finishAnswer(answer);
    store_->setTitle(id, QStringLiteral("Why?"));
    store_->setDraft(id, QStringLiteral("and then"));
    reopen();

    const Conversation conversation = store_->conversation(id);
    QCOMPARE(conversation.title, QStringLiteral("Why?"));
    QCOMPARE(conversation.presetId, QStringLiteral("balanced"));
    QCOMPARE(conversation.draft, QStringLiteral("and then"));
    QCOMPARE(conversation.activeLeafId, answer.id);
    const std::vector<Message> branch = store_->activeBranch(id);
    QCOMPARE(branch.size(), std::size_t{2});
    QCOMPARE(branch[0].text, QStringLiteral("Why? 为什么？"));
    QVERIFY(branch[0].role == MessageRole::kUser);
    QVERIFY(branch[1].role == MessageRole::kAssistant);
    QCOMPARE(branch[1].parentId, asked);
    QCOMPARE(branch[1].text, answer.text);
    QVERIFY(branch[1].tokens == answer.tokens);
    QCOMPARE(branch[1].tokenizerFingerprint, answer.tokenizerFingerprint);
    QVERIFY(branch[1].state == MessageState::kStopped);
    QCOMPARE(branch[1].stopReason, QStringLiteral("cancelled"));
    QVERIFY(branch[1].statistics == answer.statistics);
  }

  void editsAndRegenerationsAreBranches() {
    const std::int64_t id = store_->createConversation(QStringLiteral("quality"));
    const std::int64_t a1 = addPair(id, 0, QStringLiteral("q1"), QStringLiteral("a1"));
    const std::int64_t a2 = addPair(id, a1, QStringLiteral("q2"), QStringLiteral("a2"));
    const std::int64_t q1 = store_->message(a1).parentId;
    const std::int64_t q2 = store_->message(a2).parentId;

    const std::int64_t other = finish(store_->addAnswer(id, q1), QStringLiteral("a1 again"));
    QVERIFY((texts(store_->activeBranch(id)) ==
             Texts{QStringLiteral("q1"), QStringLiteral("a1 again")}));
    const Message regenerated = store_->message(other);
    QCOMPARE(regenerated.siblingIndex, 1);
    QVERIFY((regenerated.siblingIds == std::vector<std::int64_t>{a1, other}));

    const std::int64_t edited = addPair(id, a1, QStringLiteral("q2 edited"), QStringLiteral("a3"));
    QVERIFY((texts(store_->activeBranch(id)) == Texts{QStringLiteral("q1"), QStringLiteral("a1"),
                                                      QStringLiteral("q2 edited"),
                                                      QStringLiteral("a3")}));
    QCOMPARE(store_->message(store_->message(edited).parentId).siblingIndex, 1);

    // Back to the first edit: down to the end of that branch.
    store_->selectBranch(q2);
    QVERIFY((texts(store_->activeBranch(id)) == Texts{QStringLiteral("q1"), QStringLiteral("a1"),
                                                      QStringLiteral("q2"), QStringLiteral("a2")}));
    store_->selectBranch(other);
    QCOMPARE(store_->conversation(id).activeLeafId, other);
    // A branch point leads to its newest branch.
    store_->selectBranch(a1);
    QCOMPARE(store_->conversation(id).activeLeafId, edited);

    // An edited first question is a second root.
    addPair(id, 0, QStringLiteral("q0"), QStringLiteral("a0"));
    QCOMPARE(store_->activeBranch(id).front().siblingIds.size(), std::size_t{2});
  }

  void deletingCanBeUndoneUntilItIsPurged() {
    const std::int64_t kept = store_->createConversation(QStringLiteral("quality"));
    const std::int64_t gone = store_->createConversation(QStringLiteral("quality"));
    addPair(gone, 0, QStringLiteral("a needle here"), QStringLiteral("answer"));
    store_->deleteConversation(gone);
    QCOMPARE(store_->conversations().size(), std::size_t{1});
    QCOMPARE(store_->conversations().front().id, kept);
    QVERIFY(store_->search(QStringLiteral("needle")).empty());

    store_->restoreConversation(gone);
    QCOMPARE(store_->conversations().size(), std::size_t{2});
    QCOMPARE(store_->activeBranch(gone).size(), std::size_t{2});
    QCOMPARE(store_->search(QStringLiteral("needle")).size(), std::size_t{1});

    store_->deleteConversation(gone);
    QCOMPARE(store_->purgeDeleted(QDateTime::currentDateTime().addDays(-1)), 0);
    QCOMPARE(store_->purgeDeleted(QDateTime::currentDateTime().addSecs(1)), 1);
    store_->restoreConversation(gone);
    QCOMPARE(store_->conversations().size(), std::size_t{1});
    QVERIFY(store_->search(QStringLiteral("needle")).empty());
    QVERIFY(errorOf([&] { store_->conversation(gone); }).code() ==
            engine::ErrorCode::kInvalidArgument);
  }

  void theListHasPinnedOnesFirstThenTheLatest() {
    const std::int64_t a = store_->createConversation(QStringLiteral("quality"));
    const std::int64_t b = store_->createConversation(QStringLiteral("quality"));
    const std::int64_t c = store_->createConversation(QStringLiteral("quality"));
    QThread::msleep(2);
    store_->addUserMessage(b, 0, QStringLiteral("later"));
    store_->setPinned(a, true);
    std::vector<std::int64_t> order;
    for (const Conversation& conversation : store_->conversations()) {
      order.push_back(conversation.id);
    }
    QVERIFY((order == std::vector<std::int64_t>{a, b, c}));
  }

  void searchFindsAnyScriptInTitlesAndMessages() {
    const std::int64_t id = store_->createConversation(QStringLiteral("quality"));
    store_->setTitle(id, QStringLiteral("Gardening in Straße 5"));
    const std::int64_t a1 =
        addPair(id, 0, QStringLiteral("长文档的量化缓存是什么？"),
                QStringLiteral("It is a \"quantized\" cache, 100% of it. snake_case"));
    const auto messagesOf = [&](const QString& text) {
      std::vector<std::int64_t> ids;
      for (const SearchHit& hit : store_->search(text)) ids.push_back(hit.messageId);
      return ids;
    };
    const std::int64_t q1 = store_->message(a1).parentId;
    using Ids = std::vector<std::int64_t>;
    QVERIFY((messagesOf(QStringLiteral("量化缓存")) == Ids{q1}));
    QVERIFY((messagesOf(QStringLiteral("量化")) == Ids{q1}));  // shorter than a trigram
    QVERIFY((messagesOf(QStringLiteral("QUANTIZED")) == Ids{a1}));
    QVERIFY((messagesOf(QStringLiteral("\"quantized\"")) == Ids{a1}));
    QVERIFY((messagesOf(QStringLiteral("0%")) == Ids{a1}));
    QVERIFY((messagesOf(QStringLiteral("e_")) == Ids{a1}));  // no wildcard
    QVERIFY((messagesOf(QStringLiteral("garden")) == Ids{0}));
    QVERIFY((messagesOf(QStringLiteral("ß")) == Ids{0}));
    QVERIFY(messagesOf(QStringLiteral("nowhere")).empty());
    QVERIFY(messagesOf(QStringLiteral("  ")).empty());
    QVERIFY(messagesOf(QStringLiteral("AND OR NOT (*")).empty());  // no query language
    QVERIFY(store_->search(QStringLiteral("量化"))
                .front()
                .snippet.contains(QStringLiteral("长文档的量化")));
  }

  void anAnswerIsFoundWhileItStreams() {
    const std::int64_t id = store_->createConversation(QStringLiteral("quality"));
    const std::int64_t answer =
        store_->addAnswer(id, store_->addUserMessage(id, 0, QStringLiteral("q")));
    store_->updateStreaming(answer, QStringLiteral("first words"));
    QCOMPARE(store_->search(QStringLiteral("first")).size(), std::size_t{1});
    finish(answer, QStringLiteral("last words"));
    QVERIFY(store_->search(QStringLiteral("first")).empty());
    QCOMPARE(store_->search(QStringLiteral("last")).size(), std::size_t{1});
    // An update that comes late changes nothing.
    store_->updateStreaming(answer, QStringLiteral("late"));
    QCOMPARE(store_->message(answer).text, QStringLiteral("last words"));
  }

  void theSnippetShowsThePlaceInALongText() {
    const std::int64_t id = store_->createConversation(QStringLiteral("quality"));
    store_->addUserMessage(id, 0,
                           QString(5000, QLatin1Char('a')) + QStringLiteral(" needle ") +
                               QString(5000, QLatin1Char('b')));
    const QString snippet = store_->search(QStringLiteral("needle")).front().snippet;
    QVERIFY(snippet.contains(QStringLiteral("needle")));
    QVERIFY(snippet.size() < 120);
    QVERIFY(snippet.startsWith(QStringLiteral("…")) && snippet.endsWith(QStringLiteral("…")));
  }

  void aCopyOfTheFilesInMidStreamHasTheLastUpdate() {
    const std::int64_t id = store_->createConversation(QStringLiteral("quality"));
    const std::int64_t answer =
        store_->addAnswer(id, store_->addUserMessage(id, 0, QStringLiteral("q")));
    store_->updateStreaming(answer, QStringLiteral("half an ans"));
    QTemporaryDir other;
    const QString copy = other.filePath(QStringLiteral("longhand.sqlite"));
    for (const QString& suffix : {QString(), QStringLiteral("-wal")}) {
      QVERIFY(QFile::copy(path_ + suffix, copy + suffix));
    }
    Database restarted(copy);
    ConversationStore store(restarted);
    QCOMPARE(store.recoverInterrupted(), 1);
    const Message message = store.message(answer);
    QVERIFY(message.state == MessageState::kStopped);
    QCOMPARE(message.stopReason, QStringLiteral("interrupted"));
    QCOMPARE(message.text, QStringLiteral("half an ans"));
    QCOMPARE(store.recoverInterrupted(), 0);
  }

  void killNineLosesAtMostTheUpdateUnderWay() {
    store_.reset();
    database_.reset();
    const QString path = folder_->filePath(QStringLiteral("killed.sqlite"));
    QProcess writer;
    writer.start(QCoreApplication::applicationFilePath(), {kWriterOption, path});
    QVERIFY(writer.waitForStarted());
    int lastStored = 0;
    while (lastStored < 50) {
      QVERIFY(writer.waitForReadyRead(20000));
      while (writer.canReadLine()) lastStored = writer.readLine().trimmed().toInt();
    }
    ::kill(static_cast<pid_t>(writer.processId()), SIGKILL);
    QVERIFY(writer.waitForFinished());
    while (writer.canReadLine()) lastStored = writer.readLine().trimmed().toInt();

    Database database(path);  // the dead process's lock is in nobody's way
    ConversationStore store(database);
    QCOMPARE(store.recoverInterrupted(), 1);
    const std::vector<Message> branch = store.activeBranch(store.conversations().front().id);
    QCOMPARE(branch.size(), std::size_t{2});
    QCOMPARE(branch[0].text, QStringLiteral("Tell me a story."));
    const QString& text = branch[1].text;
    QVERIFY2(text == streamedText(lastStored) || text == streamedText(lastStored + 1),
             qPrintable(QStringLiteral("stored %1: %2").arg(lastStored).arg(text.right(40))));
  }
};

}  // namespace longhand::app

int main(int argc, char** argv) {
  QCoreApplication application(argc, argv);
  const QStringList arguments = QCoreApplication::arguments();
  if (arguments.size() == 3 && arguments[1] == longhand::app::kWriterOption) {
    return longhand::app::streamUntilKilled(arguments[2]);
  }
  longhand::app::ConversationStoreTest test;
  return QTest::qExec(&test, argc, argv);
}
#include "conversation_store_test.moc"
