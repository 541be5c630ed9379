// Caches of random contents look and work as if their tokens had been read.

#include "engine/cache/random_cache.h"

#include <cmath>
#include <vector>

#include <QTest>

#include "engine/base/error.h"
#include "engine/session/step_cost.h"
#include "kernels/half.h"
#include "tests/engine/cache/kv_harness.h"
#include "tests/engine/engine_harness.h"

namespace longhand {

using namespace tests;  // NOLINT: a test file
using engine::KvCacheConfig;
using engine::KvCacheCounts;

namespace {

constexpr kernels::AttentionShape kShape{4, 2, 8};
constexpr std::int64_t kLayers = 2;

void addConfigs() {
  QTest::addColumn<int>("keyNbits");
  QTest::addColumn<int>("valueNbits");
  QTest::addColumn<int>("residualLength");
  QTest::addColumn<int>("slidingWindow");
  QTest::newRow("exact") << 16 << 16 << 64 << 0;
  QTest::newRow("int8") << 8 << 8 << 64 << 0;
  QTest::newRow("int4 without a residual") << 4 << 4 << 0 << 0;
  QTest::newRow("keys 4, values 2") << 4 << 2 << 40 << 0;
  QTest::newRow("int2") << 2 << 2 << 64 << 0;
  QTest::newRow("int4 with a window") << 4 << 4 << 64 << 100;
}

KvCacheConfig fetchedConfig() {
  QFETCH(int, keyNbits);
  QFETCH(int, valueNbits);
  QFETCH(int, residualLength);
  QFETCH(int, slidingWindow);
  KvCacheConfig config;
  config.keyNbits = keyNbits;
  config.valueNbits = valueNbits;
  config.groupSize = 32;
  config.residualLength = residualLength;
  config.slidingWindow = slidingWindow;
  return config;
}

void fill(KvHarness& harness, std::int64_t nTokens, std::uint64_t seed = 1) {
  fillRandomly(harness.cache(), harness.backend(), kShape, kLayers, nTokens, seed, {});
}

void compareCounts(const KvCacheCounts& filled, const KvCacheCounts& fed) {
  QCOMPARE(filled.sinkTokens, fed.sinkTokens);
  QCOMPARE(filled.forgottenTokens, fed.forgottenTokens);
  QCOMPARE(filled.packedTokens, fed.packedTokens);
  QCOMPARE(filled.nPages, fed.nPages);
  QCOMPARE(filled.ringFirst, fed.ringFirst);
  QCOMPARE(filled.ringTokens, fed.ringTokens);
}

}  // namespace

class RandomCacheTest : public QObject {
  Q_OBJECT

 private slots:
  void tokensStandWhereReadOnesWouldStand_data() { addConfigs(); }
  void tokensStandWhereReadOnesWouldStand();
  void moreTokensCanFollow_data() { addConfigs(); }
  void moreTokensCanFollow();
  void everyNumberIsRandomAndFinite_data() { addConfigs(); }
  void everyNumberIsRandomAndFinite();
  void theSameSeedGivesTheSameContents();
  void whatStoodThereBeforeIsGone();
  void aStopLeavesTheCacheEmpty();
  void enginesDecodeBehindRandomTokens();
  void bytesOfAStepAgreeWithThePlanOfMemory();
  void bytesOfAStepAreKnownBeforeThereIsACache_data() { addConfigs(); }
  void bytesOfAStepAreKnownBeforeThereIsACache();
};

void RandomCacheTest::tokensStandWhereReadOnesWouldStand() {
  const KvCacheConfig config = fetchedConfig();
  KvHarness fed(config);
  KvHarness filled(config);
  for (std::int64_t nTokens = 1; nTokens <= 330; ++nTokens) {
    fed.feed(1);
    // Where sinks, pages and windows begin and end, and in between.
    if (nTokens > 5 && nTokens % 32 > 4 && nTokens % 17 != 0) continue;
    fill(filled, nTokens);
    compareCounts(filled.cache().counts(), fed.cache().counts());
    if (QTest::currentTestFailed()) QFAIL(qPrintable(QString("%1 tokens").arg(nTokens)));
  }
}

void RandomCacheTest::bytesOfAStepAreKnownBeforeThereIsACache() {
  const KvCacheConfig config = fetchedConfig();
  if (config.slidingWindow > 0) QSKIP("only of caches that forget nothing");
  KvHarness harness(config);
  for (const std::int64_t nTokens : {1, 4, 5, 71, 72, 99, 100, 101, 330}) {
    fill(harness, nTokens);
    const engine::DecodeBytes read = engine::cacheBytesRead(harness.cache(), kShape, kLayers);
    const engine::DecodeBytes known = engine::cacheBytesRead(config, kShape, kLayers, nTokens);
    QCOMPARE(known.kvCodes, read.kvCodes);
    QCOMPARE(known.kvScales, read.kvScales);
    QCOMPARE(known.kvExact, read.kvExact);
  }
}

void RandomCacheTest::moreTokensCanFollow() {
  const KvCacheConfig config = fetchedConfig();
  KvHarness fed(config);
  KvHarness filled(config);
  for (std::int64_t i = 0; i < 250; ++i) fed.feed(1);
  fill(filled, 250);
  for (std::int64_t i = 0; i < 150; ++i) {
    fed.feed(1);
    filled.feed(1);
    compareCounts(filled.cache().counts(), fed.cache().counts());
    if (QTest::currentTestFailed()) QFAIL(qPrintable(QString("%1 more tokens").arg(i + 1)));
  }
}

void RandomCacheTest::everyNumberIsRandomAndFinite() {
  KvHarness harness(fetchedConfig());
  fill(harness, 400);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const std::span<const kernels::PageRef> pages = harness.cache().pages(layer);
    QVERIFY(!pages.empty());
    std::vector<std::uint16_t> memory(2 * 2 * 32 * 8);
    for (const kernels::PageRef& page : pages) {
      auto* bytes = reinterpret_cast<std::byte*>(memory.data());
      const kernels::ExactSpan span{kernels::DataType::kF16, bytes, bytes + memory.size(), 32, 32};
      harness.backend().unpackPage(kShape, page, span);
      double squares = 0.0;
      for (const std::uint16_t half : memory) {
        const auto number = static_cast<double>(kernels::halfToFloat(half));
        QVERIFY(std::abs(number) < 8.0);
        squares += number * number;
      }
      QVERIFY(squares / static_cast<double>(memory.size()) > 0.5);
    }
  }
}

void RandomCacheTest::theSameSeedGivesTheSameContents() {
  KvHarness first({});
  KvHarness second({});
  KvHarness other({});
  fill(first, 700);
  fill(second, 700);
  fill(other, 700, 2);
  QVERIFY(first.snapshot() == second.snapshot());
  QVERIFY(first.snapshot() != other.snapshot());
}

void RandomCacheTest::whatStoodThereBeforeIsGone() {
  KvHarness fresh({});
  KvHarness used({});
  used.feed(500);
  fill(used, 333);
  fill(fresh, 333);
  QVERIFY(used.snapshot() == fresh.snapshot());
  fill(used, 0);
  QCOMPARE(used.cache().length(), std::int64_t{0});
  used.cache().clear();
  QCOMPARE(used.ledger().use().total(), std::uint64_t{0});
}

void RandomCacheTest::aStopLeavesTheCacheEmpty() {
  KvHarness harness({});
  harness.feed(50);
  std::stop_source source;
  source.request_stop();
  try {
    fillRandomly(harness.cache(), harness.backend(), kShape, kLayers, 100, 1, source.get_token());
    QFAIL("not stopped");
  } catch (const engine::Error& error) {
    QCOMPARE(error.code(), engine::ErrorCode::kCancelled);
  }
  QCOMPARE(harness.cache().length(), std::int64_t{0});
}

void RandomCacheTest::enginesDecodeBehindRandomTokens() {
  KvCacheConfig config;
  config.residualLength = 64;
  const auto engine = loadEngine(resourcePath("longhand-demo"), config);
  engine->fillCacheRandomly(900, 1, {});
  QCOMPARE(engine->memory().cachedTokens, std::int64_t{900});
  const std::vector<std::int32_t> prompt(engine->cachedTokens().begin(),
                                         engine->cachedTokens().end());
  QCOMPARE(std::ssize(prompt), 900);
  engine::GenerateOptions options = greedy(5);
  options.ignoresEndOfText = true;
  const engine::GenerateResult result = engine->generate(prompt, options, {}, {});
  QCOMPARE(std::ssize(result.tokens), 5);
  QCOMPARE(result.reusedTokens, std::int64_t{899});
  for (const float logit : engine->nextLogits(prompt)) QVERIFY(std::isfinite(logit));
}

/// What the next token reads is what the ledger counts, without the table of embeddings (of which
/// it reads one row) and the empty places of the residual.
void RandomCacheTest::bytesOfAStepAgreeWithThePlanOfMemory() {
  for (const int nbits : {16, 8, 4, 2}) {
    KvCacheConfig config;
    config.keyNbits = config.valueNbits = nbits;
    config.residualLength = 64;
    const auto engine = loadEngine(resourcePath("longhand-demo"), config);
    const std::int64_t nTokens = 4 + 64 + 64 * 12;  // sink, residual, whole pages
    engine->fillCacheRandomly(nTokens, 1, {});
    const engine::DecodeBytes read = engine->decodeBytes();
    const engine::MemoryUse use = engine->memory().use;
    QCOMPARE(read.kvCodes, use[engine::MemoryCategory::kKvCodes]);
    QCOMPARE(read.kvScales, use[engine::MemoryCategory::kKvScales]);
    const engine::ModelConfig& model = engine->modelConfig();
    const auto tokenBytes = static_cast<std::uint64_t>(2 * 2 * model.nKvHeads * model.headDim);
    const std::uint64_t unused =
        tokenBytes * static_cast<std::uint64_t>(config.groupSize * model.nLayers);
    QCOMPARE(read.kvExact + unused, use[engine::MemoryCategory::kKvExact]);

    const std::uint64_t rowBytes = static_cast<std::uint64_t>(model.hiddenSize) *
                                   (engine->weightFormat() == engine::WeightFormat::kF32 ? 4U : 2U);
    std::uint64_t weights = read.weights + read.weightScales;
    if (!model.tiedEmbeddings)
      weights += rowBytes * static_cast<std::uint64_t>(model.vocabSize - 1);
    const std::uint64_t held = engine->weightBytes();
    QVERIFY2(weights <= held && held - weights < held / 100,
             qPrintable(QString("%1 of %2").arg(weights).arg(held)));
  }
}

}  // namespace longhand

QTEST_GUILESS_MAIN(longhand::RandomCacheTest)
#include "random_cache_test.moc"
