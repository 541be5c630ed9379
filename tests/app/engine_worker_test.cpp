#include "app/engine_worker.h"

#include <QElapsedTimer>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QThread>
#include <QtTest>

#include "engine/cache/presets.h"
#include "tests/app/plain_model.h"

namespace longhand::app {

using engine::ErrorCode;

namespace {

constexpr int kTimeoutMs = 60000;  // sanitizers are slow

template <typename Event>
Event eventOf(const QSignalSpy& spy, qsizetype index) {
  return spy.at(index).front().template value<Event>();
}

ChatPrompt question(const std::string& text) {
  ChatPrompt prompt;
  prompt.turns.push_back({text, std::nullopt, {}});
  return prompt;
}

}  // namespace

class EngineWorkerTest : public QObject {
  Q_OBJECT

 private:
  QTemporaryDir folder_;
  QString plainModel_;

  static engine::EngineOptions options() {
    engine::EngineOptions options;
    options.cache = engine::presetById("quality").cache;
    return options;
  }

  /// Ids of a prompt, by the worker itself.
  static std::vector<std::int32_t> encode(EngineWorker& worker, const std::string& text) {
    QSignalSpy encoded(&worker, &EngineWorker::promptEncoded);
    worker.encodePrompt(question(text));
    if (!encoded.wait(kTimeoutMs)) return {};
    return eventOf<PromptEncodedEvent>(encoded, 0).tokens;
  }

  /// Sampled so wildly that it does not come to an end by itself.
  static engine::GenerateOptions endless() {
    engine::GenerateOptions options;
    options.sampler.temperature = 5.0;
    options.sampler.topK = 0;
    options.sampler.topP = 1.0;
    options.ignoresEndOfText = true;  // drawn once in 1,536 tokens: a fast machine meets it
    return options;
  }

 private slots:
  void initTestCase() { plainModel_ = tests::makePlainModel(folder_.path()); }

  void withoutAModelEveryCommandFailsWithAReason() {
    EngineWorker worker;
    QSignalSpy failed(&worker, &EngineWorker::commandFailed);
    const std::vector<CommandId> ids = {
        worker.countTokens(QStringLiteral("text")), worker.encodePrompt(question("text")),
        worker.prefill({1, 2}), worker.generate({1, 2}, {}), worker.configureCache({}, 100)};
    QTRY_COMPARE_WITH_TIMEOUT(failed.size(), static_cast<qsizetype>(ids.size()), kTimeoutMs);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto event = eventOf<CommandFailedEvent>(failed, static_cast<qsizetype>(i));
      QCOMPARE(event.command, ids[i]);
      QVERIFY(event.error.code == ErrorCode::kInvalidArgument);
      QVERIFY(!event.error.hint.isEmpty());
    }
  }

  void aModelLoadsWithProgressAndItsMemoryIsReported() {
    EngineWorker worker;
    QSignalSpy progressed(&worker, &EngineWorker::modelLoadProgressed);
    QSignalSpy loaded(&worker, &EngineWorker::modelLoaded);
    QSignalSpy memory(&worker, &EngineWorker::memoryReported);
    const CommandId id = worker.loadModel(tests::demoFolder(), options());
    QVERIFY(loaded.wait(kTimeoutMs));
    const auto event = eventOf<ModelLoadedEvent>(loaded, 0);
    QCOMPARE(event.command, id);
    QVERIFY(event.model.isDemo);
    QCOMPARE(event.model.config.trainedLength, std::int64_t{2048});
    QCOMPARE(event.model.contextLength, std::int64_t{2048});
    QVERIFY(event.model.tokenizerFingerprint != 0);
    QVERIFY(!progressed.isEmpty());
    const auto last = eventOf<LoadProgressEvent>(progressed, progressed.size() - 1);
    QCOMPARE(last.doneBytes, last.totalBytes);
    QTRY_VERIFY_WITH_TIMEOUT(!memory.isEmpty(), kTimeoutMs);
    const auto report = eventOf<MemoryEvent>(memory, 0).report;
    QVERIFY(report.use[engine::MemoryCategory::kWeights] >= event.model.weightBytes);
    QVERIFY(report.device.totalBytes > report.device.freeBytes);
  }

  void aFolderThatIsNoModelFailsAndTheModelBeforeStays() {
    EngineWorker worker;
    QSignalSpy loaded(&worker, &EngineWorker::modelLoaded);
    QSignalSpy failed(&worker, &EngineWorker::commandFailed);
    QSignalSpy counted(&worker, &EngineWorker::tokensCounted);
    worker.loadModel(tests::demoFolder(), options());
    const CommandId bad = worker.loadModel(folder_.path(), options());
    const CommandId count = worker.countTokens(QStringLiteral("The old mill."));
    QVERIFY(counted.wait(kTimeoutMs));
    QCOMPARE(failed.size(), 1);
    QCOMPARE(eventOf<CommandFailedEvent>(failed, 0).command, bad);
    QVERIFY(eventOf<CommandFailedEvent>(failed, 0).error.message.contains(
        QStringLiteral("config.json")));
    QCOMPARE(eventOf<TokensCountedEvent>(counted, 0).command, count);
    QVERIFY(eventOf<TokensCountedEvent>(counted, 0).tokens > 2);
  }

  void countingALongTextTellsItsProgressAndStopsAtOnce() {
    EngineWorker worker;
    QSignalSpy loaded(&worker, &EngineWorker::modelLoaded);
    QSignalSpy progressed(&worker, &EngineWorker::tokenCountProgressed);
    QSignalSpy counted(&worker, &EngineWorker::tokensCounted);
    QSignalSpy encoded(&worker, &EngineWorker::promptEncoded);
    QSignalSpy failed(&worker, &EngineWorker::commandFailed);
    worker.loadModel(tests::demoFolder(), options());
    QVERIFY(loaded.wait(kTimeoutMs));
    const QString text = QStringLiteral("The old mill was built in 1712. ").repeated(1'000'000);
    const CommandId count = worker.countTokens(text);
    const CommandId prompt = worker.encodePrompt(question(text.toStdString()));
    QVERIFY(progressed.wait(kTimeoutMs));
    const auto progress = eventOf<TokenCountProgressEvent>(progressed, 0);
    QCOMPARE(progress.command, count);
    QVERIFY(progress.doneBytes < progress.totalBytes);
    QCOMPARE(progress.totalBytes, std::uint64_t{32'000'000});
    QElapsedTimer timer;
    timer.start();
    worker.cancel(count);
    QTRY_COMPARE_WITH_TIMEOUT(failed.size(), 1, kTimeoutMs);
    QTest::qWait(200);  // the prompt is being encoded
    worker.cancel(prompt);
    QTRY_COMPARE_WITH_TIMEOUT(failed.size(), 2, kTimeoutMs);
    for (const QList<QVariant>& failure : failed) {
      QVERIFY(failure.front().value<CommandFailedEvent>().error.code == ErrorCode::kCancelled);
    }
    QVERIFY(counted.isEmpty() && encoded.isEmpty());
    QVERIFY2(timer.elapsed() < 5000, qPrintable(QString::number(timer.elapsed())));
  }

  void anAnswerStreamsInPiecesThatMakeTheWhole() {
    EngineWorker worker;
    QSignalSpy grew(&worker, &EngineWorker::answerGrew);
    QSignalSpy finished(&worker, &EngineWorker::answerFinished);
    QSignalSpy prefilled(&worker, &EngineWorker::prefillProgressed);
    worker.loadModel(tests::demoFolder(), options());
    const std::vector<std::int32_t> prompt = encode(worker, "Hello!");
    QVERIFY(!prompt.empty());
    engine::GenerateOptions greedy;
    greedy.sampler.temperature = 0.0;
    const CommandId id = worker.generate(prompt, greedy);
    QVERIFY(finished.wait(kTimeoutMs));
    const auto event = eventOf<AnswerFinishedEvent>(finished, 0);
    QCOMPARE(event.command, id);
    QVERIFY(event.result.stopReason == engine::StopReason::kEndOfText);
    QCOMPARE(event.result.promptTokens, static_cast<std::int64_t>(prompt.size()));
    QString text;
    for (qsizetype i = 0; i < grew.size(); ++i) text += eventOf<AnswerGrewEvent>(grew, i).text;
    QCOMPARE(text, QString::fromStdString(event.result.text));
    QVERIFY(!text.trimmed().isEmpty());
    QVERIFY(!prefilled.isEmpty());
  }

  void aLongAnswerComesInAboutThirtyEventsASecondAndStopsAtOnce() {
    EngineWorker worker;
    QSignalSpy grew(&worker, &EngineWorker::answerGrew);
    QSignalSpy finished(&worker, &EngineWorker::answerFinished);
    QSignalSpy memory(&worker, &EngineWorker::memoryReported);
    engine::EngineOptions large = options();
    large.contextLength = 100000;  // not to come to its end within the test
    worker.loadModel(plainModel_, large);
    const std::vector<std::int32_t> prompt = encode(worker, "Hello!");
    memory.clear();
    const CommandId id = worker.generate(prompt, endless());
    QVERIFY(grew.wait(kTimeoutMs));
    QElapsedTimer timer;
    timer.start();
    grew.clear();
    QTest::qWait(1000);
    const double perSecond =
        1000.0 * static_cast<double>(grew.size()) / static_cast<double>(timer.elapsed());
    QVERIFY2(perSecond <= 40.0 && perSecond >= 3.0, qPrintable(QString::number(perSecond)));
    QVERIFY2(memory.size() >= 2 && memory.size() <= 10, qPrintable(QString::number(memory.size())));
    QVERIFY(finished.isEmpty());
    timer.restart();
    worker.cancel(id);
    QVERIFY(finished.wait(kTimeoutMs));
    QVERIFY2(timer.elapsed() < 2000, qPrintable(QString::number(timer.elapsed())));
    const auto event = eventOf<AnswerFinishedEvent>(finished, 0);
    QVERIFY(event.result.stopReason == engine::StopReason::kCancelled);
    QVERIFY(!event.result.tokens.empty());
  }

  void aWaitingCommandCanBeCancelledToo() {
    EngineWorker worker;
    QSignalSpy failed(&worker, &EngineWorker::commandFailed);
    QSignalSpy finished(&worker, &EngineWorker::answerFinished);
    QSignalSpy grew(&worker, &EngineWorker::answerGrew);
    worker.loadModel(plainModel_, options());
    const std::vector<std::int32_t> prompt = encode(worker, "Hello!");
    const CommandId first = worker.generate(prompt, endless());
    QVERIFY(grew.wait(kTimeoutMs));
    const CommandId second = worker.generate(prompt, endless());
    worker.cancel(second);
    worker.cancel(first);
    QVERIFY(failed.wait(kTimeoutMs));
    QCOMPARE(failed.size(), 1);
    QCOMPARE(eventOf<CommandFailedEvent>(failed, 0).command, second);
    QVERIFY(eventOf<CommandFailedEvent>(failed, 0).error.code == ErrorCode::kCancelled);
    QCOMPARE(finished.size(), 1);
    QCOMPARE(eventOf<AnswerFinishedEvent>(finished, 0).command, first);
  }

  void whatWasReadAheadIsNotComputedAgain() {
    EngineWorker worker;
    QSignalSpy finished(&worker, &EngineWorker::prefillFinished);
    QSignalSpy answered(&worker, &EngineWorker::answerFinished);
    worker.loadModel(tests::demoFolder(), options());
    const std::vector<std::int32_t> prompt = encode(worker, "The old mill was built in 1712.");
    worker.prefill(prompt);
    QVERIFY(finished.wait(kTimeoutMs));
    QVERIFY(!eventOf<PrefillFinishedEvent>(finished, 0).cancelled);
    engine::GenerateOptions two;
    two.maxTokens = 2;
    worker.generate(prompt, two);
    QVERIFY(answered.wait(kTimeoutMs));
    const auto result = eventOf<AnswerFinishedEvent>(answered, 0).result;
    QVERIFY(result.reusedTokens >= static_cast<std::int64_t>(prompt.size()) - 1);
  }

  void aPromptThatDoesNotFitIsAnErrorAndTheWorkerGoesOn() {
    EngineWorker worker;
    QSignalSpy failed(&worker, &EngineWorker::commandFailed);
    QSignalSpy configured(&worker, &EngineWorker::cacheConfigured);
    worker.loadModel(tests::demoFolder(), options());
    worker.configureCache(engine::presetById("memory-limit").cache, 64);
    QVERIFY(configured.wait(kTimeoutMs));
    QCOMPARE(eventOf<CacheConfiguredEvent>(configured, 0).contextLength, std::int64_t{64});
    worker.generate(std::vector<std::int32_t>(200, 5), {});
    QVERIFY(failed.wait(kTimeoutMs));
    QVERIFY(eventOf<CommandFailedEvent>(failed, 0).error.code == ErrorCode::kContextFull);
    engine::KvCacheConfig bad;
    bad.keyNbits = 5;
    worker.configureCache(bad, 64);
    QVERIFY(failed.wait(kTimeoutMs));
    QVERIFY(eventOf<CommandFailedEvent>(failed, 1).error.code == ErrorCode::kInvalidArgument);
    QVERIFY(!encode(worker, "Still here?").empty());
  }

  void destructionInTheMiddleOfAnAnswerIsQuick() {
    auto worker = std::make_unique<EngineWorker>();
    QSignalSpy grew(worker.get(), &EngineWorker::answerGrew);
    worker->loadModel(plainModel_, options());
    const std::vector<std::int32_t> prompt = encode(*worker, "Hello!");
    worker->generate(prompt, endless());
    worker->generate(prompt, endless());  // waits, and never runs
    QVERIFY(grew.wait(kTimeoutMs));
    QElapsedTimer timer;
    timer.start();
    worker.reset();
    QVERIFY2(timer.elapsed() < 2000, qPrintable(QString::number(timer.elapsed())));
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::EngineWorkerTest)
#include "engine_worker_test.moc"
