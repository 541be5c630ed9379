// A device that breaks while it works, on the emulated one: the engine starts it again, or goes on
// with the CPU, and nothing of the text is lost.

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <QTemporaryDir>
#include <QtTest>

#include "engine/cache/presets.h"
#include "engine/engine.h"
#include "tests/cuda_on_cpu/emulated_plugin.h"
#include "tests/engine/engine_harness.h"
#include "tests/support/paths.h"

using namespace longhand;
using namespace longhand::engine;

namespace {

constexpr std::int64_t kAnswerTokens = 6;

/// An engine on the emulated device, and what it told about restarts.
struct DeviceEngine {
  explicit DeviceEngine(const std::string& backend = "auto") {
    EngineOptions options;
    options.backend = backend;
    options.cudaPlugin = plugin.file();
    engine = tests::loadEngine(tests::resourcePath("longhand-demo"), cache(), options);
    engine->onDeviceRestart([this](const std::string& text) { sentences.push_back(text); });
    prompt = engine->tokenizer().encode(
        "The old mill was built in 1712. The keeper of the green ledger is Henry Moldak. Who is "
        "it that keeps the green ledger?");
  }
  /// Small groups, so that an answer also packs pages.
  static KvCacheConfig cache() {
    KvCacheConfig config = presetById("quality").cache;
    config.groupSize = 32;
    config.residualLength = 0;
    return config;
  }

  std::vector<std::int32_t> answer() { return tests::greedyTokens(*engine, prompt, kAnswerTokens); }
  void breakAtLaunch(int number) { plugin.failures().launch = number; }
  bool isOnDevice() const { return engine->backendDescription().starts_with("CPU emulation"); }
  QString sentence() const {
    return sentences.empty() ? QString() : QString::fromStdString(sentences.back());
  }

  cuda_on_cpu::EmulatedPlugin plugin{LONGHAND_EMULATED_PLUGIN};
  std::unique_ptr<Engine> engine;
  std::vector<std::int32_t> prompt;
  std::vector<std::string> sentences;
};

/// The error of `work`, or one with an empty message.
Error errorOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, ""};
}

}  // namespace

class DeviceFaultTest : public QObject {
  Q_OBJECT
 private slots:
  void initTestCase();
  void anAnswerGoesOnWhereverTheDeviceBreaks_data();
  void anAnswerGoesOnWhereverTheDeviceBreaks();
  void readingAheadGoesOn();
  void aDeviceThatStaysBrokenLeavesTheChatToTheCpu();
  void aDeviceThatIsGoneLeavesTheChatToTheCpu();
  void aDeviceThatBreaksTwiceInAnAnswerIsNotTriedAThirdTime();
  void aDeviceThatBreaksThreeTimesIsNotTrustedAnyMore();
  void whoWantsOnlyTheDeviceGetsAnErrorAndMayTryAgain();
  void convertingEndsWithAnEmptyCacheOfTheNewSettings();
  void savingSaysThatItFailedAndWritesNothing();
  void aModelThatIsGoneWithTheDeviceIsAnErrorThatNamesBoth();
  void cancellingDuringARestartLeavesAnEngineThatStartsWithTheNextCommand();
  void allMemoryGoesBack();

 private:
  std::vector<std::int32_t> expected_;
  int launchesOfPrefill_ = 0;
  int launchesOfAnswer_ = 0;
};

void DeviceFaultTest::initTestCase() {
  DeviceEngine on;
  const int before = on.plugin.counters().nLaunches;
  on.engine->prefill(on.prompt, {}, {});
  launchesOfPrefill_ = on.plugin.counters().nLaunches - before;
  on.engine->clear();
  const int between = on.plugin.counters().nLaunches;
  expected_ = on.answer();
  launchesOfAnswer_ = on.plugin.counters().nLaunches - between;
  QCOMPARE(std::ssize(expected_), std::ptrdiff_t{kAnswerTokens});
  QVERIFY(on.sentences.empty());
  QVERIFY(launchesOfPrefill_ > 10);
  QVERIFY(launchesOfAnswer_ > launchesOfPrefill_ + 20);
}

void DeviceFaultTest::anAnswerGoesOnWhereverTheDeviceBreaks_data() {
  QTest::addColumn<int>("launch");
  QTest::newRow("at its first kernel") << 1;
  QTest::newRow("in the middle of the prompt") << launchesOfPrefill_ / 2;
  QTest::newRow("at the last kernel of the prompt") << launchesOfPrefill_;
  QTest::newRow("behind the prompt") << launchesOfPrefill_ + 5;
  QTest::newRow("in the middle of the answer") << (launchesOfPrefill_ + launchesOfAnswer_) / 2;
  QTest::newRow("at its last kernel") << launchesOfAnswer_;
}

void DeviceFaultTest::anAnswerGoesOnWhereverTheDeviceBreaks() {
  QFETCH(int, launch);
  DeviceEngine on;
  const int resets = on.plugin.counters().nResets;
  on.breakAtLaunch(launch);
  QCOMPARE(on.answer(), expected_);
  QCOMPARE(std::ssize(on.sentences), std::ptrdiff_t{1});
  QCOMPARE(on.sentence(),
           QStringLiteral(
               "CPU emulation, CUDA, compute capability 8.6 has failed (The "
               "computation failed: an illegal memory access was encountered) and was started "
               "again; what had been read is read again."));
  QCOMPARE(on.plugin.counters().nResets.load(), resets + 1);
  QVERIFY(on.isOnDevice());
  QCOMPARE(on.answer(), expected_);  // and works on
  QCOMPARE(std::ssize(on.sentences), std::ptrdiff_t{1});
}

void DeviceFaultTest::readingAheadGoesOn() {
  DeviceEngine on;
  on.breakAtLaunch(launchesOfPrefill_ / 2);
  const PrefillResult result = on.engine->prefill(on.prompt, {}, {});
  QCOMPARE(result.computedTokens, std::ssize(on.prompt));
  QCOMPARE(std::ssize(on.engine->cachedTokens()), std::ssize(on.prompt));
  QCOMPARE(std::ssize(on.sentences), std::ptrdiff_t{1});
}

void DeviceFaultTest::aDeviceThatStaysBrokenLeavesTheChatToTheCpu() {
  DeviceEngine on;
  on.plugin.settings().staysBrokenAfterReset = true;
  on.breakAtLaunch(launchesOfPrefill_ + 5);
  QCOMPARE(on.answer(), expected_);
  QVERIFY(!on.isOnDevice());
  QVERIFY2(on.sentence().contains(QStringLiteral("does not start again (The NVIDIA graphics card "
                                                 "cannot be used: an illegal memory access")),
           qPrintable(on.sentence()));
  QVERIFY(on.sentence().endsWith(QStringLiteral(": the CPU goes on.")));
  QCOMPARE(QString::fromStdString(on.engine->whyNotDevice()), on.sentence());
}

void DeviceFaultTest::aDeviceThatIsGoneLeavesTheChatToTheCpu() {
  DeviceEngine on;
  on.breakAtLaunch(launchesOfPrefill_ + 5);
  on.plugin.settings().nDevices = 0;
  QCOMPARE(on.answer(), expected_);
  QVERIFY(!on.isOnDevice());
  QVERIFY2(on.sentence().contains(QStringLiteral("(There is no NVIDIA graphics card)")),
           qPrintable(on.sentence()));
}

void DeviceFaultTest::aDeviceThatBreaksTwiceInAnAnswerIsNotTriedAThirdTime() {
  DeviceEngine on;
  on.engine->onDeviceRestart([&](const std::string& text) {
    on.sentences.push_back(text);
    on.breakAtLaunch(3);  // soon again
  });
  on.breakAtLaunch(launchesOfPrefill_ / 2);
  QCOMPARE(on.answer(), expected_);
  QCOMPARE(std::ssize(on.sentences), std::ptrdiff_t{2});
  QVERIFY2(on.sentence().endsWith(QStringLiteral(" again: the CPU goes on.")),
           qPrintable(on.sentence()));
  QVERIFY(!on.isOnDevice());
}

void DeviceFaultTest::aDeviceThatBreaksThreeTimesIsNotTrustedAnyMore() {
  DeviceEngine on;
  for (int i = 1; i <= 3; ++i) {
    on.engine->clear();
    on.breakAtLaunch(2);
    QCOMPARE(on.answer(), expected_);
    QCOMPARE(on.isOnDevice(), i < 3);
  }
  QCOMPARE(std::ssize(on.sentences), std::ptrdiff_t{3});
}

void DeviceFaultTest::whoWantsOnlyTheDeviceGetsAnErrorAndMayTryAgain() {
  DeviceEngine on("cuda");
  on.plugin.settings().nDevices = 0;
  on.breakAtLaunch(2);
  const Error error = errorOf([&] { on.answer(); });
  QCOMPARE(error.code(), ErrorCode::kDevice);
  QVERIFY2(error.line().ends_with("There is no NVIDIA graphics card. Use the backend auto or cpu."),
           error.line().c_str());
  QCOMPARE(on.engine->memory().device.totalBytes, std::uint64_t{0});  // there is nothing now

  on.plugin.settings().nDevices = 1;
  QCOMPARE(on.answer(), expected_);
  QVERIFY(on.isOnDevice());
}

void DeviceFaultTest::convertingEndsWithAnEmptyCacheOfTheNewSettings() {
  DeviceEngine on;
  on.engine->prefill(on.prompt, {}, {});
  KvCacheConfig fewer = DeviceEngine::cache();
  fewer.valueNbits = 2;
  on.breakAtLaunch(1);
  const CacheConversion done = on.engine->convertCache(fewer, 0, {}, {});
  QVERIFY(!done.isInPlace);
  QVERIFY(on.engine->cacheConfig() == fewer);
  QVERIFY(on.engine->cachedTokens().empty());
  QCOMPARE(std::ssize(on.sentences), std::ptrdiff_t{1});
  QCOMPARE(std::ssize(on.answer()), std::ptrdiff_t{kAnswerTokens});
}

void DeviceFaultTest::savingSaysThatItFailedAndWritesNothing() {
  const QTemporaryDir folder;
  const std::filesystem::path file = folder.filePath(QStringLiteral("chat.kv")).toStdString();
  DeviceEngine on;
  on.engine->prefill(on.prompt, {}, {});
  on.plugin.failures().copy = 3;
  const Error error = errorOf([&] { on.engine->saveSession(file, {}, {}); });
  QCOMPARE(error.code(), ErrorCode::kDevice);
  QVERIFY(!std::filesystem::exists(file));
  QCOMPARE(std::ssize(on.sentences), std::ptrdiff_t{1});
  QCOMPARE(on.answer(), expected_);
  QVERIFY(on.engine->saveSession(file, {}, {}) > 0);
}

void DeviceFaultTest::aModelThatIsGoneWithTheDeviceIsAnErrorThatNamesBoth() {
  const QTemporaryDir folder;
  const std::filesystem::path model = folder.filePath(QStringLiteral("model")).toStdString();
  std::filesystem::copy(tests::resourcePath("longhand-demo"), model);
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  EngineOptions options;
  options.backend = "auto";
  options.cudaPlugin = plugin.file();
  const auto engine = tests::loadEngine(model, DeviceEngine::cache(), options);
  const auto prompt = engine->tokenizer().encode("Who keeps the ledger?");
  const auto right = tests::greedyTokens(*engine, prompt, kAnswerTokens);

  std::filesystem::rename(model / "config.json", model / "config.away");
  engine->clear();
  plugin.failures().launch = 1;
  const Error error = errorOf([&] { tests::greedyTokens(*engine, prompt, kAnswerTokens); });
  QCOMPARE(error.code(), ErrorCode::kFileNotFound);
  QVERIFY2(error.message().find("an illegal memory access") != std::string::npos,
           error.message().c_str());
  QVERIFY2(error.message().find("config.json") != std::string::npos, error.message().c_str());

  std::filesystem::rename(model / "config.away", model / "config.json");
  QCOMPARE(tests::greedyTokens(*engine, prompt, kAnswerTokens), right);
}

void DeviceFaultTest::cancellingDuringARestartLeavesAnEngineThatStartsWithTheNextCommand() {
  DeviceEngine on;
  std::stop_source stop;
  const int resets = on.plugin.counters().nResets;
  // The device is reset first; then the weights are loaded again, which takes some tenths of a
  // second.
  const std::jthread canceller([&](const std::stop_token& ended) {
    while (on.plugin.counters().nResets == resets && !ended.stop_requested()) QTest::qSleep(1);
    stop.request_stop();
  });
  on.breakAtLaunch(launchesOfPrefill_ / 2);
  const Error error = errorOf([&] { on.engine->prefill(on.prompt, {}, stop.get_token()); });
  QCOMPARE(error.code(), ErrorCode::kCancelled);
  QCOMPARE(on.sentences.size(), std::size_t{1});  // what was read is lost
  QVERIFY(!on.engine->isReady());
  QCOMPARE(on.engine->memory().device.totalBytes, std::uint64_t{0});
  QCOMPARE(on.answer(), expected_);
  QVERIFY(on.isOnDevice());
}

void DeviceFaultTest::allMemoryGoesBack() {
  DeviceEngine on;
  on.breakAtLaunch(launchesOfPrefill_ + 5);
  QCOMPARE(on.answer(), expected_);
  on.engine.reset();
  QCOMPARE(on.plugin.counters().deviceBytes.load(), std::size_t{0});
  QCOMPARE(on.plugin.counters().pinnedBytes.load(), std::size_t{0});
  QCOMPARE(on.plugin.counters().nStreamsAndEvents.load(), 0);
}

QTEST_GUILESS_MAIN(DeviceFaultTest)
#include "device_fault_test.moc"
