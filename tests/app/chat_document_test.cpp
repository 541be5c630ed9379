// Documents in a chat: looked at, attached, read ahead, put away.
#include <memory>

#include <QElapsedTimer>
#include <QFile>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QtTest>

#include "app/chat_controller.h"
#include "tests/app/chat_session.h"

namespace longhand::app {

using namespace tests;  // NOLINT: a test file

class ChatDocumentTest : public QObject {
  Q_OBJECT

 private:
  std::unique_ptr<QTemporaryDir> folder_;

 private slots:
  void init() { folder_ = std::make_unique<QTemporaryDir>(); }

  void aDocumentIsShownWithItsCostBeforeItIsRead() {
    const auto session = startedSession(folder_->path());
    session->controller.openDocument(samplePath());
    QVERIFY(session->previews.wait(kChatTimeoutMs));
    const auto preview = session->previews[0][0].value<DocumentPreview>();
    QCOMPARE(preview.content.fileName, QStringLiteral("sample-document.txt"));
    QVERIFY2(preview.tokenCount > 1150 && preview.tokenCount < 1250,
             qPrintable(QString::number(preview.tokenCount)));
    QVERIFY(preview.fitsContext);
    QCOMPARE(preview.contextLength, std::int64_t{2048});
    QCOMPARE(preview.forecasts.size(), session->controller.presets().size());
    for (const PresetForecast& forecast : preview.forecasts) {
      QVERIFY(forecast.use.total() > 4'000'000U);  // the weights alone
      QVERIFY(forecast.largestContext >= preview.tokenCount || !forecast.fits);
    }
    QVERIFY(preview.forecasts.front().use.total() > preview.forecasts[4].use.total());
    QCOMPARE(session->controller.memory().cachedTokens, std::int64_t{0});
    QCOMPARE(session->controller.conversations().size(), std::size_t{0});

    session->controller.discardDocument();
    QVERIFY(!session->controller.pendingDocument().has_value());
    session->controller.attachDocument();
    QVERIFY(!session->errors.isEmpty());
    QVERIFY(session->controller.documents().empty());
  }

  void questionsAboutADocumentAreAnsweredAndTheSecondStartsAtOnce() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QVERIFY2(session->ask(kQuestion1), qPrintable(session->lastError()));
    QCOMPARE(session->added.size(), 2);
    const Message first = session->lastMessage();
    QCOMPARE(first.text, kAnswer1);
    QVERIFY(first.state == MessageState::kComplete);
    QCOMPARE(first.stopReason, QStringLiteral("end_of_text"));
    QVERIFY(first.statistics.promptTokens > 1200);
    QCOMPARE(first.statistics.answerTokens, static_cast<std::int64_t>(first.tokens.size()));
    QVERIFY(first.statistics.firstTokenSeconds > 0.0);
    QVERIFY(first.statistics.tokensPerSecond > 0.0);
    QCOMPARE(session->controller.conversations().front().title, kQuestion1);

    QVERIFY(session->ask(kQuestion2));
    const Message second = session->lastMessage();
    QCOMPARE(second.text, kAnswer2);
    // Document, first question and first answer are all found in the cache.
    QVERIFY2(second.statistics.reusedTokens >=
                 first.statistics.promptTokens + first.statistics.answerTokens - 1,
             qPrintable(QStringLiteral("%1 of %2")
                            .arg(second.statistics.reusedTokens)
                            .arg(second.statistics.promptTokens)));
    QCOMPARE(session->controller.messages().size(), std::size_t{4});
    QCOMPARE(session->controller.contextState().usedTokens,
             second.statistics.promptTokens + second.statistics.answerTokens);
    QVERIFY(session->errors.isEmpty());
  }

  void readingAheadMakesTheFirstQuestionStartAtOnce() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    const std::int64_t documentTokens = session->controller.documents().front().tokenCount;
    session->controller.readDocument();
    QVERIFY(session->controller.activity() == Activity::kReading);
    QVERIFY(session->readFinished.wait(kChatTimeoutMs));
    QCOMPARE(session->readFinished[0][0].toBool(), false);
    QVERIFY(!session->readProgress.isEmpty());
    QVERIFY(session->controller.activity() == Activity::kIdle);
    QVERIFY(session->controller.messages().empty());
    QVERIFY(session->ask(kQuestion1));
    QCOMPARE(session->lastMessage().text, kAnswer1);
    // Only where the document meets the question may tokens differ.
    QVERIFY2(session->lastMessage().statistics.reusedTokens >= documentTokens - 8,
             qPrintable(QString::number(session->lastMessage().statistics.reusedTokens)));
  }

  void aReadingCanBeCancelled() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    session->controller.readDocument();
    session->controller.cancelReading();
    QTRY_COMPARE_WITH_TIMEOUT(session->readFinished.size(), 1, kChatTimeoutMs);
    QVERIFY(session->readFinished[0][0].toBool());
    QVERIFY(session->controller.activity() == Activity::kIdle);
    QVERIFY(session->ask(kQuestion1));
    QCOMPARE(session->lastMessage().text, kAnswer1);
    QVERIFY(session->errors.isEmpty());
  }

  void theForecastOfAPendingDocumentFollowsTheOpenChat() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.contextState().usedTokens > 1000, kChatTimeoutMs);
    const QString copy = folder_->filePath(QStringLiteral("copy.txt"));
    QVERIFY(QFile::copy(samplePath(), copy));
    session->previews.clear();
    session->controller.openDocument(copy);
    QVERIFY(session->previews.wait(kChatTimeoutMs));
    QVERIFY(session->previews.back()[0].value<DocumentPreview>().tokensInUse > 1000);
    QVERIFY(!session->controller.pendingDocument()->fitsContext);
    session->controller.newConversation();
    QCOMPARE(session->previews.back()[0].value<DocumentPreview>().tokensInUse, std::int64_t{0});
    QVERIFY(session->controller.pendingDocument()->fitsContext);
  }

  void discardingADocumentEndsItsCounting() {
    const auto session = startedSession(folder_->path());
    const QString path = folder_->filePath(QStringLiteral("long.txt"));
    QFile file(path);
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write(QByteArray("The old mill was built in 1712. ").repeated(500'000));
    file.close();
    QSignalSpy counting(&session->controller, &ChatController::documentCountProgress);
    session->controller.openDocument(path);
    QVERIFY(counting.wait(kChatTimeoutMs));
    session->controller.discardDocument();
    QElapsedTimer timer;
    timer.start();
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    QVERIFY2(timer.elapsed() < 6000, qPrintable(QString::number(timer.elapsed())));
    QVERIFY(session->previews.isEmpty());
  }

  void anEmptyChatGivesItsMemoryBack() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    session->controller.readDocument();
    QVERIFY(session->readFinished.wait(kChatTimeoutMs));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens > 1000, kChatTimeoutMs);
    session->controller.detachDocument(session->controller.documents().front().id);
    QTRY_COMPARE_WITH_TIMEOUT(session->controller.memory().cachedTokens, std::int64_t{0},
                              kChatTimeoutMs);
    QCOMPARE(session->controller.memory().use[engine::MemoryCategory::kKvCodes], std::uint64_t{0});
  }

  void theSameDocumentTwiceIsSaid() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->errors.isEmpty());
    QVERIFY(session->attach(samplePath()));
    QVERIFY2(session->lastError().contains(QStringLiteral("already in this chat")),
             qPrintable(session->lastError()));
    QCOMPARE(session->controller.documents().size(), std::size_t{1});
  }

  void aFileThatCannotBeOpenedIsSaid() {
    const auto session = startedSession(folder_->path());
    session->controller.openDocument(QStringLiteral("/no/such/file.txt"));
    QVERIFY(session->errors.wait(kChatTimeoutMs));
    QVERIFY(session->lastError().contains(QStringLiteral("/no/such/file.txt")));
    QVERIFY(session->previews.isEmpty());
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::ChatDocumentTest)
#include "chat_document_test.moc"
