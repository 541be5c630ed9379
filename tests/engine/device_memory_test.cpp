// Memory of the CUDA backend, on the emulated device: what is taken and when, that all of it goes
// back, and that the old state survives wherever there is none left.

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include <QJsonDocument>
#include <QJsonObject>
#include <QProcess>
#include <QtTest>

#include "engine/backend_factory.h"
#include "engine/cache/kv_arena.h"
#include "engine/cache/presets.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "kernels/cuda/device/own_memory.h"
#include "kernels/reference/reference_backend.h"
#include "tests/cuda_on_cpu/emulated_plugin.h"
#include "tests/engine/device_like_backend.h"
#include "tests/engine/engine_harness.h"
#include "tests/support/paths.h"

using namespace longhand;
using namespace longhand::engine;

namespace {

/// Of 160 tokens, some are packed.
KvCacheConfig smallPages() {
  KvCacheConfig config = presetById("quality").cache;
  config.groupSize = 32;
  config.residualLength = 0;
  return config;
}

EngineOptions optionsWith(const cuda_on_cpu::EmulatedPlugin& plugin) {
  EngineOptions options;
  options.backend = "cuda";
  options.cudaPlugin = plugin.file();
  options.contextLength = 256;
  return options;
}

std::unique_ptr<Engine> load(const cuda_on_cpu::EmulatedPlugin& plugin) {
  return tests::loadEngine(tests::resourcePath("longhand-demo"), smallPages(), optionsWith(plugin));
}

std::vector<std::int32_t> promptOf(const Engine& engine) {
  return engine.tokenizer().encode(
      "The old mill was built in 1712. The keeper of the green ledger is Henry Moldak. Who is it "
      "that keeps the green ledger?");
}

/// Runs `work` until no allocation fails: first with the first of its allocations failing, then the
/// second, and so on. `check` looks at what each failure has left. Returns how many there were.
int failEachAllocation(const cuda_on_cpu::EmulatedPlugin& plugin, const std::function<void()>& work,
                       const std::function<void(const Error&)>& check) {
  for (int number = 1;; ++number) {
    plugin.failures().allocation = number;
    try {
      work();
      const bool hasFailed = plugin.failures().allocation.exchange(0) == 0;
      if (!hasFailed) return number - 1;  // else it went on without, as it may with pinned memory
    } catch (const Error& error) {
      plugin.failures().allocation = 0;
      check(error);
    }
  }
}

bool isClear(const Error& error) {
  return error.code() == ErrorCode::kOutOfMemory && error.message().ends_with('.') &&
         error.message().find(" are needed and ") != std::string::npos && !error.hint().empty();
}

/// Gives out addresses only, and adds up what a device would really take.
class RoundingBackend final : public DeviceLikeBackend {
 public:
  using DeviceLikeBackend::DeviceLikeBackend;
  std::size_t allocationGranularity() const override { return kGranularity; }
  std::byte* allocate(std::size_t bytes) override {
    askedBytes += bytes;
    takenBytes += (bytes + kGranularity - 1) / kGranularity * kGranularity;
    ++nAllocations;
    return reinterpret_cast<std::byte*>(takenBytes + kGranularity);
  }
  void release(std::byte* /*memory*/, std::size_t /*bytes*/) noexcept override {}

  static constexpr std::size_t kGranularity = std::size_t{2} << 20U;
  std::uint64_t askedBytes = 0;
  std::uint64_t takenBytes = 0;
  int nAllocations = 0;
};

}  // namespace

class DeviceMemoryTest : public QObject {
  Q_OBJECT
 private slots:
  void aModelThatIsUnloadedGivesAllItsMemoryBack();
  void theLedgerKnowsEveryByteOfTheDevice();
  void thePlanAgreesWithTheDeviceAtFullContext();
  void theTerminalPlansWhatTheEngineTakes();
  void theBackendsOwnMemoryIsKnownBefore();
  void weightsAreOneAllocationAndTravelThroughPinnedMemory();
  void loadingShowsProgressAndCanBeCancelled();
  void decodingAllocatesNothing();
  void pagesComeInFewPiecesThatWasteLittle_data();
  void pagesComeInFewPiecesThatWasteLittle();
  void loadingThatRunsOutOfMemoryTakesNothing();
  void anAnswerThatRunsOutOfMemoryCanBeAskedForAgain();
  void aSwitchThatRunsOutOfMemoryKeepsThePreset();
};

void DeviceMemoryTest::aModelThatIsUnloadedGivesAllItsMemoryBack() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  auto engine = load(plugin);
  QCOMPARE(tests::greedyTokens(*engine, promptOf(*engine), 4).size(), std::size_t{4});
  QVERIFY(plugin.counters().deviceBytes > 0);
  QVERIFY(plugin.counters().pinnedBytes > 0);

  const int resets = plugin.counters().nResets;
  const int frees = plugin.counters().nFrees;
  const std::size_t bytes = plugin.counters().deviceBytes;
  engine.reset();
  QCOMPARE(plugin.counters().deviceBytes.load(), std::size_t{0});
  QCOMPARE(plugin.counters().pinnedBytes.load(), std::size_t{0});
  QCOMPARE(plugin.counters().nStreamsAndEvents.load(), 0);
  QCOMPARE(plugin.counters().nResets.load(), resets + 1);  // the driver's share
  QVERIFY(bytes > 0 && plugin.counters().nFrees > frees);  // before the reset would have done it
}

void DeviceMemoryTest::theLedgerKnowsEveryByteOfTheDevice() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = load(plugin);
  const auto agrees = [&] {
    const MemoryReport report = engine->memory();
    return report.use.total() == plugin.counters().deviceBytes &&
           report.device.processBytes == plugin.counters().deviceBytes &&
           report.backend.deviceBytes > 0 &&
           report.use[MemoryCategory::kWorkspace] >= report.backend.deviceBytes &&
           report.backend.pinnedBytes == plugin.counters().pinnedBytes;
  };
  QVERIFY(agrees());
  const auto prompt = promptOf(*engine);
  engine->prefill(prompt, {}, {});
  QVERIFY(agrees());
  tests::greedyTokens(*engine, prompt, 4);
  QVERIFY(agrees());
  engine->clear();
  QVERIFY(agrees());
}

void DeviceMemoryTest::thePlanAgreesWithTheDeviceAtFullContext() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = load(plugin);
  const std::vector<std::int32_t> full(256, 5);
  engine->prefill(full, {}, {});
  PlanRequest request;
  request.model = engine->modelConfig();
  request.weights = engine->weightFormat();
  request.cache = smallPages();
  request.contextLength = 256;
  request.weightBytes = engine->weightBytes();
  request.backendBytes = engine->memory().backend.deviceBytes;
  const auto planned = static_cast<double>(planMemory(request).total());
  const auto used = static_cast<double>(plugin.counters().deviceBytes);
  QVERIFY2(std::abs(planned - used) <= 0.03 * used,
           qPrintable(QStringLiteral("planned %1, used %2").arg(planned).arg(used)));
}

void DeviceMemoryTest::theTerminalPlansWhatTheEngineTakes() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = load(plugin);
  engine->prefill(std::vector<std::int32_t>(256, 5), {}, {});
  QProcess process;
  process.start(LONGHAND_CLI, {"plan", "--json", "--backend", "cuda", "--cuda-plugin",
                               QString::fromStdString(plugin.file()), "--context", "256",
                               "--group-size", "32", "--residual-length", "0", "--model",
                               QString::fromStdString(tests::resourcePath("longhand-demo"))});
  QVERIFY(process.waitForFinished(60000));
  QCOMPARE(process.exitCode(), 0);
  const QJsonObject plan = QJsonDocument::fromJson(process.readAllStandardOutput()).object();
  const QJsonObject planned = plan["bytes"].toObject();
  MemoryReport report = engine->memory();
  // This prompt asked for no logits; those of its last token are planned.
  report.use[MemoryCategory::kWorkspace] +=
      static_cast<std::uint64_t>(engine->modelConfig().vocabSize) * sizeof(float);
  const auto own = static_cast<double>(report.backend.deviceBytes);
  QCOMPARE(plan["device"].toObject()["own_bytes"].toDouble(), own);
  QVERIFY(planned["workspace"].toDouble() > own);
  const std::pair<const char*, MemoryCategory> categories[] = {
      {"weights", MemoryCategory::kWeights},
      {"kv_codes", MemoryCategory::kKvCodes},
      {"kv_scales", MemoryCategory::kKvScales},
      {"kv_exact", MemoryCategory::kKvExact},
      {"workspace", MemoryCategory::kWorkspace}};
  for (const auto& [name, category] : categories) {
    QCOMPARE(planned[name].toDouble(), static_cast<double>(report.use[category]));
  }
}

void DeviceMemoryTest::theBackendsOwnMemoryIsKnownBefore() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const ChosenBackend chosen = createBackend({1, "auto", "cuda", plugin.file()});
  constexpr int kMultiprocessors = 4;  // of the emulation, which has no cuBLAS
  using namespace kernels::cuda;       // NOLINT(google-build-using-namespace): its figures
  QCOMPARE(chosen.backend->ownMemory().deviceBytes,
           ownDeviceBytes(kMultiprocessors, kMatmulScratchBytes));
  QCOMPARE(plannedDeviceBytes(kMultiprocessors, 8),
           ownDeviceBytes(kMultiprocessors, kMatmulScratchBytes + kCublasBytes));
  QCOMPARE(plannedDeviceBytes(kMultiprocessors, 9) - plannedDeviceBytes(kMultiprocessors, 8),
           std::uint64_t{kHopperCublasBytes - kCublasBytes});
}

void DeviceMemoryTest::weightsAreOneAllocationAndTravelThroughPinnedMemory() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const cuda_on_cpu::DeviceCounters& counters = plugin.counters();
  const int allocations = counters.nDeviceAllocations;
  const std::uint64_t pinned = counters.pinnedUploadBytes;
  const std::uint64_t pageable = counters.pageableUploadBytes;
  const auto engine = load(plugin);
  // Those of the backend itself: some eight, and the trial's; but not one for each weight.
  QVERIFY2(counters.nDeviceAllocations - allocations <= 12,
           qPrintable(QString::number(counters.nDeviceAllocations - allocations)));
  QVERIFY(counters.pinnedUploadBytes - pinned >= engine->weightBytes());
  QVERIFY(counters.pageableUploadBytes - pageable <= 4096);  // the trial's
}

void DeviceMemoryTest::loadingShowsProgressAndCanBeCancelled() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  EngineOptions options = optionsWith(plugin);
  options.cache = smallPages();
  std::vector<std::uint64_t> reports;
  std::uint64_t total = 0;
  const LoadProgress progress = [&](std::uint64_t done, std::uint64_t all) {
    reports.push_back(done);
    total = all;
  };
  const auto engine = Engine::load(tests::resourcePath("longhand-demo"), options, progress, {});
  QVERIFY(std::is_sorted(reports.begin(), reports.end()));
  QCOMPARE(reports.back(), total);

  std::stop_source stop;
  const LoadProgress stopAtOnce = [&](std::uint64_t, std::uint64_t) { stop.request_stop(); };
  const std::size_t before = plugin.counters().deviceBytes;
  try {
    Engine::load(tests::resourcePath("longhand-demo"), options, stopAtOnce, stop.get_token());
    QFAIL("it was loaded");
  } catch (const Error& error) {
    QCOMPARE(error.code(), ErrorCode::kCancelled);
  }
  QCOMPARE(plugin.counters().deviceBytes.load(), before);  // the other one's
}

void DeviceMemoryTest::decodingAllocatesNothing() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = load(plugin);
  const auto prompt = promptOf(*engine);
  std::vector<int> allocations;  // behind each token
  GenerateObserver observer;
  observer.token = [&](std::string_view, std::int32_t) {
    allocations.push_back(plugin.counters().nDeviceAllocations +
                          plugin.counters().nPinnedAllocations + plugin.counters().nFrees);
  };
  GenerateOptions greedy = tests::greedy(40);  // more than a page
  greedy.ignoresEndOfText = true;
  const std::int64_t packed = engine->memory().packedTokens;
  engine->generate(prompt, greedy, observer, {});
  QVERIFY(engine->memory().packedTokens > packed);
  QCOMPARE(std::ssize(allocations), std::ptrdiff_t{40});
  // The first step takes the workspace of single tokens.
  for (std::size_t i = 2; i < allocations.size(); ++i) QCOMPARE(allocations[i], allocations[1]);
}

void DeviceMemoryTest::pagesComeInFewPiecesThatWasteLittle_data() {
  QTest::addColumn<QString>("preset");
  for (const char* name : {"throughput", "quality", "balanced", "memory-limit"}) {
    QTest::newRow(name) << QString::fromLatin1(name);
  }
}

void DeviceMemoryTest::pagesComeInFewPiecesThatWasteLittle() {
  QFETCH(QString, preset);
  const KvCacheConfig config = presetById(preset.toStdString()).cache;
  const auto reference = kernels::createReferenceBackend();
  RoundingBackend backend(*reference);
  MemoryLedger ledger;
  {
    constexpr kernels::AttentionShape kShape{32, 32, 128};  // Llama-2-7B, 100,000 tokens
    KvArena arena(backend, ledger, kShape);
    std::vector<PageDemand> demands;
    for (std::int64_t layer = 0; layer < 32; ++layer) {
      const kernels::PageFormat format = config.pageFormat(layer);
      if (demands.empty() || demands.back().format != format) demands.push_back({format, 0});
      demands.back().nPages += 100000 / format.groupSize;
    }
    arena.reserve(demands);
  }
  const double waste = static_cast<double>(backend.takenBytes - backend.askedBytes) /
                       static_cast<double>(backend.askedBytes);
  qInfo("%d pieces, %.2f %% wasted", backend.nAllocations, 100.0 * waste);
  QVERIFY(waste < 0.015);
  QVERIFY(backend.nAllocations < 1700);  // 51,200 pages
}

void DeviceMemoryTest::loadingThatRunsOutOfMemoryTakesNothing() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  std::unique_ptr<Engine> engine;
  int nDevice = 0;
  int nWeights = 0;
  failEachAllocation(
      plugin,
      [&] {
        engine.reset();
        engine = load(plugin);
      },
      [&](const Error& error) {
        if (error.code() == ErrorCode::kDevice) {  // of the backend itself
          ++nDevice;
          QVERIFY2(
              error.message() == "CPU emulation has no memory left." ||
                  error.message() == "CPU emulation failed in a first computation: out of memory.",
              error.what());
        } else {
          ++nWeights;
          QVERIFY2(isClear(error), error.line().c_str());
        }
        QCOMPARE(plugin.counters().deviceBytes.load(), std::size_t{0});
        QCOMPARE(plugin.counters().pinnedBytes.load(), std::size_t{0});
      });
  QVERIFY(engine != nullptr);
  QVERIFY(nDevice >= 5);
  QVERIFY(nWeights >= 1);
}

void DeviceMemoryTest::anAnswerThatRunsOutOfMemoryCanBeAskedForAgain() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = load(plugin);
  const auto prompt = promptOf(*engine);
  const auto expected = tests::greedyTokens(*engine, prompt, 4);
  const auto ask = [&] {
    engine->clear();
    engine->prefill(std::span(prompt).first(8), {}, {});  // then a chunk behind these
    return tests::greedyTokens(*engine, prompt, 4);
  };
  const int n = failEachAllocation(
      plugin, [&] { ask(); },
      [&](const Error& error) {
        QVERIFY2(isClear(error), error.line().c_str());
        QCOMPARE(tests::greedyTokens(*engine, prompt, 4), expected);
      });
  qInfo("%d allocations failed, one at a time", n);
  QVERIFY(n >= 6);
  QCOMPARE(engine->memory().use.total(), std::uint64_t{plugin.counters().deviceBytes});
}

void DeviceMemoryTest::aSwitchThatRunsOutOfMemoryKeepsThePreset() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = load(plugin);
  const auto prompt = promptOf(*engine);
  const auto expected = tests::greedyTokens(*engine, prompt, 4);
  KvCacheConfig fewer = smallPages();
  fewer.keyNbits = fewer.valueNbits = 2;
  fewer.residualLength = 64;
  int n = 0;
  n = failEachAllocation(
      plugin, [&] { engine->convertCache(fewer, 0, {}, {}); },
      [&](const Error& error) {
        QVERIFY2(isClear(error), error.line().c_str());
        QVERIFY(engine->cacheConfig() == smallPages());
        QCOMPARE(tests::greedyTokens(*engine, prompt, 4), expected);
      });
  QVERIFY(n >= 2);
  QVERIFY(engine->cacheConfig() == fewer);
  QCOMPARE(std::ssize(tests::greedyTokens(*engine, prompt, 4)), std::ptrdiff_t{4});
}

QTEST_GUILESS_MAIN(DeviceMemoryTest)
#include "device_memory_test.moc"
