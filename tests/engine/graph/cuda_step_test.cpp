// Decode steps on the CUDA backend, which the emulation runs: replayed as a graph they compute what
// they compute launch by launch, few launches a token, and the host waits for nothing but the token
// that is chosen.

#include <cstdint>
#include <memory>
#include <vector>

#include <QTest>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "tests/cuda_on_cpu/emulated_plugin.h"
#include "tests/engine/engine_harness.h"

namespace longhand::engine {
namespace {

/// Each thread of the emulation is a thread to ThreadSanitizer, so it gets less to do.
#ifdef __SANITIZE_THREAD__
constexpr bool kHasTsan = true;
#else
constexpr bool kHasTsan = false;
#endif

constexpr std::int64_t kLayers = kHasTsan ? 1 : 3;
/// Per layer: norm and query, key, value; RoPE and store; attention; its output; norm, gate and up;
/// down.
constexpr int kLaunchesOfLayer = 6;

ModelConfig smallConfig() {
  ModelConfig config;
  config.name = "small";
  config.hiddenSize = 64;
  config.intermediateSize = 128;
  config.nLayers = kLayers;
  config.nHeads = 4;
  config.nKvHeads = 2;
  config.headDim = 16;
  config.vocabSize = 300;
  config.trainedLength = 512;
  return config;
}

/// A page every 32 tokens.
KvCacheConfig smallPages() {
  KvCacheConfig config = tests::f16Cache();
  config.keyNbits = config.valueNbits = 4;
  config.groupSize = 32;
  config.residualLength = 32;
  return config;
}

std::unique_ptr<Engine> loadSmall(const cuda_on_cpu::EmulatedPlugin& plugin, WeightFormat weights) {
  EngineOptions options;
  options.weights = weights;
  options.cache = smallPages();
  options.backend = "cuda";
  options.cudaPlugin = plugin.file();
  return Engine::loadRandom(smallConfig(), options, 7);
}

std::vector<std::int32_t> promptOf(std::int64_t nTokens) {
  std::vector<std::int32_t> prompt;
  for (std::int64_t i = 0; i < nTokens; ++i) {
    prompt.push_back(static_cast<std::int32_t>(i * 37 % 300));
  }
  return prompt;
}

GenerateOptions greedyTo(std::int64_t nTokens) {
  GenerateOptions options = tests::greedy(nTokens);
  options.ignoresEndOfText = true;
  return options;
}

/// What the device has done.
struct Counts {
  int launches;
  int graphs;
  int graphLaunches;
  int nodeUpdates;
  int synchronizations;
  std::uint64_t pageableBytes;

  explicit Counts(const cuda_on_cpu::DeviceCounters& now)
      : launches(now.nLaunches),
        graphs(now.nGraphs),
        graphLaunches(now.nGraphLaunches),
        nodeUpdates(now.nNodeUpdates),
        synchronizations(now.nSynchronizations),
        pageableBytes(now.pageableUploadBytes) {}
};

/// Calls visit(index of the token, counts before, counts after) for each decoded token but the
/// first, which is the prefill's.
template <class Visit>
void countTokens(const cuda_on_cpu::EmulatedPlugin& plugin, Engine& engine, std::int64_t nTokens,
                 const Visit& visit) {
  int index = 0;
  Counts before(plugin.counters());
  GenerateObserver observer;
  observer.token = [&](std::string_view, std::int32_t) {
    const Counts after(plugin.counters());
    if (index++ > 0) visit(index, before, after);
    before = after;
  };
  engine.generate(promptOf(5), greedyTo(nTokens), observer, {});
}

}  // namespace

class CudaStepTest : public QObject {
  Q_OBJECT

 private slots:
  void graphsComputeWhatSingleLaunchesCompute_data();
  void graphsComputeWhatSingleLaunchesCompute();
  void aTokenIsFewLaunchesInOneGraph_data() { addWeights(); }
  void aTokenIsFewLaunchesInOneGraph();
  void aTokenUpdatesOnlyWhatMoves();
  void aGraphServesManyTokens();
  void theHostWaitsOnlyForTheChosenToken();
  void worksWithoutGraphs();
  void aCancelledStepLeavesTheCacheAsItWas();
  void devicesSampleTheTokensOfTheHostSampler_data();
  void devicesSampleTheTokensOfTheHostSampler();

 private:
  static void addWeights() {
    QTest::addColumn<int>("weights");
    QTest::newRow("nf4") << static_cast<int>(WeightFormat::kNf4);
    if (kHasTsan) return;
    QTest::newRow("f16") << static_cast<int>(WeightFormat::kF16);
    QTest::newRow("int8") << static_cast<int>(WeightFormat::kInt8);
  }
};

void CudaStepTest::graphsComputeWhatSingleLaunchesCompute_data() {
  QTest::addColumn<int>("weights");
  QTest::addColumn<int>("schedule");
  int schedule = 0;
  for (const WeightFormat weights :
       {WeightFormat::kNf4, WeightFormat::kF16, WeightFormat::kInt8, WeightFormat::kF32}) {
    if (kHasTsan && weights != WeightFormat::kNf4) continue;
    QTest::addRow("format %d", static_cast<int>(weights))
        << static_cast<int>(weights) << schedule++ % 3;
  }
}

void CudaStepTest::graphsComputeWhatSingleLaunchesCompute() {
  QFETCH(int, weights);
  QFETCH(int, schedule);
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  plugin.kernelOptions().schedule = static_cast<cuda_on_cpu::Schedule>(schedule);
  const std::vector<std::int32_t> tokens = promptOf(75);  // one page on the way
  std::vector<std::vector<float>> logits;
  for (const bool hasGraphs : {true, false}) {
    plugin.failures().graph = hasGraphs ? 0 : 1;
    const auto engine = loadSmall(plugin, static_cast<WeightFormat>(weights));
    const int before = plugin.counters().nGraphLaunches;
    logits.push_back(engine->logits(tokens, true, true));
    QCOMPARE(plugin.counters().nGraphLaunches > before, hasGraphs);
  }
  QVERIFY(logits[0] == logits[1]);
}

void CudaStepTest::aTokenIsFewLaunchesInOneGraph() {
  QFETCH(int, weights);
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = loadSmall(plugin, static_cast<WeightFormat>(weights));
  int nSteady = 0;
  countTokens(plugin, *engine, 40, [&](int /*index*/, const Counts& before, const Counts& after) {
    if (after.graphLaunches == before.graphLaunches) return;
    ++nSteady;
    QCOMPARE(after.graphLaunches - before.graphLaunches, 1);
    // The embedding and the layers; then, beside the graph, norm and head, and the best logits.
    QCOMPARE(after.launches - before.launches, 1 + kLaunchesOfLayer * int{kLayers} + 2);
  });
  QVERIFY(nSteady >= 30);
}

void CudaStepTest::aTokenUpdatesOnlyWhatMoves() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = loadSmall(plugin, WeightFormat::kNf4);
  countTokens(plugin, *engine, 40, [&](int /*index*/, const Counts& before, const Counts& after) {
    // The token's id; in each layer where its key and value go, and what attention reads.
    QVERIFY(after.nodeUpdates - before.nodeUpdates <= 1 + 2 * int{kLayers});
  });
}

void CudaStepTest::aGraphServesManyTokens() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = loadSmall(plugin, WeightFormat::kF16);
  const Counts before(plugin.counters());
  engine->generate(promptOf(5), greedyTo(100), {}, {});
  const Counts first(plugin.counters());
  QCOMPARE(first.graphs - before.graphs, 1);
  // All but the first and those that pack a page.
  QVERIFY(first.graphLaunches - before.graphLaunches >= 95);
  engine->generate(promptOf(9), greedyTo(20), {}, {});
  QCOMPARE(Counts(plugin.counters()).graphs, first.graphs);
}

void CudaStepTest::theHostWaitsOnlyForTheChosenToken() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = loadSmall(plugin, WeightFormat::kNf4);
  countTokens(plugin, *engine, 40, [&](int index, const Counts& before, const Counts& after) {
    // For the best logits, and at the end of the chunk, when nothing is left to wait for.
    const QByteArray token = QByteArray::number(index);
    QVERIFY2(after.synchronizations - before.synchronizations <= 2, token.constData());
    QVERIFY2(after.pageableBytes == before.pageableBytes, token.constData());
  });
}

void CudaStepTest::worksWithoutGraphs() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  plugin.failures().graph = 1;
  const auto engine = loadSmall(plugin, WeightFormat::kNf4);
  const Counts before(plugin.counters());
  const GenerateResult result = engine->generate(promptOf(5), greedyTo(20), {}, {});
  QCOMPARE(result.tokens.size(), std::size_t{20});
  const Counts after(plugin.counters());
  QCOMPARE(after.graphs, before.graphs);
  QCOMPARE(after.graphLaunches, before.graphLaunches);
}

void CudaStepTest::aCancelledStepLeavesTheCacheAsItWas() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = loadSmall(plugin, WeightFormat::kF16);
  const std::vector<std::int32_t> tokens =
      engine->generate(promptOf(5), greedyTo(20), {}, {}).tokens;
  engine->clear();

  std::stop_source stop;
  GenerateObserver observer;
  observer.token = [&, count = 0](std::string_view, std::int32_t) mutable {
    if (++count == 7) stop.request_stop();
  };
  const std::vector<std::int32_t> some =
      engine->generate(promptOf(5), greedyTo(20), observer, stop.get_token()).tokens;
  QVERIFY(some.size() < 20);
  QVERIFY(std::equal(some.begin(), some.end(), tokens.begin()));
  QVERIFY(engine->generate(promptOf(5), greedyTo(20), {}, {}).tokens == tokens);
}

void CudaStepTest::devicesSampleTheTokensOfTheHostSampler_data() {
  QTest::addColumn<int>("topK");
  QTest::addColumn<double>("penalty");
  QTest::addColumn<double>("temperature");
  QTest::newRow("greedy") << 0 << 1.0 << 0.0;
  if (kHasTsan) return;
  QTest::newRow("greedy with a penalty") << 0 << 1.3 << 0.0;
  QTest::newRow("top_k") << 40 << 1.0 << 2.0;
  QTest::newRow("top_k with a penalty") << 40 << 1.3 << 2.0;
  QTest::newRow("all of a small vocabulary") << 400 << 1.3 << 2.0;
  QTest::newRow("without top_k") << 0 << 1.3 << 2.0;  // all logits are brought
}

void CudaStepTest::devicesSampleTheTokensOfTheHostSampler() {
  QFETCH(int, topK);
  QFETCH(double, penalty);
  QFETCH(double, temperature);
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const auto engine = loadSmall(plugin, WeightFormat::kF16);
  GenerateOptions options = greedyTo(30);
  options.sampler.temperature = temperature;
  options.sampler.topK = topK;
  options.sampler.topP = 0.95;
  options.sampler.repetitionPenalty = penalty;
  options.sampler.repetitionWindow = 16;
  options.sampler.seed = 3;
  const std::vector<std::int32_t> tokens = engine->generate(promptOf(5), options, {}, {}).tokens;

  engine->clear();
  Sampler sampler(options.sampler);
  std::vector<std::int32_t> sequence = promptOf(5);
  for (const std::int32_t token : tokens) {
    QCOMPARE(sampler.sample(engine->nextLogits(sequence), sequence), token);
    sequence.push_back(token);
  }
  QCOMPARE(tokens.size(), std::size_t{30});
}

}  // namespace longhand::engine

QTEST_GUILESS_MAIN(longhand::engine::CudaStepTest)
#include "cuda_step_test.moc"
