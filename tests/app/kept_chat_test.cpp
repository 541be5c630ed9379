// Chats whose caches are kept on disk: after a restart, or a visit to another chat, nothing that
// was read is read again; and whatever is wrong with a file costs time and nothing else.
#include <memory>

#include <QDir>
#include <QFile>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QtTest>

#include "app/chat_controller.h"
#include "tests/app/chat_session.h"

namespace longhand::app {

using namespace tests;  // NOLINT: a test file

class KeptChatTest : public QObject {
  Q_OBJECT

 private:
  std::unique_ptr<QTemporaryDir> folder_;

  QDir sessions() const { return QDir(folder_->filePath(QStringLiteral("data/sessions"))); }
  QString file(std::int64_t id) const {
    return sessions().filePath(QStringLiteral("%1.lhkv").arg(id));
  }
  /// A chat about the document with one answer, whose cache is on disk. Its id.
  std::int64_t makeKeptChat(ChatSession& session) const {
    if (!session.attach(samplePath()) || !session.ask(kQuestion1)) return 0;
    if (!session.waitFor(session.saved)) return 0;
    return session.controller.currentConversation();
  }

 private slots:
  void init() { folder_ = std::make_unique<QTemporaryDir>(); }

  void theSecondQuestionAfterARestartComputesNoDocumentToken() {
    std::int64_t id = 0;
    {
      const auto session = startedSession(folder_->path());
      id = makeKeptChat(*session);
      QVERIFY(id != 0);
      QCOMPARE(session->lastMessage().text, kAnswer1);
      QVERIFY(session->computedTokens() > 1024);
      QVERIFY(QFile::exists(file(id)));
    }
    const auto session = startedSession(folder_->path());
    QVERIFY(session->waitFor(session->restored));
    QCOMPARE(session->restored[0][0].toLongLong(), id);
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, kAnswer2);
    QVERIFY2(session->computedTokens() < 60,
             qPrintable(QString::number(session->computedTokens())));
    QVERIFY(session->errors.isEmpty());
    QVERIFY(session->notices.isEmpty());
  }

  void aQuestionRightAfterTheStartWaitsForTheCache() {
    {
      const auto session = startedSession(folder_->path());
      QVERIFY(makeKeptChat(*session) != 0);
    }
    const auto session = startedSession(folder_->path());
    QVERIFY(session->ask(kQuestion2));  // without a pause
    QCOMPARE(session->lastMessage().text, kAnswer2);
    QVERIFY(session->computedTokens() < 60);
    QCOMPARE(session->restored.size(), 1);
  }

  void closingTheWindowAtOnceKeepsTheCache() {
    {
      const auto session = startedSession(folder_->path());
      QVERIFY(session->attach(samplePath()));
      session->controller.readDocument();
      QVERIFY(session->readFinished.wait(kChatTimeoutMs));
      QVERIFY(session->saved.isEmpty());
    }
    QCOMPARE(sessions().entryList(QDir::Files).size(), 1);
    const auto session = startedSession(folder_->path());
    QVERIFY(session->ask(kQuestion1));
    QVERIFY(session->computedTokens() < 60);
  }

  void anotherChatTakesTheCacheAndGivesItBack() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->ask(kQuestion1));
    const std::int64_t first = session->controller.currentConversation();
    session->controller.newConversation();
    QVERIFY(session->ask(QStringLiteral("Hello!")));  // before anything was saved
    QVERIFY(session->waitFor(session->saved));
    QCOMPARE(session->saved[0][0].toLongLong(), first);

    session->controller.selectConversation(first);
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, kAnswer2);
    QVERIFY(session->computedTokens() < 60);
  }

  void shortChatsAreNotKept() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    QVERIFY(!session->saved.wait(2000));
    QVERIFY(!sessions().exists());
  }

  void aDamagedFileIsReadAgainWithANotice() {
    std::int64_t id = 0;
    {
      const auto session = startedSession(folder_->path());
      id = makeKeptChat(*session);
      QVERIFY(id != 0);
    }
    QFile damaged(file(id));
    QVERIFY(damaged.open(QIODevice::ReadWrite));
    QVERIFY(damaged.seek(damaged.size() / 2));
    damaged.write("damage");
    damaged.close();

    const auto session = startedSession(folder_->path());
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, kAnswer2);
    QVERIFY(session->computedTokens() > 1024);
    QCOMPARE(session->notices.size(), 1);
    QVERIFY(session->notices[0][0].toString().contains(QStringLiteral("could not be used")));
    QVERIFY(session->notices[0][1].toString().contains(QStringLiteral("checksum")));
    QVERIFY(session->errors.isEmpty());
    // The cache that was read again is kept anew.
    QVERIFY(session->waitFor(session->saved));
  }

  void anotherPresetIsReadAgain() {
    {
      const auto session = startedSession(folder_->path());
      QVERIFY(makeKeptChat(*session) != 0);
      session->controller.switchPreset(QStringLiteral("exact"));
      QVERIFY(session->waitFor(session->switched));
    }
    const auto session = startedSession(folder_->path());
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, kAnswer2);
    QVERIFY(session->errors.isEmpty());
  }

  void aDeletedChatLeavesNoFile() {
    const auto session = startedSession(folder_->path());
    const std::int64_t id = makeKeptChat(*session);
    QVERIFY(id != 0);
    session->controller.deleteConversation(id);
    QVERIFY(!QFile::exists(file(id)));
    session->controller.undoDelete();
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, kAnswer2);
  }

  void filesOfUnknownChatsAndOldTemporaryFilesAreRemovedAtTheStart() {
    QVERIFY(QDir().mkpath(sessions().path()));
    const QStringList stale = {QStringLiteral("999.lhkv"), QStringLiteral("5.lhkv.abcdef.tmp")};
    for (const QString& name : stale) {
      QFile made(sessions().filePath(name));
      QVERIFY(made.open(QIODevice::WriteOnly));
    }
    const auto session = startedSession(folder_->path());
    QVERIFY(sessions().entryList(QDir::Files).isEmpty());
  }

  void theQuotaIsKept() {
    const auto session = startedSession(folder_->path());
    const std::int64_t first = makeKeptChat(*session);
    QVERIFY(first != 0);
    const auto bytes = static_cast<qint64>(session->controller.sessionBytes());
    QVERIFY(bytes > 0);
    session->controller.applySessionSettings(true, bytes * 3 / 2, 1024);

    session->controller.newConversation();
    session->saved.clear();
    const std::int64_t second = makeKeptChat(*session);
    QVERIFY(second != 0 && second != first);
    QVERIFY(!QFile::exists(file(first)));
    QVERIFY(QFile::exists(file(second)));

    // Nothing fits: said once, and the chat goes on.
    session->controller.applySessionSettings(true, 1000, 1024);
    QVERIFY(!QFile::exists(file(second)));
    session->controller.newConversation();
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->ask(kQuestion1));
    QVERIFY(session->waitFor(session->notices));
    QCOMPARE(session->lastMessage().text, kAnswer1);
    QVERIFY(session->errors.isEmpty());
  }

  void turnedOffNothingIsKept() {
    {
      const auto session = startedSession(folder_->path());
      QVERIFY(makeKeptChat(*session) != 0);
      session->controller.applySessionSettings(false, qint64{1} << 30, 1024);
      QVERIFY(sessions().entryList(QDir::Files).isEmpty());
      session->controller.newConversation();
      QVERIFY(session->attach(samplePath()));
      QVERIFY(session->ask(kQuestion1));
    }
    QVERIFY(sessions().entryList(QDir::Files).isEmpty());
    const auto session = startedSession(folder_->path());
    QVERIFY(!session->controller.settings().keepsSessions);
  }

  void anUnwritableFolderLosesNothing() {
    const auto session = startedSession(folder_->path());
    QFile inTheWay(sessions().path());
    QVERIFY(inTheWay.open(QIODevice::WriteOnly));
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->ask(kQuestion1));
    QVERIFY(session->waitFor(session->notices));
    QCOMPARE(session->lastMessage().text, kAnswer1);
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, kAnswer2);
    QVERIFY(session->errors.isEmpty());
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::KeptChatTest)
#include "kept_chat_test.moc"
