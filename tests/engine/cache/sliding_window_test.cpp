// The sliding window: what is forgotten when, that its memory is really free, and what may still be
// taken back.
#include <cmath>

#include <QTest>

#include "engine/cache/kv_schedule.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "engine/session/session.h"
#include "tests/engine/cache/kv_harness.h"
#include "tests/engine/engine_harness.h"

namespace longhand {

using engine::Engine;
using engine::KvCacheConfig;
using engine::MemoryCategory;
using tests::KvHarness;

namespace {

KvCacheConfig windowed(std::int64_t window, int nbits = 4) {
  KvCacheConfig config;
  config.keyNbits = config.valueNbits = nbits;
  config.groupSize = 32;
  config.residualLength = 20;
  config.sinkLength = 4;
  config.slidingWindow = window;
  return config;
}

/// Tokens that a layer's queries attend to.
std::int64_t readTokens(const engine::KvCache& cache) {
  const kernels::KvView view = cache.view(1);
  std::int64_t tokens = view.nPagedTokens;
  for (const kernels::ExactSpan& span : view.exact) tokens += span.nTokens;
  return tokens;
}

engine::ModelConfig tinyModel() {
  engine::ModelConfig config;
  config.name = "tiny";
  config.hiddenSize = 32;
  config.intermediateSize = 64;
  config.nLayers = 2;
  config.nHeads = 4;
  config.nKvHeads = 2;
  config.headDim = 8;
  config.vocabSize = 97;
  config.trainedLength = 512;
  config.rope.maxPositionEmbeddings = 512;
  return config;
}

std::unique_ptr<Engine> loadTiny(const KvCacheConfig& cache, std::int64_t contextLength = 20000) {
  engine::EngineOptions options;
  options.cache = cache;
  options.threads = 1;
  options.weights = engine::WeightFormat::kF32;
  options.contextLength = contextLength;
  return Engine::loadRandom(tinyModel(), options, 11);
}

std::vector<std::int32_t> tinyPrompt(std::size_t length) {
  std::vector<std::int32_t> prompt(length);
  std::uint32_t state = 12345;
  for (std::int32_t& id : prompt) {
    state = state * 1664525U + 1013904223U;
    id = static_cast<std::int32_t>((state >> 16U) % 97U);
  }
  return prompt;
}

}  // namespace

class SlidingWindowTest : public QObject {
  Q_OBJECT

 private slots:
  void newestTokensAndTheSinkAreAlwaysHeld_data();
  void newestTokensAndTheSinkAreAlwaysHeld();
  void chunkingDoesNotChangeWhatIsHeld();
  void heldPagesEqualThoseOfACacheWithoutWindow();
  void forgottenTokensAreNotRead();
  void rolledBackChunkForgetsNothing();
  void memoryStopsGrowing_data();
  void memoryStopsGrowing();
  void onlyWhatTheNewestNeedCanBeTakenBack();
  void truncateIntoTheSinkBeginsAnew();
  void forecastIsFlatAndKnowsNoLongestContext();
  void windowLongerThanTheChatChangesNothing();
  void answerTakenBackIsReusedAndAnEarlyEditIsReadAgain();
  void forgottenTokensAreReported();
};

void SlidingWindowTest::newestTokensAndTheSinkAreAlwaysHeld_data() {
  QTest::addColumn<int>("window");
  QTest::addColumn<int>("chunk");
  for (const int window : {1, 10, 31, 32, 100, 333}) {
    for (const int chunk : {1, 5, 33, 150, 700}) {
      QTest::addRow("window %d, chunks of %d", window, chunk) << window << chunk;
    }
  }
}

void SlidingWindowTest::newestTokensAndTheSinkAreAlwaysHeld() {
  QFETCH(int, window);
  QFETCH(int, chunk);
  const KvCacheConfig config = windowed(window);
  KvHarness harness(config);
  const engine::KvCache& cache = harness.cache();
  while (cache.length() < 1400) {
    harness.feed(chunk);
    QCOMPARE(readTokens(cache) + cache.forgottenTokens(), cache.length());
    QCOMPARE(cache.packedTokens() + cache.exactTokens() + cache.forgottenTokens(), cache.length());
    const std::int64_t behindSink = readTokens(cache) - std::min<std::int64_t>(4, cache.length());
    QVERIFY(cache.forgottenTokens() == 0 || behindSink >= engine::heldTokens(config));
    // A page more than what is held, and what the residual's promise asks for.
    QVERIFY(behindSink < std::max(engine::heldTokens(config), config.residualLength + 32) + 32);
  }
  QVERIFY(cache.forgottenTokens() > 0);
}

void SlidingWindowTest::chunkingDoesNotChangeWhatIsHeld() {
  const KvCacheConfig config = windowed(150);
  constexpr std::int64_t kTokens = 1000;
  KvHarness whole(config);
  whole.feed(kTokens);
  QVERIFY(whole.cache().forgottenTokens() > 0);
  for (const std::int64_t chunk : {1, 7, 32, 33, 200, 999}) {
    KvHarness pieces(config);
    while (pieces.cache().length() < kTokens) {
      pieces.feed(std::min(chunk, kTokens - pieces.cache().length()));
    }
    QCOMPARE(pieces.cache().forgottenTokens(), whole.cache().forgottenTokens());
    QCOMPARE(pieces.snapshot(), whole.snapshot());
  }
}

void SlidingWindowTest::heldPagesEqualThoseOfACacheWithoutWindow() {
  KvHarness sliding(windowed(150));
  KvHarness all(windowed(0));
  for (int i = 0; i < 50; ++i) {
    sliding.feed(13);
    all.feed(13);
  }
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const kernels::KvView held = sliding.cache().view(layer);
    const kernels::KvView whole = all.cache().view(layer);
    const std::int64_t nForgotten = whole.nPages - held.nPages;
    QCOMPARE(sliding.cache().forgottenTokens(), nForgotten * 32);
    const std::size_t bytes = kernels::pageLayout(held.pages[0].format, 2, 8).totalBytes;
    for (std::int64_t i = 0; i < held.nPages; ++i) {
      QVERIFY(std::memcmp(held.pages[i].data, whole.pages[nForgotten + i].data, bytes) == 0);
    }
  }
}

void SlidingWindowTest::forgottenTokensAreNotRead() {
  // Token t's value is t in every channel and all scores are equal, so that attention gives the
  // mean of the positions that are read.
  KvCacheConfig config = windowed(100, 16);
  config.exactType = kernels::DataType::kF32;
  const kernels::AttentionShape shape{1, 1, 8};
  KvHarness harness(config, 1, shape);
  engine::KvCache& cache = harness.cache();
  constexpr std::int64_t kTokens = 900;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    std::vector<float> keys(8, 0.0F);
    std::vector<float> values(8, static_cast<float>(t));
    cache.reserve(t + 1, 1);
    cache.beginChunk(1);
    harness.append(0, keys, values, 1);
    cache.commitChunk();
  }
  double expected = 0.0;
  std::int64_t nRead = 0;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    if (t >= 4 && t < 4 + cache.forgottenTokens()) continue;
    expected += static_cast<double>(t);
    ++nRead;
  }
  std::vector<float> query(8, 1.0F);
  std::vector<float> key(8, -1e4F);  // the chunk itself has no weight
  std::vector<float> value(8, 0.0F);
  std::vector<float> output(8);
  std::vector<std::byte> bytes(64);
  const kernels::ExactSpan chunk{kernels::DataType::kF32, bytes.data(), bytes.data() + 32, 1, 1};
  harness.backend().storeExact(shape, {key.data(), 1, 8, 8}, {value.data(), 1, 8, 8}, chunk, 0);
  harness.backend().attend(shape, 1.0F, {query.data(), 1, 8, 8}, cache.view(0), chunk, 0,
                           {output.data(), 1, 8, 8});
  QVERIFY(cache.forgottenTokens() > 700);
  QVERIFY(std::abs(static_cast<double>(output[0]) - expected / static_cast<double>(nRead)) < 1e-2);
}

void SlidingWindowTest::rolledBackChunkForgetsNothing() {
  for (const std::int64_t before : {3, 100, 400, 407}) {
    for (const std::int64_t chunk : {1, 40, 300, 1000}) {
      for (const std::int64_t appended : {0, 1, 3}) {  // of 3 layers
        KvHarness harness(windowed(100), 3);
        harness.feed(before);
        const std::vector<std::byte> expected = harness.snapshot();
        const std::int64_t forgotten = harness.cache().forgottenTokens();
        harness.cache().reserve(before + chunk, chunk);
        harness.cache().beginChunk(chunk);
        for (std::int64_t layer = 0; layer < appended; ++layer) harness.appendLayer(layer, chunk);
        QCOMPARE(harness.cache().forgottenTokens(), forgotten);
        harness.cache().rollbackChunk();
        QCOMPARE(harness.snapshot(), expected);
        harness.feed(chunk);
        KvHarness straight(windowed(100), 3);
        straight.feed(before + chunk);
        QCOMPARE(harness.snapshot(), straight.snapshot());
      }
    }
  }
}

void SlidingWindowTest::memoryStopsGrowing_data() {
  QTest::addColumn<int>("chunk");
  for (const int chunk : {1, 20, 64, 500}) QTest::addRow("chunks of %d", chunk) << chunk;
}

void SlidingWindowTest::memoryStopsGrowing() {
  QFETCH(int, chunk);
  const KvCacheConfig config = windowed(300);
  constexpr std::int64_t kTokens = 6000;
  KvHarness harness(config);
  harness.cache().reserve(kTokens, chunk);
  const engine::MemoryUse reserved = harness.ledger().use();
  harness.ledger().resetPeak();
  while (harness.cache().length() < kTokens) harness.feed(chunk);
  // What was reserved for the whole context was enough for every chunk of it, and no more was
  // taken, except for the undo copy of the residual.
  const engine::MemoryUse peak = harness.ledger().peak();
  QCOMPARE(peak[MemoryCategory::kKvCodes], reserved[MemoryCategory::kKvCodes]);
  QCOMPARE(peak[MemoryCategory::kKvScales], reserved[MemoryCategory::kKvScales]);
  QCOMPARE(harness.ledger().use().bytes, reserved.bytes);
  const engine::MemoryUse plan = engine::kvCacheUse(config, {4, 2, 8}, 2, kTokens, chunk);
  QVERIFY(plan.total() >= reserved.total());
  QCOMPARE(plan.bytes, engine::kvCacheUse(config, {4, 2, 8}, 2, 100 * kTokens, chunk).bytes);
  KvCacheConfig all = config;
  all.slidingWindow = 0;
  QVERIFY(plan.total() < engine::kvCacheUse(all, {4, 2, 8}, 2, kTokens, chunk).total() / 2);
}

void SlidingWindowTest::onlyWhatTheNewestNeedCanBeTakenBack() {
  for (std::int64_t n = 0; n <= 700; ++n) {
    KvHarness harness(windowed(200));
    harness.feed(700);
    engine::KvCache& cache = harness.cache();
    const std::int64_t windowStart = 4 + cache.forgottenTokens();
    const bool expected = n == 700 || n <= 4 || n - 200 >= windowStart;
    QCOMPARE(cache.canTruncateTo(n), expected);
    if (!expected) continue;
    cache.truncate(n);
    QCOMPARE(cache.length(), n);
    QVERIFY(readTokens(cache) >= std::min<std::int64_t>(n, 204));
  }
  // The margin is a quarter of the window.
  KvHarness harness(windowed(200));
  harness.feed(700);
  QVERIFY(harness.cache().canTruncateTo(650));
}

void SlidingWindowTest::truncateIntoTheSinkBeginsAnew() {
  KvHarness harness(windowed(100));
  harness.feed(600);
  harness.cache().truncate(3);
  QCOMPARE(harness.cache().forgottenTokens(), 0);
  harness.feed(597);
  KvHarness fresh(windowed(100));
  fresh.feed(600);
  QCOMPARE(harness.snapshot(), fresh.snapshot());
}

void SlidingWindowTest::forecastIsFlatAndKnowsNoLongestContext() {
  engine::PlanRequest request;
  request.model = tinyModel();
  request.cache = windowed(1000);
  request.chunkTokens = 256;
  request.contextLength = 10'000;
  const std::uint64_t bytes = engine::planMemory(request).total();
  request.contextLength = 10'000'000;
  QCOMPARE(engine::planMemory(request).total(), bytes);
  QCOMPARE(engine::largestContext(request, 2 * bytes), engine::kMaxContextLength);
  request.cache.slidingWindow = 0;
  QVERIFY(engine::largestContext(request, 2 * bytes) < 100'000);
}

void SlidingWindowTest::windowLongerThanTheChatChangesNothing() {
  const std::vector<std::int32_t> tokens = tinyPrompt(400);
  for (const bool stepwise : {false, true}) {
    const auto sliding = loadTiny(windowed(400));
    const auto all = loadTiny(windowed(0));
    QCOMPARE(sliding->logits(tokens, true, stepwise), all->logits(tokens, true, stepwise));
  }
}

void SlidingWindowTest::answerTakenBackIsReusedAndAnEarlyEditIsReadAgain() {
  const KvCacheConfig config = windowed(400);
  const auto chat = loadTiny(config);
  const std::vector<std::int32_t> prompt = tinyPrompt(1500);
  const engine::GenerateResult first = chat->generate(prompt, tests::greedy(60), {}, {});
  QVERIFY(first.forgottenTokens > 900);
  // Regenerate: what the window has read stands, although most of it is forgotten.
  const engine::GenerateResult again = chat->generate(prompt, tests::greedy(60), {}, {});
  QVERIFY(again.reusedTokens > 1499 - config.groupSize);

  std::vector<std::int32_t> edited = prompt;
  edited[700] = (edited[700] + 1) % 97;
  QCOMPARE(chat->reusableTokens(edited), 0);
  const engine::GenerateResult reread = chat->generate(edited, tests::greedy(60), {}, {});
  QCOMPARE(reread.reusedTokens, 0);
  const auto fresh = loadTiny(config);
  QCOMPARE(reread.tokens, fresh->generate(edited, tests::greedy(60), {}, {}).tokens);
  QCOMPARE(chat->nextLogits(edited), fresh->nextLogits(edited));
}

void SlidingWindowTest::forgottenTokensAreReported() {
  const auto chat = loadTiny(windowed(100));
  const engine::GenerateResult result = chat->generate(tinyPrompt(1000), tests::greedy(5), {}, {});
  const engine::MemoryReport report = chat->memory();
  QCOMPARE(report.cachedTokens, 1004);
  QVERIFY(report.forgottenTokens > 800);
  QCOMPARE(result.forgottenTokens, report.forgottenTokens);
  QCOMPARE(report.packedTokens + report.exactTokens + report.forgottenTokens, report.cachedTokens);
  chat->clear();
  QCOMPARE(chat->memory().forgottenTokens, 0);
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::SlidingWindowTest)
#include "sliding_window_test.moc"
