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

/// What came back from commands with one kind of result.
template <typename Value>
struct Heard {
  std::vector<Value> results;
  std::vector<ErrorText> failures;

  Reply<Value> reply() {
    return [this](const Outcome<Value>& outcome) {
      if (outcome) {
        results.push_back(*outcome);
      } else {
        failures.push_back(outcome.error());
      }
    };
  }
  bool waitForResult() const {
    return QTest::qWaitFor([this] { return !results.empty(); }, kTimeoutMs);
  }
  bool waitForFailure(std::size_t count = 1) const {
    return QTest::qWaitFor([this, count] { return failures.size() >= count; }, kTimeoutMs);
  }
};

template <typename Value>
struct Pieces {
  std::vector<Value> all;

  Progress<const Value&> listener() {
    return [this](const Value& value) { all.push_back(value); };
  }
  bool wait() const {
    return QTest::qWaitFor([this] { return !all.empty(); }, kTimeoutMs);
  }
};

struct Bytes {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};

EngineWorker::ByteProgress into(std::vector<Bytes>& all) {
  return [&all](std::uint64_t done, std::uint64_t total) { all.push_back({done, total}); };
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
    Heard<EncodedPrompt> encoded;
    const Job job = worker.encodePrompt(question(text), encoded.reply());
    if (!encoded.waitForResult()) return {};
    return encoded.results[0].tokens;
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
    std::vector<int> order;
    std::vector<ErrorText> failures;
    const auto reply = [&](int number) {
      return [&, number](const auto& outcome) {
        order.push_back(number);
        if (!outcome) failures.push_back(outcome.error());
      };
    };
    const std::vector<int> asked = {0, 1, 2, 3, 4};
    const Job count = worker.countTokens(QStringLiteral("text"), {}, reply(0));
    const Job prompt = worker.encodePrompt(question("text"), reply(1));
    const Job prefill = worker.prefill({1, 2}, {}, reply(2));
    const Job generate = worker.generate({1, 2}, {}, {}, {}, reply(3));
    const Job configure = worker.configureCache({}, 100, reply(4));
    QTRY_COMPARE_WITH_TIMEOUT(order.size(), asked.size(), kTimeoutMs);
    QCOMPARE(order, asked);
    QCOMPARE(failures.size(), asked.size());
    for (const ErrorText& error : failures) {
      QVERIFY(error.code == ErrorCode::kInvalidArgument);
      QVERIFY(!error.hint.isEmpty());
    }
  }

  void aModelLoadsWithProgressAndItsMemoryIsReported() {
    EngineWorker worker;
    std::vector<Bytes> progressed;
    Heard<ModelInfo> loaded;
    QSignalSpy memory(&worker, &EngineWorker::memoryReported);
    const Job load =
        worker.loadModel(tests::demoFolder(), options(), into(progressed), loaded.reply());
    QVERIFY(load.isUnderWay());
    QVERIFY(loaded.waitForResult());
    QVERIFY(!load.isUnderWay());
    const ModelInfo model = loaded.results[0];
    QVERIFY(model.isDemo);
    QCOMPARE(model.config.trainedLength, std::int64_t{2048});
    QCOMPARE(model.contextLength, std::int64_t{2048});
    QVERIFY(model.tokenizerFingerprint != 0);
    QVERIFY(!progressed.empty());
    QCOMPARE(progressed.back().done, progressed.back().total);
    QTRY_VERIFY_WITH_TIMEOUT(!memory.isEmpty(), kTimeoutMs);
    const auto report = memory.front().front().value<MemoryNews>().report;
    QVERIFY(report.use[engine::MemoryCategory::kWeights] >= model.weightBytes);
    QVERIFY(report.device.totalBytes > report.device.freeBytes);
  }

  void aFolderThatIsNoModelFailsAndTheModelBeforeStays() {
    EngineWorker worker;
    Heard<ModelInfo> loaded;
    Heard<std::int64_t> counted;
    const Job load = worker.loadModel(tests::demoFolder(), options(), {}, loaded.reply());
    const Job bad = worker.loadModel(folder_.path(), options(), {}, loaded.reply());
    const Job count = worker.countTokens(QStringLiteral("The old mill."), {}, counted.reply());
    QVERIFY(counted.waitForResult());
    QCOMPARE(loaded.results.size(), std::size_t{1});
    QCOMPARE(loaded.failures.size(), std::size_t{1});
    QVERIFY(loaded.failures[0].message.contains(QStringLiteral("config.json")));
    QVERIFY(counted.results[0] > 2);
  }

  void countingALongTextTellsItsProgressAndStopsAtOnce() {
    EngineWorker worker;
    std::vector<Bytes> progressed;
    Heard<std::int64_t> counted;
    Heard<EncodedPrompt> encoded;
    const Job load = worker.loadModel(tests::demoFolder(), options(), {}, {});
    QTRY_VERIFY_WITH_TIMEOUT(!load.isUnderWay(), kTimeoutMs);
    const QString text = QStringLiteral("The old mill was built in 1712. ").repeated(1'000'000);
    Job count = worker.countTokens(text, into(progressed), counted.reply());
    Job prompt = worker.encodePrompt(question(text.toStdString()), encoded.reply());
    QTRY_VERIFY_WITH_TIMEOUT(!progressed.empty(), kTimeoutMs);
    QVERIFY(progressed[0].done < progressed[0].total);
    QCOMPARE(progressed[0].total, std::uint64_t{32'000'000});
    QElapsedTimer timer;
    timer.start();
    count.cancel();
    QVERIFY(counted.waitForFailure());
    QTest::qWait(200);  // the prompt is being encoded
    prompt.cancel();
    QVERIFY(encoded.waitForFailure());
    QVERIFY(counted.failures[0].code == ErrorCode::kCancelled);
    QVERIFY(encoded.failures[0].code == ErrorCode::kCancelled);
    QVERIFY(counted.results.empty() && encoded.results.empty());
    QVERIFY2(timer.elapsed() < 5000, qPrintable(QString::number(timer.elapsed())));
  }

  void anAnswerStreamsInPiecesThatMakeTheWhole() {
    EngineWorker worker;
    Pieces<AnswerPiece> grew;
    Pieces<engine::PrefillProgress> prefilled;
    Heard<engine::GenerateResult> finished;
    const Job load = worker.loadModel(tests::demoFolder(), options(), {}, {});
    const std::vector<std::int32_t> prompt = encode(worker, "Hello!");
    QVERIFY(!prompt.empty());
    engine::GenerateOptions greedy;
    greedy.sampler.temperature = 0.0;
    const Job answer =
        worker.generate(prompt, greedy, prefilled.listener(), grew.listener(), finished.reply());
    QVERIFY(finished.waitForResult());
    const engine::GenerateResult result = finished.results[0];
    QVERIFY(result.stopReason == engine::StopReason::kEndOfText);
    QCOMPARE(result.promptTokens, static_cast<std::int64_t>(prompt.size()));
    QString text;
    for (const AnswerPiece& piece : grew.all) text += piece.text;
    QCOMPARE(text, QString::fromStdString(result.text));
    QVERIFY(!text.trimmed().isEmpty());
    QVERIFY(!prefilled.all.empty());
  }

  void aLongAnswerComesInAboutThirtyEventsASecondAndStopsAtOnce() {
    EngineWorker worker;
    Pieces<AnswerPiece> grew;
    Heard<engine::GenerateResult> finished;
    QSignalSpy memory(&worker, &EngineWorker::memoryReported);
    engine::EngineOptions large = options();
    large.contextLength = 100000;  // not to come to its end within the test
    const Job load = worker.loadModel(plainModel_, large, {}, {});
    const std::vector<std::int32_t> prompt = encode(worker, "Hello!");
    memory.clear();
    Job answer = worker.generate(prompt, endless(), {}, grew.listener(), finished.reply());
    QVERIFY(grew.wait());
    QElapsedTimer timer;
    timer.start();
    grew.all.clear();
    QTest::qWait(1000);
    const double perSecond =
        1000.0 * static_cast<double>(grew.all.size()) / static_cast<double>(timer.elapsed());
    QVERIFY2(perSecond <= 40.0 && perSecond >= 3.0, qPrintable(QString::number(perSecond)));
    QVERIFY2(memory.size() >= 2 && memory.size() <= 10, qPrintable(QString::number(memory.size())));
    QVERIFY(finished.results.empty());
    timer.restart();
    answer.cancel();
    QVERIFY(finished.waitForResult());
    QVERIFY2(timer.elapsed() < 2000, qPrintable(QString::number(timer.elapsed())));
    const engine::GenerateResult result = finished.results[0];
    QVERIFY(result.stopReason == engine::StopReason::kCancelled);
    QVERIFY(!result.tokens.empty());
  }

  void aWaitingCommandCanBeCancelledToo() {
    EngineWorker worker;
    Pieces<AnswerPiece> grew;
    Heard<engine::GenerateResult> first;
    Heard<engine::GenerateResult> second;
    const Job load = worker.loadModel(plainModel_, options(), {}, {});
    const std::vector<std::int32_t> prompt = encode(worker, "Hello!");
    Job running = worker.generate(prompt, endless(), {}, grew.listener(), first.reply());
    QVERIFY(grew.wait());
    Job waiting = worker.generate(prompt, endless(), {}, {}, second.reply());
    waiting.cancel();
    running.cancel();
    QVERIFY(second.waitForFailure());
    QCOMPARE(second.failures.size(), std::size_t{1});
    QVERIFY(second.failures[0].code == ErrorCode::kCancelled);
    QCOMPARE(first.failures.size(), std::size_t{0});
    QCOMPARE(first.results.size(), std::size_t{1});
    QCOMPARE(second.results.size(), std::size_t{0});
  }

  void aDroppedJobIsCancelledAndNothingMoreIsHeardOfIt() {
    EngineWorker worker;
    Pieces<AnswerPiece> grew;
    Heard<engine::GenerateResult> finished;
    const Job load = worker.loadModel(plainModel_, options(), {}, {});
    const std::vector<std::int32_t> prompt = encode(worker, "Hello!");
    Job answer = worker.generate(prompt, endless(), {}, grew.listener(), finished.reply());
    QVERIFY(grew.wait());
    answer = Job();
    grew.all.clear();
    QVERIFY(!encode(worker, "Next, please!").empty());  // else it would wait for its end
    QVERIFY(grew.all.empty());
    QVERIFY(finished.results.empty() && finished.failures.empty());
  }

  void aDetachedJobIsCarriedOutUnheard() {
    EngineWorker worker;
    Heard<ModelInfo> loaded;
    worker.loadModel(tests::demoFolder(), options(), {}, loaded.reply()).detach();
    QVERIFY(!encode(worker, "Hello!").empty());
    QVERIFY(loaded.results.empty() && loaded.failures.empty());
  }

  void aJobMayOutliveTheWorker() {
    auto worker = std::make_unique<EngineWorker>();
    Job load = worker->loadModel(tests::demoFolder(), options(), {}, {});
    worker.reset();
    QVERIFY(!load.isUnderWay());
    load.cancel();
  }

  void whatWasReadAheadIsNotComputedAgain() {
    EngineWorker worker;
    Heard<PrefillOutcome> finished;
    Heard<engine::GenerateResult> answered;
    const Job load = worker.loadModel(tests::demoFolder(), options(), {}, {});
    const std::vector<std::int32_t> prompt = encode(worker, "The old mill was built in 1712.");
    const Job reading = worker.prefill(prompt, {}, finished.reply());
    QVERIFY(finished.waitForResult());
    QVERIFY(!finished.results[0].isCancelled);
    engine::GenerateOptions two;
    two.maxTokens = 2;
    const Job answer = worker.generate(prompt, two, {}, {}, answered.reply());
    QVERIFY(answered.waitForResult());
    const engine::GenerateResult result = answered.results[0];
    QVERIFY(result.reusedTokens >= static_cast<std::int64_t>(prompt.size()) - 1);
  }

  void aPromptThatDoesNotFitIsAnErrorAndTheWorkerGoesOn() {
    EngineWorker worker;
    Heard<ConfiguredCache> configured;
    Heard<engine::GenerateResult> answered;
    const Job load = worker.loadModel(tests::demoFolder(), options(), {}, {});
    const Job configure =
        worker.configureCache(engine::presetById("memory-limit").cache, 64, configured.reply());
    QVERIFY(configured.waitForResult());
    QCOMPARE(configured.results[0].contextLength, std::int64_t{64});
    const Job answer =
        worker.generate(std::vector<std::int32_t>(200, 5), {}, {}, {}, answered.reply());
    QVERIFY(answered.waitForFailure());
    QVERIFY(answered.failures[0].code == ErrorCode::kContextFull);
    engine::KvCacheConfig bad;
    bad.keyNbits = 5;
    const Job refused = worker.configureCache(bad, 64, configured.reply());
    QVERIFY(configured.waitForFailure());
    QVERIFY(configured.failures[0].code == ErrorCode::kInvalidArgument);
    QVERIFY(!encode(worker, "Still here?").empty());
  }

  void destructionInTheMiddleOfAnAnswerIsQuick() {
    auto worker = std::make_unique<EngineWorker>();
    Pieces<AnswerPiece> grew;
    const Job load = worker->loadModel(plainModel_, options(), {}, {});
    const std::vector<std::int32_t> prompt = encode(*worker, "Hello!");
    const Job running = worker->generate(prompt, endless(), {}, grew.listener(), {});
    const Job waiting = worker->generate(prompt, endless(), {}, {}, {});  // never runs
    QVERIFY(grew.wait());
    QElapsedTimer timer;
    timer.start();
    worker.reset();
    QVERIFY2(timer.elapsed() < 2000, qPrintable(QString::number(timer.elapsed())));
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::EngineWorkerTest)
#include "engine_worker_test.moc"
