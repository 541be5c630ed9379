#include "engine/cache/kv_cache.h"

#include <fstream>
#include <string>

#include <QTest>

#include "engine/base/error.h"
#include "tests/engine/cache/kv_harness.h"
#include "tests/support/golden_file.h"
#include "tests/support/paths.h"

#include <nlohmann/json.hpp>

namespace longhand {

using engine::KvCacheConfig;
using engine::MemoryCategory;
using kernels::DataType;
using tests::KvHarness;

namespace {

KvCacheConfig makeConfig(int nbits, int groupSize, std::int64_t residualLength,
                         std::int64_t sinkLength) {
  KvCacheConfig config;
  config.keyNbits = nbits;
  config.valueNbits = nbits;
  config.groupSize = groupSize;
  config.residualLength = residualLength;
  config.sinkLength = sinkLength;
  return config;
}

nlohmann::json readJson(const std::string& name) {
  std::ifstream file(tests::dataPath(name));
  return nlohmann::json::parse(file);
}

/// [kvHeads, tokens, headDim] to rows of tokens, tokens [first, first + count).
std::vector<float> tokenRows(const tests::GoldenTensor& tensor, std::int64_t first,
                             std::int64_t count) {
  const std::vector<float> all = tensor.floats();
  const std::int64_t nKvHeads = tensor.shape[0];
  const std::int64_t nTokens = tensor.shape[1];
  const std::int64_t headDim = tensor.shape[2];
  std::vector<float> rows;
  for (std::int64_t t = first; t < first + count; ++t) {
    for (std::int64_t h = 0; h < nKvHeads; ++h) {
      const auto begin = all.begin() + (h * nTokens + t) * headDim;
      rows.insert(rows.end(), begin, begin + headDim);
    }
  }
  return rows;
}

}  // namespace

class KvCacheTest : public QObject {
  Q_OBJECT

 private slots:
  void followsTheReferenceSchedule();
  void attentionEqualsTheReference_data();
  void attentionEqualsTheReference();
  void chunkingDoesNotChangeTheContents_data();
  void chunkingDoesNotChangeTheContents();
  void rolledBackChunkLeavesNoTrace_data();
  void rolledBackChunkLeavesNoTrace();
  void pageBytesNeverChange();
  void truncateEqualsACacheThatWasFedLess();
  void tokensAfterATruncatedPageStartInTheResidual();
  void truncateIntoTheSinkRefillsTheSink();
  void wholePagePrefixCutsNoQuantizedPage();
  void clearLeavesNothingAndEqualsAFreshCache();
  void firstLayersHaveTheirOwnBits();
  void sixteenBitsAreKeptPageByPage();
  void ledgerCountsWhatThePlanFormulasSay_data();
  void ledgerCountsWhatThePlanFormulasSay();
  void shrinkGivesBackWhatIsNotNeeded();
  void badConfigIsRefused();
};

void KvCacheTest::followsTheReferenceSchedule() {
  const nlohmann::json traces = readJson("kvquant/policy-trace.json").at("traces");
  for (const auto& trace : traces) {
    for (const int sink : {0, 4}) {
      const auto expected = trace.at("page_sink" + std::to_string(sink))
                                .at("packed")
                                .get<std::vector<std::int64_t>>();
      KvHarness harness(makeConfig(2, trace.at("group"), trace.at("residual"), sink), 1, {1, 1, 8});
      const std::int64_t prefill = trace.at("prefill");
      if (prefill > 0) harness.feed(prefill);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (i > 0) harness.feed(1);
        QCOMPARE(harness.cache().packedTokens(), expected[i]);
        QCOMPARE(harness.cache().length(), prefill + static_cast<std::int64_t>(i));
        QCOMPARE(harness.cache().exactTokens() + harness.cache().packedTokens(),
                 harness.cache().length());
      }
    }
  }
}

void KvCacheTest::attentionEqualsTheReference_data() {
  QTest::addColumn<QString>("name");
  QTest::addColumn<int>("nbits");
  QTest::addColumn<int>("group");
  QTest::addColumn<int>("residual");
  QTest::addColumn<int>("sink");
  QTest::newRow("exact") << "exact" << 16 << 64 << 32 << 4;
  QTest::newRow("f16") << "f16" << 16 << 32 << 0 << 0;
  for (const int nbits : {8, 4, 2}) {
    const int cases[][3] = {{32, 64, 0}, {32, 64, 4}, {64, 32, 4}, {32, 0, 4}, {64, 50, 1}};
    for (const auto& [group, residual, sink] : cases) {
      const QString name =
          QString("page-b%1-g%2-r%3-s%4").arg(nbits).arg(group).arg(residual).arg(sink);
      QTest::newRow(qPrintable(name)) << name << nbits << group << residual << sink;
    }
  }
}

void KvCacheTest::attentionEqualsTheReference() {
  QFETCH(QString, name);
  QFETCH(int, nbits);
  QFETCH(int, group);
  QFETCH(int, residual);
  QFETCH(int, sink);
  constexpr std::int64_t kPrefill = 150;
  constexpr std::int64_t kSteps = 42;
  constexpr std::int64_t kWidth = 128;  // 2 kv heads of 64
  const tests::GoldenFile inputs(tests::dataPath("kvquant/inputs.safetensors"));
  const tests::GoldenFile golden(tests::dataPath("kvquant/attention.safetensors"));
  const std::vector<float> expected = golden.at(name.toStdString()).floats();
  std::vector<float> queries = golden.at("q").floats();  // [42, 4, 64]

  KvCacheConfig config = makeConfig(nbits, group, residual, sink);
  if (name == "exact") config.exactType = DataType::kF32;
  const kernels::AttentionShape shape{4, 2, 64};
  KvHarness harness(config, 1, shape);
  engine::KvCache& cache = harness.cache();

  std::vector<float> keys = tokenRows(inputs.at("A.k"), 0, kPrefill);
  std::vector<float> values = tokenRows(inputs.at("A.v"), 0, kPrefill);
  cache.reserve(kPrefill + kSteps);
  cache.beginChunk(kPrefill);
  harness.append(0, keys, values, kPrefill);
  cache.commitChunk();

  double worst = 0.0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    keys = tokenRows(inputs.at("A.k"), kPrefill + step, 1);
    values = tokenRows(inputs.at("A.v"), kPrefill + step, 1);
    std::vector<std::byte> chunkBytes(2 * kernels::bytesOf(config.exactType, kWidth));
    const kernels::ExactSpan chunk{config.exactType, chunkBytes.data(),
                                   chunkBytes.data() + chunkBytes.size() / 2, 1, 1};
    harness.backend().storeExact(shape, {keys.data(), 1, kWidth, kWidth},
                                 {values.data(), 1, kWidth, kWidth}, chunk, 0);
    std::vector<float> output(256);
    harness.backend().attend(shape, 0.125F, {queries.data() + step * 256, 1, 256, 256},
                             cache.view(0), chunk, 0, {output.data(), 1, 256, 256});
    cache.beginChunk(1);
    cache.append(0, chunk);
    cache.commitChunk();
    for (std::size_t i = 0; i < output.size(); ++i) {
      const float want = expected[static_cast<std::size_t>(step) * 256 + i];
      worst = std::max(worst, std::abs(static_cast<double>(output[i] - want)));
    }
  }
  QVERIFY2(worst <= 1e-5, qPrintable(QString("largest difference %1").arg(worst)));
}

void KvCacheTest::chunkingDoesNotChangeTheContents_data() {
  QTest::addColumn<int>("group");
  QTest::addColumn<int>("residual");
  QTest::addColumn<int>("sink");
  QTest::newRow("usual") << 32 << 40 << 4;
  QTest::newRow("no residual, no sink") << 32 << 0 << 0;
  QTest::newRow("no residual") << 64 << 0 << 3;
  QTest::newRow("sink longer than the tokens") << 32 << 32 << 4096;
  QTest::newRow("group longer than the residual") << 128 << 5 << 1;
}

void KvCacheTest::chunkingDoesNotChangeTheContents() {
  QFETCH(int, group);
  QFETCH(int, residual);
  QFETCH(int, sink);
  const KvCacheConfig config = makeConfig(4, group, residual, sink);
  constexpr std::int64_t kTokens = 500;
  KvHarness whole(config);
  whole.feed(kTokens);
  for (const std::int64_t chunk : {1, 3, 31, 32, 33, 64, 100, 257, 499}) {
    KvHarness pieces(config);
    while (pieces.cache().length() < kTokens) {
      pieces.feed(std::min(chunk, kTokens - pieces.cache().length()));
    }
    QCOMPARE(pieces.snapshot(), whole.snapshot());
  }
}

void KvCacheTest::rolledBackChunkLeavesNoTrace_data() {
  QTest::addColumn<int>("residual");
  QTest::addColumn<int>("before");
  for (const int residual : {0, 20}) {
    for (const int before : {0, 2, 5, 50, 83, 84, 130}) {
      QTest::addRow("residual %d, %d tokens", residual, before) << residual << before;
    }
  }
}

void KvCacheTest::rolledBackChunkLeavesNoTrace() {
  QFETCH(int, residual);
  QFETCH(int, before);
  for (const std::int64_t chunk : {1, 2, 12, 32, 52, 60, 200}) {
    for (const std::int64_t appended : {0, 1, 3}) {  // of 3 layers
      KvHarness harness(makeConfig(4, 32, residual, 4), 3);
      if (before > 0) harness.feed(before);
      const std::vector<std::byte> expected = harness.snapshot();
      harness.cache().reserve(before + chunk);
      const std::uint64_t bytes = harness.ledger().use().total();

      harness.cache().beginChunk(chunk);
      for (std::int64_t layer = 0; layer < appended; ++layer) harness.appendLayer(layer, chunk);
      QCOMPARE(harness.cache().length(), before);
      harness.cache().rollbackChunk();

      QCOMPARE(harness.snapshot(), expected);
      QCOMPARE(harness.ledger().use().total(), bytes);
      harness.feed(chunk);
      KvHarness straight(makeConfig(4, 32, residual, 4), 3);
      straight.feed(before + chunk);
      QCOMPARE(harness.snapshot(), straight.snapshot());
    }
  }
}

void KvCacheTest::pageBytesNeverChange() {
  KvHarness harness(makeConfig(2, 32, 16, 4), 1);
  std::vector<std::vector<std::byte>> pages;
  for (int step = 0; step < 400; ++step) {
    harness.feed(1 + step % 3);
    const kernels::KvView view = harness.cache().view(0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(view.nPages); ++i) {
      const kernels::PageRef& page = view.pages[i];
      const std::size_t bytes = kernels::pageLayout(page.format, 2, 8).totalBytes;
      const std::vector<std::byte> now(page.data, page.data + bytes);
      if (i == pages.size()) pages.push_back(now);
      QCOMPARE(now, pages[i]);
    }
  }
  QVERIFY(pages.size() > 20);
}

void KvCacheTest::truncateEqualsACacheThatWasFedLess() {
  const KvCacheConfig config = makeConfig(4, 32, 20, 4);
  // From 200 tokens: 4 sink, 160 packed, 36 residual. Where no page is cut and the residual does
  // not run short of its promise, the result is bit-equal.
  for (const std::int64_t kept : {199, 190, 185, 184}) {
    KvHarness cut(config);
    cut.feed(200);
    cut.cache().truncate(kept);
    QCOMPARE(cut.cache().length(), kept);
    KvHarness fresh(config);
    fresh.feed(kept);
    QCOMPARE(cut.snapshot(), fresh.snapshot());
  }
  for (std::int64_t kept = 0; kept <= 200; ++kept) {
    KvHarness cut(config);
    cut.feed(200);
    cut.cache().truncate(kept);
    QCOMPARE(cut.cache().length(), kept);
    const kernels::KvView view = cut.cache().view(1);
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < view.nPages; ++i) {
      QVERIFY(view.pages[i].nTokens >= 1 && view.pages[i].nTokens <= 32);
      seen += view.pages[i].nTokens;
    }
    QCOMPARE(seen, view.nPagedTokens);
    for (const kernels::ExactSpan& span : view.exact) seen += span.nTokens;
    QCOMPARE(seen, kept);
  }
}

void KvCacheTest::tokensAfterATruncatedPageStartInTheResidual() {
  KvHarness harness(makeConfig(4, 32, 20, 4));
  harness.feed(200);
  harness.cache().truncate(50);  // 4 sink, one page of 32, one page cut to 14
  QCOMPARE(harness.cache().packedTokens(), 46);
  harness.feed(51);  // one less than a page takes
  QCOMPARE(harness.cache().packedTokens(), 46);
  QCOMPARE(harness.cache().view(0).pages[1].nTokens, std::uint16_t{14});
  harness.feed(1);
  QCOMPARE(harness.cache().packedTokens(), 46 + 32);
  QCOMPARE(harness.cache().view(0).nPages, 3);
  harness.feed(300);
  QCOMPARE(harness.cache().length(), 402);
}

void KvCacheTest::truncateIntoTheSinkRefillsTheSink() {
  const KvCacheConfig config = makeConfig(4, 32, 20, 10);
  KvHarness cut(config);
  cut.feed(200);
  cut.cache().truncate(3);
  cut.feed(197);
  KvHarness fresh(config);
  fresh.feed(200);
  QCOMPARE(cut.snapshot(), fresh.snapshot());
}

void KvCacheTest::wholePagePrefixCutsNoQuantizedPage() {
  KvHarness harness(makeConfig(4, 32, 20, 4));
  harness.feed(200);  // 4 sink, 160 packed, 36 residual
  const std::int64_t expected[][2] = {{0, 0},     {3, 3},     {4, 4},    {5, 4},
                                      {35, 4},    {36, 36},   {37, 36},  {163, 132},
                                      {164, 164}, {165, 165}, {200, 200}};
  for (const auto& [n, whole] : expected) QCOMPARE(harness.cache().wholePagePrefix(n), whole);
  KvHarness exact(makeConfig(16, 32, 20, 4));
  exact.feed(200);
  for (std::int64_t n = 0; n <= 200; ++n) QCOMPARE(exact.cache().wholePagePrefix(n), n);
}

void KvCacheTest::clearLeavesNothingAndEqualsAFreshCache() {
  const KvCacheConfig config = makeConfig(4, 32, 20, 4);
  KvHarness used(config);
  used.feed(300);
  used.cache().clear();
  QCOMPARE(used.cache().length(), 0);
  QCOMPARE(used.ledger().use().total(), std::uint64_t{0});
  used.feed(150);
  KvHarness fresh(config);
  fresh.feed(150);
  QCOMPARE(used.snapshot(), fresh.snapshot());
}

void KvCacheTest::firstLayersHaveTheirOwnBits() {
  KvCacheConfig config = makeConfig(2, 32, 0, 0);
  config.firstLayers = 2;
  config.firstLayersKeyNbits = 8;
  config.firstLayersValueNbits = 4;
  KvHarness harness(config, 4);
  harness.feed(70);
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    const kernels::KvView view = harness.cache().view(layer);
    QCOMPARE(view.nPages, 2);
    QCOMPARE(int{view.pages[1].format.keyNbits}, layer < 2 ? 8 : 2);
    QCOMPARE(int{view.pages[1].format.valueNbits}, layer < 2 ? 4 : 2);
  }
}

void KvCacheTest::sixteenBitsAreKeptPageByPage() {
  KvHarness harness(makeConfig(16, 32, 0, 0), 1);
  harness.feed(10);
  const std::uint64_t small = harness.ledger().use()[MemoryCategory::kKvExact];
  harness.feed(640);
  const std::uint64_t large = harness.ledger().use()[MemoryCategory::kKvExact];
  QCOMPARE(harness.cache().view(0).nPages, 20);
  QCOMPARE(large - small, std::uint64_t{20} * 32 * 2 * 8 * 2 * 2);  // 2 kv heads, K and V, 2 bytes
  QCOMPARE(harness.ledger().use()[MemoryCategory::kKvCodes], std::uint64_t{0});
}

void KvCacheTest::ledgerCountsWhatThePlanFormulasSay_data() {
  QTest::addColumn<int>("keyNbits");
  QTest::addColumn<int>("valueNbits");
  QTest::newRow("8/8") << 8 << 8;
  QTest::newRow("4/2") << 4 << 2;
  QTest::newRow("16/2") << 16 << 2;
  QTest::newRow("16/16") << 16 << 16;
}

void KvCacheTest::ledgerCountsWhatThePlanFormulasSay() {
  QFETCH(int, keyNbits);
  QFETCH(int, valueNbits);
  KvCacheConfig config = makeConfig(keyNbits, 32, 20, 4);
  config.valueNbits = valueNbits;
  config.firstLayers = 1;
  const kernels::AttentionShape shape{4, 2, 24};
  KvHarness harness(config, 3, shape);
  for (const std::int64_t tokens : {1, 100, 1000}) {
    harness.feed(tokens - harness.cache().length());
    QCOMPARE(harness.ledger().use().bytes, engine::kvCacheUse(config, shape, 3, tokens).bytes);
  }
}

void KvCacheTest::shrinkGivesBackWhatIsNotNeeded() {
  const KvCacheConfig config = makeConfig(4, 32, 20, 4);
  KvHarness harness(config);
  harness.feed(100);
  const engine::MemoryUse before = harness.ledger().use();
  harness.cache().reserve(5000);
  QVERIFY(harness.ledger().use().total() > 2 * before.total());
  harness.cache().shrinkTo(100);
  QCOMPARE(harness.ledger().use()[MemoryCategory::kKvCodes], before[MemoryCategory::kKvCodes]);
  harness.feed(400);
  KvHarness fresh(config);
  fresh.feed(500);
  QCOMPARE(harness.snapshot(), fresh.snapshot());
}

void KvCacheTest::badConfigIsRefused() {
  QVERIFY_EXCEPTION_THROWN(KvHarness(makeConfig(5, 32, 20, 4)), engine::Error);
  QVERIFY_EXCEPTION_THROWN(KvHarness(makeConfig(4, 48, 20, 4)), engine::Error);
  QVERIFY_EXCEPTION_THROWN(KvHarness(makeConfig(4, 32, -1, 4)), engine::Error);
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::KvCacheTest)
#include "kv_cache_test.moc"
