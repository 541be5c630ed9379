// Chats: start and restart, questions and answers, branches, deleting and drafts.
#include "app/chat_controller.h"

#include <memory>

#include <QDir>
#include <QElapsedTimer>
#include <QFile>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QtTest>

#include "tests/app/chat_session.h"

namespace longhand::app {

using namespace tests;  // NOLINT: a test file

class ChatControllerTest : public QObject {
  Q_OBJECT

 private:
  std::unique_ptr<QTemporaryDir> folder_;

 private slots:
  void init() { folder_ = std::make_unique<QTemporaryDir>(); }

  void aFirstStartLoadsTheDemonstrationModel() {
    ChatSession session(chatPaths(folder_->path()));
    QVERIFY(!session.controller.model().has_value());
    QSignalSpy activity(&session.controller, &ChatController::activityChanged);
    QVERIFY(session.start());
    QVERIFY(session.controller.model()->isDemo);
    QCOMPARE(session.controller.currentConversation(), 0);
    QVERIFY(session.controller.activity() == Activity::kIdle);
    QCOMPARE(activity.size(), 2);  // loading, idle
    QCOMPARE(session.controller.demo()->questions.size(), 8);
    QCOMPARE(session.controller.availableModels().size(), std::size_t{1});
    QCOMPARE(session.controller.presets().size(), engine::builtInPresets().size() + 1);
    QVERIFY(session.errors.isEmpty());
  }

  void theQuestionIsStoredBeforeItsAnswerBegins() {
    auto session = endlessSession(folder_->path());
    QVERIFY(sendAndSeeWords(*session));
    const std::vector<Message> messages = session->controller.messages();
    QCOMPARE(messages.size(), std::size_t{2});
    QVERIFY(messages[1].state == MessageState::kStreaming);
    QVERIFY(!messages[1].text.isEmpty());

    // The files as a power cut would leave them, after a second of streaming.
    QTest::qWait(1100);
    QTemporaryDir copy;
    const QString name = QStringLiteral("/longhand.sqlite");
    for (const QString& suffix : {QString(), QStringLiteral("-wal")}) {
      QVERIFY(QFile::copy(chatPaths(folder_->path()).dataFolder + name + suffix,
                          copy.path() + name + suffix));
    }
    ControllerPaths copied = chatPaths(folder_->path());
    copied.dataFolder = copy.path();
    ChatSession restarted(copied);
    restarted.controller.selectConversation(restarted.controller.conversations().front().id);
    const std::vector<Message> recovered = restarted.controller.messages();
    QCOMPARE(recovered.size(), std::size_t{2});
    QCOMPARE(recovered[0].text, QStringLiteral("Tell me everything."));
    QVERIFY(recovered[1].state == MessageState::kStopped);
    QVERIFY(!recovered[1].text.isEmpty());
    QVERIFY(session->controller.messages()[1].text.startsWith(recovered[1].text));
  }

  void stopEndsAnAnswerAtOnceAndKeepsItsText() {
    const auto session = endlessSession(folder_->path());
    QVERIFY(sendAndSeeWords(*session));
    QVERIFY(session->controller.activity() == Activity::kAnswering);
    session->controller.send(QStringLiteral("Another one"));  // one at a time
    QCOMPARE(session->refused.size(), 1);
    QCOMPARE(session->refused[0][0].toString(), QStringLiteral("Another one"));
    QElapsedTimer timer;
    timer.start();
    session->controller.stop();
    QVERIFY(session->finished.wait(kChatTimeoutMs));
    QVERIFY2(timer.elapsed() < 2000, qPrintable(QString::number(timer.elapsed())));
    const Message answer = session->lastMessage();
    QVERIFY(answer.state == MessageState::kStopped);
    QCOMPARE(answer.stopReason, QStringLiteral("cancelled"));
    QVERIFY(!answer.text.isEmpty());
    QVERIFY(session->controller.activity() == Activity::kIdle);
    // The chat goes on, and the stopped answer is part of it.
    QVERIFY(sendAndSeeWords(*session));
    session->controller.stop();
    QVERIFY(session->finished.wait(kChatTimeoutMs));
    QCOMPARE(session->controller.messages().size(), std::size_t{4});
    QVERIFY(session->lastMessage().statistics.reusedTokens >=
            answer.statistics.promptTokens + answer.statistics.answerTokens - 1);
  }

  void closingTheWindowInMidAnswerKeepsWhatWasSaid() {
    auto session = endlessSession(folder_->path());
    QVERIFY(sendAndSeeWords(*session));
    const QString seen = session->lastMessage().text;
    session.reset();
    session = startedSession(folder_->path());
    QCOMPARE(session->controller.messages().size(), std::size_t{2});
    QVERIFY(session->lastMessage().state == MessageState::kStopped);
    QVERIFY(session->lastMessage().text.startsWith(seen));
  }

  void aRestartFindsEverything() {
    auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    session->controller.switchPreset(QStringLiteral("balanced"));
    QVERIFY(session->ask(kQuestion1));
    session->controller.saveDraft(QStringLiteral("half a thou"));
    session->controller.setThreads(1);
    session->controller.saveWindowLayout("geometry", "state");
    const Message before = session->lastMessage();
    const std::int64_t id = session->controller.currentConversation();
    session.reset();

    session = startedSession(folder_->path());
    QCOMPARE(session->controller.currentConversation(), id);
    QCOMPARE(session->controller.conversations().front().title, kQuestion1);
    QCOMPARE(session->controller.draft(), QStringLiteral("half a thou"));
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("balanced"));
    QCOMPARE(session->controller.settings().threads, 1);
    QCOMPARE(session->controller.settings().windowGeometry, QByteArray("geometry"));
    QCOMPARE(session->controller.documents().size(), std::size_t{1});
    QCOMPARE(session->lastMessage().text, before.text);
    QVERIFY(session->lastMessage().tokens == before.tokens);
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, kAnswer2);
    QCOMPARE(session->lastMessage().statistics.promptTokens >
                 before.statistics.promptTokens + before.statistics.answerTokens,
             true);
  }

  void regenerateAndEditMakeBranches() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->ask(kQuestion1));
    const Message original = session->lastMessage();
    session->finished.clear();
    session->controller.regenerate();
    QVERIFY(session->finished.wait(kChatTimeoutMs));
    const Message again = session->lastMessage();
    QVERIFY(again.id != original.id);
    QCOMPARE(again.parentId, original.parentId);
    QCOMPARE(again.siblingIds.size(), std::size_t{2});
    QCOMPARE(again.text, original.text);  // greedy
    QVERIFY(again.statistics.reusedTokens >= original.statistics.promptTokens - 1);

    session->finished.clear();
    session->controller.editMessage(original.parentId, kQuestion2);
    QVERIFY(session->finished.wait(kChatTimeoutMs));
    QCOMPARE(session->lastMessage().text, kAnswer2);
    QCOMPARE(session->controller.messages().size(), std::size_t{2});
    QCOMPARE(session->controller.messages()[0].siblingIds.size(), std::size_t{2});

    session->opened.clear();
    session->controller.selectBranch(original.id);
    QCOMPARE(session->opened.size(), 1);
    QCOMPARE(session->lastMessage().id, original.id);
    session->controller.editMessage(original.id, QStringLiteral("answers cannot be edited"));
    QCOMPARE(session->refused.size(), 1);
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->controller.messages().size(), std::size_t{4});
  }

  void aRegeneratedAnswerIsAnotherOneWhereTokensAreDrawn() {
    const auto session = endlessSession(folder_->path());
    engine::SamplerConfig wild;
    wild.temperature = 5.0;
    wild.topK = 0;
    wild.topP = 1.0;
    session->controller.applySampling(wild, 20);
    QVERIFY(session->ask(QStringLiteral("Say something.")));
    const Message first = session->lastMessage();
    QCOMPARE(first.stopReason, QStringLiteral("token_limit"));
    QCOMPARE(first.tokens.size(), std::size_t{20});
    session->finished.clear();
    session->controller.regenerate();
    QVERIFY(session->finished.wait(kChatTimeoutMs));
    QVERIFY(session->lastMessage().tokens != first.tokens);
  }

  void deletingAChatCanBeUndone() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t id = session->controller.currentConversation();
    session->controller.renameConversation(id, QStringLiteral("Greetings"));
    QCOMPARE(session->controller.searchResults(QStringLiteral("greet")).size(), std::size_t{1});
    session->controller.deleteConversation(id);
    QVERIFY(session->controller.conversations().empty());
    QCOMPARE(session->controller.currentConversation(), 0);
    QVERIFY(session->controller.messages().empty());
    session->controller.undoDelete();
    QCOMPARE(session->controller.currentConversation(), id);
    QCOMPARE(session->controller.messages().size(), std::size_t{2});
    QCOMPARE(session->controller.conversations().front().title, QStringLiteral("Greetings"));
  }

  void eachDeletionCanBeUndoneTheLastOneFirst() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t first = session->controller.currentConversation();
    session->controller.newConversation();
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t second = session->controller.currentConversation();
    session->controller.deleteConversation(first);
    session->controller.deleteConversation(second);
    session->controller.undoDelete();
    QCOMPARE(session->controller.currentConversation(), second);
    session->controller.undoDelete();
    QCOMPARE(session->controller.currentConversation(), first);
    QCOMPARE(session->controller.conversations().size(), std::size_t{2});
    session->controller.undoDelete();
    QVERIFY(session->errors.isEmpty());
  }

  void aDraftInANewChatSurvivesOtherChatsAndARestart() {
    {
      const auto session = startedSession(folder_->path());
      QVERIFY(session->ask(QStringLiteral("Hello!")));
      const std::int64_t other = session->controller.currentConversation();
      session->controller.newConversation();
      session->controller.saveDraft(kQuestion1);
      session->controller.selectConversation(other);
      QCOMPARE(session->controller.draft(), QString());
      session->controller.newConversation();
      QCOMPARE(session->controller.draft(), kQuestion1);
    }
    const auto session = startedSession(folder_->path());
    QCOMPARE(session->controller.currentConversation(), 0);
    QCOMPARE(session->controller.draft(), kQuestion1);
    // A document makes a chat of it: the draft is that chat's, and the next one begins empty.
    QVERIFY(session->attach(samplePath()));
    QCOMPARE(session->controller.draft(), kQuestion1);
    session->controller.newConversation();
    QCOMPARE(session->controller.draft(), QString());
  }

  void aRefusedFirstQuestionLeavesADraftAndNoChat() {
    const auto session = startedSession(folder_->path());
    session->controller.applyCacheConfig(session->controller.currentCacheConfig(), 64);
    const QString question = QStringLiteral("Who keeps the green ledger? ").repeated(20);
    session->controller.send(question);
    QVERIFY(session->refused.wait(kChatTimeoutMs));
    QVERIFY(session->controller.conversations().empty());
    QCOMPARE(session->controller.currentConversation(), 0);
    QCOMPARE(session->controller.draft(), question);
    QCOMPARE(session->controller.contextState().contextLength, std::int64_t{64});
  }

  void chatsAreNobodyElsesBusiness() {
    const ChatSession session(chatPaths(folder_->path()));
    const QFile::Permissions others = QFile::ReadGroup | QFile::WriteGroup | QFile::ExeGroup |
                                      QFile::ReadOther | QFile::WriteOther | QFile::ExeOther;
    const QString folder = chatPaths(folder_->path()).dataFolder;
    QCOMPARE(QFile::permissions(folder) & others, QFile::Permissions());
    for (const QString& name : QDir(folder).entryList({QStringLiteral("*.sqlite*")}, QDir::Files)) {
      if (name.endsWith(QStringLiteral(".lock"))) continue;
      QCOMPARE(QFile::permissions(QDir(folder).filePath(name)) & others, QFile::Permissions());
    }
  }

  void aModelThatDoesNotLoadLeavesTheOldOneInUse() {
    const auto session = startedSession(folder_->path());
    session->controller.loadModel(folder_->path(), engine::WeightFormat::kAuto);
    QVERIFY(session->loadFailed.wait(kChatTimeoutMs));
    QVERIFY(!session->loadFailed[0][0].toString().isEmpty());
    QVERIFY(session->controller.model().has_value());
    QVERIFY(session->controller.settings().modelFolder.isEmpty());
    QVERIFY(session->ask(QStringLiteral("Hello!")));
  }

  void withoutAnyModelNothingIsLost() {
    ControllerPaths bare = chatPaths(folder_->path());
    bare.demoFolder.clear();
    ChatSession session(bare);
    session.controller.start();
    QCOMPARE(session.loadFailed.size(), 1);
    session.controller.send(kQuestion1);
    QCOMPARE(session.refused.size(), 1);
    session.controller.openDocument(samplePath());
    QVERIFY(session.previews.wait(kChatTimeoutMs));
    QCOMPARE(session.controller.pendingDocument()->tokenCount, std::int64_t{-1});
    session.controller.attachDocument();
    QCOMPARE(session.controller.documents().size(), std::size_t{1});
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::ChatControllerTest)
#include "chat_controller_test.moc"
