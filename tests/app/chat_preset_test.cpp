// Presets and the context of a chat: switching, refusing, measuring.
#include <memory>

#include <QFile>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QtTest>

#include "app/chat_controller.h"
#include "tests/app/chat_session.h"

namespace longhand::app {

using namespace tests;  // NOLINT: a test file

class ChatPresetTest : public QObject {
  Q_OBJECT

 private:
  std::unique_ptr<QTemporaryDir> folder_;

 private slots:
  void init() { folder_ = std::make_unique<QTemporaryDir>(); }

  void switchingThePresetDownConvertsTheChatInPlace() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->ask(kQuestion1));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens > 1200, kChatTimeoutMs);
    const std::int64_t cached = session->controller.memory().cachedTokens;

    const auto none = session->controller.switchCost(QStringLiteral("quality"));
    QCOMPARE(none->tokensToRead, std::int64_t{0});
    const auto cost = session->controller.switchCost(QStringLiteral("memory-limit"));
    QVERIFY(cost.has_value());
    QCOMPARE(cost->tokensToRead, std::int64_t{0});
    QVERIFY(cost->pagesToConvert > 0);
    QCOMPARE(cost->tokensBelowBits, std::int64_t{0});
    QVERIFY(cost->kvBytesAfter < cost->kvBytesBefore);
    QVERIFY(cost->fits);
    QVERIFY(!session->controller.switchCost(QStringLiteral("no-such")).has_value());

    session->readProgress.clear();
    session->switched.clear();
    session->controller.switchPreset(QStringLiteral("memory-limit"));
    QVERIFY(session->switched.wait(kChatTimeoutMs));
    QCOMPARE(session->switched.back()[0].toString(), QStringLiteral("memory-limit"));
    QVERIFY(session->readProgress.isEmpty());
    QCOMPARE(session->controller.messages().size(), std::size_t{2});
    QCOMPARE(session->controller.messages()[1].text, kAnswer1);
    QCOMPARE(session->controller.conversations().front().presetId, QStringLiteral("memory-limit"));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens >= cached - 1,
                             kChatTimeoutMs);

    QVERIFY(session->ask(kQuestion2));
    QVERIFY(session->lastMessage().statistics.reusedTokens >= cached - 1 - 64);
    QVERIFY(session->readProgress.size() < 10);
    QCOMPARE(session->controller.messages().size(), std::size_t{4});

    session->controller.switchPreset(QStringLiteral("no-such"));
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("memory-limit"));
    QCOMPARE(session->errors.size(), 1);
  }

  void switchingThePresetUpKeepsTheBitsUntilTheChatIsReadAgain() {
    const auto session = startedSession(folder_->path());
    session->controller.switchPreset(QStringLiteral("memory-limit"));
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->ask(kQuestion1));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens > 1200, kChatTimeoutMs);
    // The pages of the cache are told a moment after the answer's end.
    QTRY_VERIFY_WITH_TIMEOUT(
        session->controller.switchCost(QStringLiteral("throughput"))->tokensBelowBits > 500,
        kChatTimeoutMs);
    const auto kvBytes = [&] {
      return session->controller.switchCost(QStringLiteral("exact"))->kvBytesBefore;
    };
    const std::uint64_t few = kvBytes();

    const auto cost = session->controller.switchCost(QStringLiteral("throughput"));
    QCOMPARE(cost->tokensToRead, std::int64_t{0});
    QVERIFY(cost->tokensBelowBits > 500);
    session->switched.clear();
    session->readFinished.clear();
    session->controller.switchPreset(QStringLiteral("throughput"));
    QVERIFY(session->switched.wait(kChatTimeoutMs));
    QCOMPARE(session->readFinished.size(), 0);
    QVERIFY(2 * kvBytes() < 3 * few);  // the residual is longer

    session->controller.readAgain();
    QVERIFY(session->readFinished.wait(kChatTimeoutMs));
    QVERIFY(!session->readFinished[0][0].toBool());
    QTRY_VERIFY_WITH_TIMEOUT(2 * kvBytes() > 3 * few, kChatTimeoutMs);
    QVERIFY(session->errors.isEmpty());
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, kAnswer2);
  }

  void ownValuesAreCountedAsAPresetsAre() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->ask(kQuestion1));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens > 1200, kChatTimeoutMs);
    for (const PresetForecast& known : session->controller.forecast(2048)) {
      const auto forecast = session->controller.forecastFor(known.preset.cache, 0);
      QCOMPARE(forecast->use.total(), known.use.total());
      QCOMPARE(forecast->budgetBytes, known.budgetBytes);
      QCOMPARE(forecast->fits, known.fits);
      const auto cost = session->controller.switchCost(known.preset.cache, 0);
      const auto presetCost = session->controller.switchCost(known.preset.id);
      QCOMPARE(cost->kvBytesBefore, presetCost->kvBytesBefore);
      QCOMPARE(cost->kvBytesAfter, presetCost->kvBytesAfter);
      QCOMPARE(cost->pagesToConvert, presetCost->pagesToConvert);
      QCOMPARE(cost->tokensToRead, std::int64_t{0});
    }
    // A context that is too short for the chat.
    const auto tokensToRead = [&] {
      return session->controller.switchCost(session->controller.currentCacheConfig(), 64)
          ->tokensToRead;
    };
    QTRY_VERIFY_WITH_TIMEOUT(tokensToRead() > 1200, kChatTimeoutMs);
  }

  void anotherChatsTokensCostNothing() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->ask(kQuestion1));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens > 1200, kChatTimeoutMs);
    session->controller.newConversation();
    const auto cost = session->controller.switchCost(QStringLiteral("memory-limit"));
    QCOMPARE(cost->kvBytesBefore, std::uint64_t{0});
    QCOMPARE(cost->kvBytesAfter, std::uint64_t{0});
    QCOMPARE(cost->pagesToConvert, std::int64_t{0});
    QCOMPARE(cost->seconds, 0.0);
  }

  void ownValuesThatAreAPresetsAreThatPreset() {
    const auto session = startedSession(folder_->path());
    engine::KvCacheConfig own = session->controller.currentCacheConfig();
    own.residualLength = 77;
    session->controller.applyCacheConfig(own, 0);
    QVERIFY(session->switched.wait(kChatTimeoutMs));
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("custom"));
    session->controller.applyCacheConfig(engine::presetById("throughput").cache, 0);
    QVERIFY(session->switched.wait(kChatTimeoutMs));
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("throughput"));
    session->controller.switchPreset(QStringLiteral("custom"));  // the own values are still there
    QCOMPARE(session->controller.currentCacheConfig().residualLength, 77);
  }

  void whatASlidingWindowForgetsIsSaid() {
    const auto session = startedSession(folder_->path());
    engine::KvCacheConfig cache = session->controller.currentCacheConfig();
    cache.slidingWindow = 300;
    session->controller.applyCacheConfig(cache, 0);
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->ask(kQuestion1));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.contextState().forgottenTokens > 500,
                             kChatTimeoutMs);
    session->controller.newConversation();
    QCOMPARE(session->controller.contextState().forgottenTokens, std::int64_t{0});
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("custom"));
  }

  void aSwitchDuringAnAnswerWaitsForItsEnd() {
    const auto session = endlessSession(folder_->path());
    QVERIFY(sendAndSeeWords(*session));
    session->switched.clear();
    session->controller.switchPreset(QStringLiteral("throughput"));
    QVERIFY(session->controller.activity() == Activity::kAnswering);
    session->controller.stop();
    QVERIFY(session->switched.wait(kChatTimeoutMs));
    QCOMPARE(session->switched.size(), 1);
    QCOMPARE(session->controller.currentCacheConfig().keyNbits, 8);
    QCOMPARE(session->controller.messages().size(), std::size_t{2});
    QVERIFY(!session->lastMessage().text.isEmpty());
  }

  void eachChatKeepsItsOwnPreset() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t first = session->controller.currentConversation();
    session->controller.newConversation();
    session->controller.switchPreset(QStringLiteral("exact"));
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t second = session->controller.currentConversation();
    session->controller.selectConversation(first);
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("quality"));
    QVERIFY(session->ask(QStringLiteral("Who are you?")));
    session->controller.selectConversation(second);
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("exact"));
    QVERIFY(session->ask(QStringLiteral("Who are you?")));
    QVERIFY(session->errors.isEmpty());
  }

  void whatDoesNotFitTheContextIsRefusedWithNumbersAndNothingIsLost() {
    const auto session = startedSession(folder_->path());
    session->controller.applyCacheConfig(session->controller.currentCacheConfig(), 512);
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("quality"));
    QVERIFY(session->attach(samplePath()));
    const auto preview = session->previews.back()[0].value<DocumentPreview>();
    QVERIFY(!preview.fitsContext);
    QCOMPARE(preview.contextLength, std::int64_t{512});
    session->controller.send(kQuestion1);
    QVERIFY(session->refused.wait(kChatTimeoutMs));
    QCOMPARE(session->refused[0][0].toString(), kQuestion1);
    QVERIFY2(session->lastError().contains(QStringLiteral("512")),
             qPrintable(session->lastError()));
    QVERIFY(session->controller.messages().empty());
    QCOMPARE(session->controller.draft(), kQuestion1);
    QCOMPARE(session->controller.memory().cachedTokens, std::int64_t{0});
    QVERIFY(session->controller.activity() == Activity::kIdle);

    session->controller.readDocument();
    QVERIFY(session->readFinished.wait(kChatTimeoutMs));
    QVERIFY(session->readFinished[0][0].toBool());

    session->controller.applyCacheConfig(session->controller.currentCacheConfig(), 0);
    QVERIFY(session->ask(kQuestion1));
    QCOMPARE(session->lastMessage().text, kAnswer1);
    QCOMPARE(session->controller.draft(), QString());
  }

  void aContextBeyondTheTrainedLengthIsSaid() {
    const auto session = startedSession(folder_->path());
    session->controller.applyCacheConfig(session->controller.currentCacheConfig(), 4096);
    QVERIFY(session->attach(samplePath()));
    const QString copy = folder_->filePath(QStringLiteral("copy.txt"));
    QVERIFY(QFile::copy(samplePath(), copy));
    QVERIFY(session->attach(copy));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.contextState().usedTokens > 2300, kChatTimeoutMs);
    const ContextState state = session->controller.contextState();
    QCOMPARE(state.contextLength, std::int64_t{4096});
    QCOMPARE(state.trainedLength, std::int64_t{2048});
    QVERIFY(state.isBeyondTraining());
    QVERIFY(session->ask(kQuestion1));  // a warning is no refusal
  }

  void theTrainedLengthIsNoChoiceAndAnotherLengthIsThatOfOneChat() {
    const auto session = startedSession(folder_->path());
    engine::KvCacheConfig cache = session->controller.currentCacheConfig();
    cache.residualLength = 77;
    session->controller.applyCacheConfig(cache, 2048);
    QVERIFY(session->switched.wait(kChatTimeoutMs));
    QCOMPARE(session->controller.settings().contextLength, std::int64_t{0});
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t first = session->controller.currentConversation();
    cache.residualLength = 99;
    session->controller.applyCacheConfig(cache, 4096);
    QVERIFY(session->switched.wait(kChatTimeoutMs));
    QCOMPARE(session->controller.contextState().contextLength, std::int64_t{4096});

    session->controller.newConversation();
    QCOMPARE(session->controller.contextState().contextLength, std::int64_t{2048});
    cache.residualLength = 55;
    session->controller.applyCacheConfig(cache, 0);
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    session->controller.selectConversation(first);
    QCOMPARE(session->controller.contextState().contextLength, std::int64_t{4096});
    QCOMPARE(session->controller.currentCacheConfig().residualLength, 99);
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("custom"));
  }

  void theContextMeterIsThatOfTheOpenChatWhileAnotherAnswers() {
    const auto session = endlessSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.contextState().usedTokens > 1000, kChatTimeoutMs);
    const std::int64_t tokens = session->controller.contextState().usedTokens;
    const std::int64_t quiet = session->controller.currentConversation();
    session->controller.newConversation();
    QCOMPARE(session->controller.contextState().usedTokens, std::int64_t{0});
    session->controller.applyCacheConfig(session->controller.currentCacheConfig(), 100000);
    QVERIFY(sendAndSeeWords(*session));
    const std::int64_t busy = session->controller.currentConversation();
    session->controller.selectConversation(quiet);
    // Another document is looked at in the meantime: its room is that of the open chat.
    QVERIFY(session->changed.wait(kChatTimeoutMs));
    QVERIFY(std::abs(session->controller.contextState().usedTokens - tokens) < 20);
    session->controller.stop();
    QVERIFY(session->finished.wait(kChatTimeoutMs));
    QTRY_COMPARE_WITH_TIMEOUT(session->controller.contextState().usedTokens, tokens,
                              kChatTimeoutMs);
    session->controller.selectConversation(busy);
    QVERIFY(session->controller.contextState().usedTokens < 1000);
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::ChatPresetTest)
#include "chat_preset_test.moc"
