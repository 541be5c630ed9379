// "Check quality" without a window: the sample, the check beside an open chat, and its ends.
#include "app/quality_check.h"

#include <cmath>

#include <QElapsedTimer>
#include <QFile>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QtTest>

#include "app/chat_controller.h"
#include "engine/cache/presets.h"
#include "engine/quality.h"
#include "tests/app/chat_session.h"

namespace longhand::app {

using namespace tests;  // NOLINT: a test file

namespace {

constexpr QualitySpeed kFast{1e6, 1e6};

bool fitsAlways(std::int64_t /*windowTokens*/) { return true; }

double expectedSeconds(const QualitySample& sample, std::int64_t textTokens,
                       std::int64_t contextLength, int nCaches, const QualitySpeed& speed) {
  const auto windows = engine::planQualityWindows(textTokens, contextLength, sample.sampleTokens,
                                                  sample.windowTokens);
  return qualitySeconds(windows, nCaches, speed, 1'000'000'000);
}

}  // namespace

class QualityCheckTest : public QObject {
  Q_OBJECT

 private:
  std::unique_ptr<QTemporaryDir> folder_;

  QString writeText(const QString& name, const QString& text) const {
    const QString path = folder_->filePath(name);
    QFile file(path);
    if (!file.open(QIODevice::WriteOnly)) return {};
    file.write(text.toUtf8());
    return path;
  }

 private slots:
  void init() { folder_ = std::make_unique<QTemporaryDir>(); }

  // --- The sample -------------------------------------------------------------------------------

  void aFastModelMeasuresManyTokensOfLongWindows() {
    const QualitySample sample = chooseQualitySample(100000, 100000, 6, kFast, 45.0, fitsAlways);
    QCOMPARE(sample.windowTokens, std::int64_t{2048});
    QCOMPARE(sample.sampleTokens, std::int64_t{1024});
  }

  void theSampleStaysWithinItsTimeWhereAnySampleDoes() {
    std::int64_t lastScored = 1 << 20;
    for (double feed = 2000.0; feed > 6.0; feed *= 0.7) {
      const QualitySpeed speed{feed * 5.0, feed};
      const QualitySample sample = chooseQualitySample(70000, 100000, 6, speed, 45.0, fitsAlways);
      const double seconds = expectedSeconds(sample, 70000, 100000, 6, speed);
      QVERIFY2(seconds <= 45.0, qPrintable(QStringLiteral("%1 at %2").arg(seconds).arg(feed)));
      QVERIFY(sample.sampleTokens <= lastScored || sample.windowTokens == 512);
      lastScored = sample.sampleTokens;
    }
    // Slower than any sample allows: the smallest one.
    const QualitySample smallest =
        chooseQualitySample(70000, 100000, 6, {1.0, 0.1}, 45.0, fitsAlways);
    QCOMPARE(smallest.sampleTokens, std::int64_t{32});
    QCOMPARE(smallest.windowTokens, std::int64_t{512});
  }

  void windowsFitTextContextAndMemory() {
    const QualitySample shortText = chooseQualitySample(1222, 2048, 6, kFast, 45.0, fitsAlways);
    QCOMPARE(shortText.windowTokens, std::int64_t{1222});
    QCOMPARE(shortText.sampleTokens, std::int64_t{611});
    const QualitySample shortContext = chooseQualitySample(9000, 400, 6, kFast, 45.0, fitsAlways);
    QCOMPARE(shortContext.windowTokens, std::int64_t{400});
    const QualitySample littleMemory = chooseQualitySample(
        70000, 100000, 6, kFast, 45.0, [](std::int64_t tokens) { return tokens <= 1024; });
    QCOMPARE(littleMemory.windowTokens, std::int64_t{1024});
  }

  void timeIsThatOfTheTokensReadAndFed() {
    const std::vector<engine::QualityWindow> windows = {{0, 110, 10}, {500, 110, 10}};
    const QualitySpeed speed{100.0, 10.0};
    QCOMPARE(qualitySeconds(windows, 3, speed, 0), 0.0);
    QCOMPARE(qualitySeconds(windows, 3, speed, 50), 0.5);
    QCOMPARE(qualitySeconds(windows, 3, speed, 115), 1.0 + 1.5);
    QCOMPARE(qualitySeconds(windows, 3, speed, 130), 1.0 + 3.0);
    QCOMPARE(qualitySeconds(windows, 3, speed, 260), 8.0);
  }

  // --- Beside an open chat ----------------------------------------------------------------------

  void everyPresetIsMeasuredOnTheDocumentAndTheSampleIsStated() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QSignalSpy progress(&session->controller, &ChatController::qualityProgress);
    QSignalSpy checked(&session->controller, &ChatController::qualityChecked);
    session->controller.checkQuality();
    QVERIFY(session->controller.activity() == Activity::kCheckingQuality);
    QVERIFY(checked.wait(kChatTimeoutMs));
    QVERIFY(session->controller.activity() == Activity::kIdle);

    const auto result = checked[0][0].value<QualityCheckResult>();
    QCOMPARE(result.textName, QStringLiteral("sample-document.txt"));
    QVERIFY(result.textTokens > 1200);
    QCOMPARE(result.pieces.size(), std::size_t{1});
    QCOMPARE(result.pieces[0].tokens, result.textTokens);
    QCOMPARE(result.pieces[0].scoredTokens, result.scoredTokens);
    QVERIFY(result.scoredTokens >= 32);
    QCOMPARE(result.contextLength, std::int64_t{2048});
    QCOMPARE(result.exact.preset.id, QStringLiteral("exact"));
    QCOMPARE(result.exact.equalTopShare, 1.0);
    // Built-in presets but the exact one; the custom values are not in use.
    QCOMPARE(result.rows.size(), engine::builtInPresets().size() - 1);
    for (const QualityCheckRow& row : result.rows) {
      QVERIFY(row.preset.id != QString::fromUtf16(kCustomPresetId));
      QVERIFY2(row.packedTokens > 0, qPrintable(row.preset.name));
      QVERIFY2(row.meanKl > 0.0 && row.p99Kl > row.meanKl, qPrintable(row.preset.name));
      QVERIFY(row.cacheBytes < result.exact.cacheBytes);
      QVERIFY(std::abs(row.perplexity / result.exact.perplexity - 1.0) < 0.2);
    }
    QVERIFY(result.rows.back().meanKl > result.rows.front().meanKl);

    QVERIFY(!progress.isEmpty());
    const auto first = progress.front()[0].value<QualityCheckProgress>();
    const auto last = progress.back()[0].value<QualityCheckProgress>();
    QVERIFY(first.step == QualityCheckStep::kCountingTokens);
    QVERIFY(last.step == QualityCheckStep::kMeasuring);
    QCOMPARE(last.nPresets, 5);
    QCOMPARE(last.measuredTokens, last.totalTokens);
    QVERIFY(last.secondsLeft < 0.5);
  }

  void theChatsCacheIsNotTouched() {
    Message unchecked;
    {
      const auto session = startedSession(folder_->path());
      QVERIFY(session->attach(samplePath()));
      QVERIFY(session->ask(kQuestion1));
      QVERIFY(session->ask(kQuestion2));
      unchecked = session->lastMessage();
    }
    folder_ = std::make_unique<QTemporaryDir>();
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QVERIFY(session->ask(kQuestion1));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens > 1200, kChatTimeoutMs);
    const engine::MemoryReport before = session->controller.memory();
    QSignalSpy checked(&session->controller, &ChatController::qualityChecked);
    session->controller.checkQuality();
    QVERIFY(checked.wait(kChatTimeoutMs));
    QTRY_COMPARE(session->controller.memory().use.bytes, before.use.bytes);
    QCOMPARE(session->controller.memory().cachedTokens, before.cachedTokens);
    QCOMPARE(session->controller.memory().packedTokens, before.packedTokens);

    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, unchecked.text);
    QCOMPARE(session->lastMessage().tokens, unchecked.tokens);
    QCOMPARE(session->lastMessage().statistics.promptTokens, unchecked.statistics.promptTokens);
    QCOMPARE(session->lastMessage().statistics.reusedTokens, unchecked.statistics.reusedTokens);
  }

  void customValuesInUseAreMeasuredToo() {
    const auto session = startedSession(folder_->path());
    engine::KvCacheConfig cache = engine::presetById("quality").cache;
    cache.keyNbits = 2;
    cache.valueNbits = 2;
    cache.residualLength = 32;
    session->controller.applyCacheConfig(cache, 0);
    QVERIFY(session->attach(samplePath()));
    QSignalSpy checked(&session->controller, &ChatController::qualityChecked);
    session->controller.checkQuality();
    QVERIFY(checked.wait(kChatTimeoutMs));
    const auto result = checked[0][0].value<QualityCheckResult>();
    QCOMPARE(result.rows.back().preset.id, QString::fromUtf16(kCustomPresetId));
    QVERIFY(result.rows.back().preset.cache == cache);
    QVERIFY(result.rows.back().meanKl > result.rows[1].meanKl);
  }

  void aDocumentThatIsOnlyLookedAtCanBeChecked() {
    const auto session = startedSession(folder_->path());
    session->controller.openDocument(samplePath());
    QVERIFY(session->previews.wait(kChatTimeoutMs));
    QSignalSpy checked(&session->controller, &ChatController::qualityChecked);
    session->controller.checkQuality();
    QVERIFY(checked.wait(kChatTimeoutMs));
    QCOMPARE(checked[0][0].value<QualityCheckResult>().textName,
             QStringLiteral("sample-document.txt"));
    QVERIFY(session->controller.documents().empty());
  }

  void withoutTextOrWithTooLittleOneSentenceSaysSo() {
    const auto session = startedSession(folder_->path());
    QSignalSpy failed(&session->controller, &ChatController::qualityFailed);
    session->controller.checkQuality();
    QCOMPARE(failed.size(), 1);
    QVERIFY(failed[0][0].toString().contains(QStringLiteral("no text")));
    QVERIFY(session->attach(writeText(QStringLiteral("note.txt"), QStringLiteral("Five words."))));
    session->controller.checkQuality();
    QVERIFY(failed.wait(kChatTimeoutMs));
    QVERIFY2(failed[1][0].toString().startsWith(QStringLiteral("note.txt has too little text")),
             qPrintable(failed[1][0].toString()));
    QVERIFY(!failed[1][1].toString().isEmpty());
    QVERIFY(session->controller.activity() == Activity::kIdle);
    QVERIFY(session->errors.isEmpty());
  }

  void cancelTakesEffectWithinASecond() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QSignalSpy progress(&session->controller, &ChatController::qualityProgress);
    QSignalSpy failed(&session->controller, &ChatController::qualityFailed);
    QSignalSpy checked(&session->controller, &ChatController::qualityChecked);
    session->controller.checkQuality();
    QVERIFY(progress.wait(kChatTimeoutMs));
    QElapsedTimer timer;
    timer.start();
    session->controller.cancelQualityCheck();
    QVERIFY(failed.wait(kChatTimeoutMs));
    QVERIFY2(timer.elapsed() < 1000, qPrintable(QString::number(timer.elapsed())));
    QCOMPARE(failed[0][0].toString(), QStringLiteral("The check was stopped."));
    QVERIFY(checked.isEmpty());
    QVERIFY(session->controller.activity() == Activity::kIdle);
    // And another one can be made at once.
    session->controller.checkQuality();
    QVERIFY(checked.wait(kChatTimeoutMs));
  }

  void aQuestionGoesFirst() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QSignalSpy failed(&session->controller, &ChatController::qualityFailed);
    session->controller.checkQuality();
    QVERIFY(session->ask(kQuestion1));
    QCOMPARE(session->lastMessage().text, kAnswer1);
    QCOMPARE(failed.size(), 1);
    QVERIFY(failed[0][0].toString().contains(QStringLiteral("a question was asked")));
    QVERIFY(session->errors.isEmpty());
  }

  void whileAnAnswerIsWrittenACheckIsRefused() {
    const auto session = startedSession(folder_->path());
    QVERIFY(session->attach(samplePath()));
    QSignalSpy failed(&session->controller, &ChatController::qualityFailed);
    session->controller.send(kQuestion1);
    session->controller.checkQuality();
    QCOMPARE(failed.size(), 1);
    QVERIFY(failed[0][0].toString().contains(QStringLiteral("answer")));
    QVERIFY(session->finished.wait(kChatTimeoutMs));
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::QualityCheckTest)
#include "quality_check_test.moc"
