// Converting a cache in place: which page gets which bits, what happens to exact tokens, how much
// memory it takes meanwhile, and what a cancel leaves.
#include <cmath>
#include <stdexcept>

#include <QTest>

#include "engine/base/error.h"
#include "engine/cache/conversion_cost.h"
#include "engine/cache/kv_arena.h"
#include "engine/cache/presets.h"
#include "kernels/reference/reference_kv.h"
#include "tests/engine/cache/kv_harness.h"

namespace longhand {

using engine::CacheConversion;
using engine::KvCacheConfig;
using engine::MemoryCategory;
using kernels::PageFormat;
using kernels::PageRef;
using tests::KvHarness;

namespace {

const kernels::AttentionShape kShape{4, 2, 8};

KvCacheConfig makeConfig(int keyNbits, int valueNbits) {
  KvCacheConfig config;
  config.keyNbits = keyNbits;
  config.valueNbits = valueNbits;
  config.groupSize = 32;
  config.residualLength = 20;
  config.sinkLength = 4;
  return config;
}

std::vector<std::byte> bytesOf(const PageRef& page) {
  const std::size_t bytes = kernels::pageLayout(page.format, 2, 8).totalBytes;
  return {page.data, page.data + bytes};
}

/// Exact numbers of a page: keys, then values, [2 kv heads][tokens][8].
std::vector<float> unpacked(const PageRef& page) {
  std::vector<float> numbers(2 * 2 * static_cast<std::size_t>(page.nTokens) * 8);
  auto* bytes = static_cast<std::byte*>(static_cast<void*>(numbers.data()));
  const kernels::ExactSpan span{kernels::DataType::kF32, bytes, bytes + numbers.size() * 2,
                                page.nTokens, page.nTokens};
  kernels::unpackPageReference(kShape, page, span);
  return numbers;
}

/// The plain way: all tokens of the page as F16, packed in the new format.
std::vector<std::byte> repacked(const PageRef& page, const PageFormat& format) {
  std::vector<std::byte> tokens(std::size_t{2} * 2 * page.format.groupSize * 8 * 2);
  const kernels::ExactSpan span{kernels::DataType::kF16, tokens.data(),
                                tokens.data() + tokens.size() / 2, page.format.groupSize,
                                page.nTokens};
  kernels::unpackPageReference(kShape, page, span);
  std::vector<std::byte> result(kernels::pageLayout(format, 2, 8).totalBytes);
  kernels::packPageReference(kShape, std::span(&span, 1), format, kernels::QuantSolver::kMinMax,
                             result.data());
  return result;
}

std::vector<PageRef> pagesOf(const KvHarness& harness, std::int64_t layer) {
  const kernels::KvView view = const_cast<KvHarness&>(harness).cache().view(layer);
  return {view.pages, view.pages + view.nPages};
}

std::uint64_t kvBytes(const engine::MemoryUse& use) {
  return use[MemoryCategory::kKvCodes] + use[MemoryCategory::kKvScales] +
         use[MemoryCategory::kKvExact];
}

CacheConversion convert(KvHarness& harness, const KvCacheConfig& config) {
  return harness.cache().convert(config, {}, {});
}

}  // namespace

class KvCacheConvertTest : public QObject {
  Q_OBJECT

 private slots:
  void formatIsDecidedForKeysAndValuesApart();
  void pagesEqualThePlainWay_data();
  void pagesEqualThePlainWay();
  void whatKeepsItsBitsKeepsItsCodes();
  void moreBitsLeavePagesAsTheyAre();
  void newPagesGetTheNewSettings();
  void firstLayersKeepTheirBits();
  void convertingTwiceEqualsConvertingTheResult();
  void cutPagesAreConvertedWithoutTheTokensThatAreGone();
  void shorterResidualIsPackedAtOnce();
  void longerResidualFillsUp();
  void sinkTokensStay();
  void exactTokensAreTheSameBeforeAndAfter();
  void memoryIsReallyFreed();
  void peakStaysBelowTheOldSizeAnd64MiB();
  void cancelledSmallConversionLeavesTheCacheAsItWas();
  void cancelledLargeConversionKeepsEveryToken();
  void throwingProgressLeavesTheCacheAsItWas();
  void windowForgetsAtOnceAndFreesItsMemory();
  void emptyCacheAdoptsTheSettings();
  void costSaysWhatConvertDoes();
  void badSettingsAreRefused();
  void switchingFiftyTimesTakesNoMoreMemory();
};

void KvCacheConvertTest::formatIsDecidedForKeysAndValuesApart() {
  const auto format = [](int key, int value) {
    PageFormat result;
    result.keyNbits = static_cast<std::uint8_t>(key);
    result.valueNbits = static_cast<std::uint8_t>(value);
    return result;
  };
  PageFormat wanted = format(4, 4);
  wanted.groupSize = 128;
  QCOMPARE(engine::convertedFormat(format(8, 2), wanted), format(4, 2));
  QCOMPARE(engine::convertedFormat(format(2, 2), wanted), format(2, 2));
  QCOMPARE(engine::convertedFormat(format(16, 16), wanted), format(4, 4));
  wanted.scheme = kernels::QuantScheme::kSymmetric;
  QCOMPARE(engine::convertedFormat(format(4, 4), wanted), format(4, 4));
  QCOMPARE(engine::convertedFormat(format(8, 4), wanted), format(4, 4));
  PageFormat symmetric = format(4, 4);
  symmetric.scheme = kernels::QuantScheme::kSymmetric;
  QCOMPARE(engine::convertedFormat(format(8, 8), wanted), symmetric);
}

void KvCacheConvertTest::pagesEqualThePlainWay_data() {
  QTest::addColumn<int>("from");
  QTest::addColumn<int>("to");
  QTest::addColumn<bool>("symmetric");
  for (const int from : {16, 8, 4}) {
    for (const int to : {8, 4, 2}) {
      if (to >= from) continue;
      for (const bool symmetric : {false, true}) {
        QTest::addRow("%d to %d, %s", from, to, symmetric ? "symmetric" : "asymmetric")
            << from << to << symmetric;
      }
    }
  }
}

void KvCacheConvertTest::pagesEqualThePlainWay() {
  QFETCH(int, from);
  QFETCH(int, to);
  QFETCH(bool, symmetric);
  KvHarness harness(makeConfig(from, from));
  harness.feed(500);
  std::vector<std::vector<std::byte>> expected;
  KvCacheConfig wanted = makeConfig(to, to);
  if (symmetric) wanted.scheme = kernels::QuantScheme::kSymmetric;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (const PageRef& page : pagesOf(harness, layer)) {
      expected.push_back(repacked(page, wanted.pageFormat(layer)));
    }
  }
  const CacheConversion result = convert(harness, wanted);
  QCOMPARE(result.pagesConverted, static_cast<std::int64_t>(expected.size()));
  QCOMPARE(result.tokensKept, 500);
  QVERIFY(result.isInPlace && !result.isCancelled);
  std::size_t next = 0;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (const PageRef& page : pagesOf(harness, layer)) {
      QCOMPARE(page.format, wanted.pageFormat(layer));
      QCOMPARE(bytesOf(page), expected[next++]);
    }
  }
  // From exact pages it is what packing them so from the start would have given.
  if (from == 16) {
    KvHarness fresh(wanted);
    fresh.feed(500);
    QCOMPARE(harness.snapshot(), fresh.snapshot());
  }
}

void KvCacheConvertTest::whatKeepsItsBitsKeepsItsCodes() {
  for (const bool keepsKeys : {false, true}) {
    KvHarness harness(makeConfig(keepsKeys ? 4 : 8, keepsKeys ? 8 : 2));
    harness.feed(300);
    std::vector<std::vector<float>> before;
    for (const PageRef& page : pagesOf(harness, 1)) before.push_back(unpacked(page));
    KvCacheConfig wanted = makeConfig(4, 4);
    wanted.scheme = kernels::QuantScheme::kSymmetric;  // does not hold for kept codes
    wanted.solver = kernels::QuantSolver::kHqq;
    convert(harness, wanted);
    const std::vector<PageRef> pages = pagesOf(harness, 1);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      QCOMPARE(int{pages[i].format.keyNbits}, 4);
      QCOMPARE(int{pages[i].format.valueNbits}, keepsKeys ? 4 : 2);
      const std::vector<float> after = unpacked(pages[i]);
      const std::ptrdiff_t half = std::ssize(after) / 2;
      const std::ptrdiff_t kept = keepsKeys ? 0 : half;
      QVERIFY(
          std::equal(after.begin() + kept, after.begin() + kept + half, before[i].begin() + kept));
      QVERIFY(!std::equal(after.begin() + half - kept, after.begin() + 2 * half - kept,
                          before[i].begin() + half - kept));
    }
  }
}

void KvCacheConvertTest::moreBitsLeavePagesAsTheyAre() {
  KvHarness harness(makeConfig(2, 4));
  harness.feed(300);
  const std::vector<std::byte> before = harness.snapshot();
  QCOMPARE(convert(harness, makeConfig(8, 4)).pagesConverted, 0);
  QCOMPARE(harness.snapshot(), before);
  QCOMPARE(harness.cache().config(), makeConfig(8, 4));
}

void KvCacheConvertTest::newPagesGetTheNewSettings() {
  KvHarness harness(makeConfig(8, 8));
  harness.feed(300);  // 8 pages
  KvCacheConfig wanted = makeConfig(4, 2);
  wanted.groupSize = 64;
  convert(harness, wanted);
  harness.feed(300);
  const std::vector<PageRef> pages = pagesOf(harness, 0);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    QCOMPARE(int{pages[i].format.keyNbits}, 4);
    QCOMPARE(int{pages[i].format.valueNbits}, 2);
    QCOMPARE(int{pages[i].format.groupSize}, i < 8 ? 32 : 64);
  }
  QVERIFY(pages.size() > 11);
  QCOMPARE(harness.cache().length(), 600);
}

void KvCacheConvertTest::firstLayersKeepTheirBits() {
  KvHarness harness(makeConfig(4, 4), 4);
  harness.feed(500);
  const std::vector<std::byte> first = harness.snapshot(0);
  KvCacheConfig wanted = makeConfig(2, 2);
  wanted.firstLayers = 2;
  const CacheConversion result = convert(harness, wanted);
  QCOMPARE(result.pagesConverted, 2 * static_cast<std::int64_t>(pagesOf(harness, 0).size()));
  QCOMPARE(harness.snapshot(0), first);
  QCOMPARE(int{pagesOf(harness, 1)[0].format.keyNbits}, 4);
  QCOMPARE(int{pagesOf(harness, 2)[0].format.keyNbits}, 2);
  // Pages that stay lay between those that went, and yet what these had is free.
  QCOMPARE(harness.ledger().use()[MemoryCategory::kKvCodes],
           engine::kvCacheUse(wanted, kShape, 4, 500)[MemoryCategory::kKvCodes]);
}

void KvCacheConvertTest::convertingTwiceEqualsConvertingTheResult() {
  KvHarness harness(makeConfig(8, 8));
  harness.feed(300);
  convert(harness, makeConfig(4, 8));
  std::vector<std::vector<std::byte>> expected;
  const PageFormat last = makeConfig(2, 2).pageFormat(0);
  for (const PageRef& page : pagesOf(harness, 0)) expected.push_back(repacked(page, last));
  convert(harness, makeConfig(2, 2));
  const std::vector<PageRef> pages = pagesOf(harness, 0);
  for (std::size_t i = 0; i < pages.size(); ++i) QCOMPARE(bytesOf(pages[i]), expected[i]);
  const std::vector<std::byte> once = harness.snapshot();
  QCOMPARE(convert(harness, makeConfig(2, 2)).pagesConverted, 0);
  QCOMPARE(harness.snapshot(), once);
}

void KvCacheConvertTest::cutPagesAreConvertedWithoutTheTokensThatAreGone() {
  for (const std::int64_t kept : {5, 37, 50, 67, 68}) {  // 1 to 32 tokens of the last page
    KvHarness harness(makeConfig(8, 8));
    harness.feed(300);
    harness.cache().truncate(kept);
    const std::vector<PageRef> before = pagesOf(harness, 0);
    const std::vector<float> old = unpacked(before.back());
    convert(harness, makeConfig(4, 4));
    const PageRef page = pagesOf(harness, 0).back();
    QCOMPARE(int{page.nTokens}, int{before.back().nTokens});
    const std::vector<float> now = unpacked(page);
    // The range of the valid tokens alone decides the error: half a step of it, and F16 rounding.
    const std::size_t perHead = std::size_t{page.nTokens} * 8;
    for (std::size_t head = 0; head < 2; ++head) {
      for (std::size_t channel = 0; channel < 8; ++channel) {
        float low = HUGE_VALF;
        float high = -HUGE_VALF;
        for (std::size_t t = 0; t < page.nTokens; ++t) {
          low = std::min(low, old[head * perHead + t * 8 + channel]);
          high = std::max(high, old[head * perHead + t * 8 + channel]);
        }
        const float step = (high - low) / 15.0F;
        for (std::size_t t = 0; t < page.nTokens; ++t) {
          const std::size_t i = head * perHead + t * 8 + channel;
          QVERIFY(std::abs(now[i] - old[i]) <= 0.5F * step + 0.01F);
        }
      }
    }
    harness.feed(200);
    QCOMPARE(harness.cache().length(), kept + 200);
  }
}

void KvCacheConvertTest::shorterResidualIsPackedAtOnce() {
  for (const int group : {32, 64, 128}) {
    KvCacheConfig config = makeConfig(16, 16);
    config.residualLength = 500;
    KvHarness harness(config);
    harness.feed(700);
    KvCacheConfig wanted = makeConfig(4, 4);
    wanted.groupSize = group;
    wanted.residualLength = 10;
    convert(harness, wanted);
    const std::int64_t residual = harness.cache().exactTokens() - 4;
    QVERIFY(residual >= 10 && residual < 10 + group);
    QCOMPARE(harness.cache().length(), 700);
    QCOMPARE(harness.ledger().use()[MemoryCategory::kKvExact],
             engine::kvCacheUse(wanted, kShape, 2, 700)[MemoryCategory::kKvExact]);
    if (group == 32) {
      KvHarness fresh(wanted);
      fresh.feed(700);
      QCOMPARE(harness.snapshot(), fresh.snapshot());
    }
    harness.feed(300);
    QCOMPARE(harness.cache().length(), 1000);
  }
}

void KvCacheConvertTest::longerResidualFillsUp() {
  KvHarness harness(makeConfig(4, 4));
  harness.feed(300);
  const std::int64_t packed = harness.cache().packedTokens();
  KvCacheConfig wanted = makeConfig(4, 4);
  wanted.residualLength = 100;
  convert(harness, wanted);
  QCOMPARE(harness.cache().packedTokens(), packed);
  harness.feed(91);  // to 131 in the residual
  QCOMPARE(harness.cache().packedTokens() - packed, 0);
  harness.feed(208);
  QVERIFY(harness.cache().exactTokens() - 4 >= 100);
  KvHarness fresh(wanted);
  fresh.feed(599);
  QCOMPARE(harness.snapshot(), fresh.snapshot());
}

void KvCacheConvertTest::sinkTokensStay() {
  KvHarness harness(makeConfig(4, 4));
  harness.feed(300);
  KvCacheConfig wanted = makeConfig(4, 4);
  for (const std::int64_t sink : {0, 10, 2}) {
    const std::vector<std::byte> before = harness.snapshot();
    wanted.sinkLength = sink;
    convert(harness, wanted);
    QCOMPARE(harness.snapshot(), before);
  }
  harness.feed(100);
  QCOMPARE(harness.cache().length(), 400);
  // Without tokens behind it a longer sink goes on filling up.
  harness.cache().truncate(3);
  wanted.sinkLength = 40;
  convert(harness, wanted);
  harness.feed(397);
  KvHarness fresh(wanted);
  fresh.feed(400);
  QCOMPARE(harness.snapshot(), fresh.snapshot());
}

void KvCacheConvertTest::exactTokensAreTheSameBeforeAndAfter() {
  // The ring's contents wrap round at 52 slots; conversion lays them out anew.
  for (std::int64_t tokens = 40; tokens < 150; ++tokens) {
    KvHarness harness(makeConfig(8, 8));
    harness.feed(tokens);
    KvCacheConfig wanted = makeConfig(8, 8);
    wanted.residualLength = 60;
    convert(harness, wanted);
    wanted.residualLength = 20;
    convert(harness, wanted);
    KvHarness fresh(wanted);
    fresh.feed(tokens);
    QCOMPARE(harness.snapshot(), fresh.snapshot());
    harness.feed(100);
    fresh.feed(100);
    QCOMPARE(harness.snapshot(), fresh.snapshot());
  }
}

void KvCacheConvertTest::memoryIsReallyFreed() {
  KvHarness harness(makeConfig(8, 8));
  harness.feed(3000);
  harness.cache().reserve(9000);
  const std::uint64_t before = kvBytes(harness.ledger().use());
  const CacheConversion result = convert(harness, makeConfig(2, 2));
  const std::uint64_t after = kvBytes(harness.ledger().use());
  QCOMPARE(result.bytesBefore, before);
  QCOMPARE(result.bytesAfter, after);
  QCOMPARE(result.freedBytes(), static_cast<std::int64_t>(before - after));
  QCOMPARE(after, kvBytes(engine::kvCacheUse(makeConfig(2, 2), kShape, 2, 3000)));
}

void KvCacheConvertTest::peakStaysBelowTheOldSizeAnd64MiB() {
  // 8 layers of 8 kv heads of 64: a page of 16 bits has 128 KiB, and the cache some 250 MiB.
  const kernels::AttentionShape shape{8, 8, 64};
  KvCacheConfig config = makeConfig(16, 16);
  config.groupSize = 64;
  const auto backend = kernels::createReferenceBackend();
  engine::MemoryLedger ledger;
  engine::KvCache cache(*backend, ledger, shape, 8, config);
  constexpr std::int64_t kTokens = 16000;
  std::vector<std::byte> numbers(kernels::bytesOf(kernels::DataType::kF16, kTokens * 512), {});
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    numbers[i] = static_cast<std::byte>(i * 7 / 3);
    numbers[i + 1] = static_cast<std::byte>(0x38U + i % 5);
  }
  cache.reserve(kTokens, kTokens);
  cache.beginChunk(kTokens);
  for (std::int64_t layer = 0; layer < 8; ++layer) {
    cache.append(layer,
                 {kernels::DataType::kF16, numbers.data(), numbers.data(), kTokens, kTokens});
  }
  cache.commitChunk();
  const std::uint64_t oldBytes = ledger.use().total();
  QVERIFY(oldBytes > std::uint64_t{200} << 20U);
  std::uint64_t peak = 0;
  int nReports = 0;
  const auto watch = [&](std::uint64_t done, std::uint64_t total) {
    ++nReports;
    QVERIFY(done <= total);
  };
  ledger.resetPeak();
  KvCacheConfig wanted = config;
  wanted.keyNbits = wanted.valueNbits = 8;
  wanted.firstLayers = 3;  // stay, and lie between those that go
  wanted.firstLayersKeyNbits = wanted.firstLayersValueNbits = 16;
  wanted.residualLength = 0;
  const CacheConversion result = cache.convert(wanted, watch, {});
  peak = ledger.peakTotal();
  QVERIFY2(
      peak < oldBytes + (std::uint64_t{64} << 20U),
      qPrintable(QString("%1 MiB over the old size")
                     .arg((static_cast<double>(peak) - static_cast<double>(oldBytes)) / 0x1p20)));
  QVERIFY(peak > oldBytes);
  QVERIFY(nReports >= 2);
  QVERIFY(result.freedBytes() > static_cast<std::int64_t>(oldBytes / 5));
  QCOMPARE(kvBytes(ledger.use()), result.bytesAfter);
}

void KvCacheConvertTest::cancelledSmallConversionLeavesTheCacheAsItWas() {
  KvHarness harness(makeConfig(8, 8));
  harness.feed(500);
  const std::vector<std::byte> before = harness.snapshot();
  const std::uint64_t bytes = kvBytes(harness.ledger().use());
  KvCacheConfig wanted = makeConfig(4, 4);
  wanted.residualLength = 100;
  wanted.slidingWindow = 50;
  for (const int pages : {0, 1, 20}) {
    std::stop_source source;
    int nSeen = 0;
    if (pages == 0) source.request_stop();
    const auto progress = [&](std::uint64_t, std::uint64_t) {
      if (nSeen++ >= 0) source.request_stop();
    };
    const CacheConversion result = harness.cache().convert(wanted, progress, source.get_token());
    QVERIFY(result.isCancelled);
    QCOMPARE(result.pagesConverted, 0);
    QCOMPARE(harness.snapshot(), before);
    QCOMPARE(harness.cache().config(), makeConfig(8, 8));
    QCOMPARE(kvBytes(harness.ledger().use()), bytes);
  }
  harness.feed(200);
  KvHarness fresh(makeConfig(8, 8));
  fresh.feed(700);
  QCOMPARE(harness.snapshot(), fresh.snapshot());
}

void KvCacheConvertTest::cancelledLargeConversionKeepsEveryToken() {
  const kernels::AttentionShape shape{4, 4, 64};
  KvCacheConfig config = makeConfig(16, 16);
  config.groupSize = 64;
  KvHarness harness(config, 2, shape);
  constexpr std::int64_t kTokens = 70000;  // 137 MiB in all, and half of it after the conversion
  harness.feed(kTokens);
  std::stop_source source;
  int nReports = 0;
  KvCacheConfig wanted = config;
  wanted.keyNbits = wanted.valueNbits = 8;
  const auto progress = [&](std::uint64_t done, std::uint64_t total) {
    ++nReports;
    if (done > total * 7 / 10) source.request_stop();
  };
  const CacheConversion result = harness.cache().convert(wanted, progress, source.get_token());
  if (!result.isCancelled) QSKIP("the conversion was faster than its progress");
  QVERIFY(result.pagesConverted > 0);
  QCOMPARE(harness.cache().config(), config);
  std::int64_t tokens = 0;
  std::int64_t nConverted = 0;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (const PageRef& page : pagesOf(harness, layer)) {
      tokens += page.nTokens;
      nConverted += page.format.keyNbits == 8 ? 1 : 0;
    }
  }
  QCOMPARE(tokens, 2 * harness.cache().packedTokens());
  QCOMPARE(nConverted, result.pagesConverted);
  QCOMPARE(harness.cache().length(), kTokens);
  harness.feed(100);
  convert(harness, wanted);
  QCOMPARE(kvBytes(harness.ledger().use()),
           kvBytes(engine::kvCacheUse(wanted, shape, 2, kTokens + 100)));
}

void KvCacheConvertTest::throwingProgressLeavesTheCacheAsItWas() {
  KvHarness harness(makeConfig(8, 8));
  harness.feed(500);
  const std::vector<std::byte> before = harness.snapshot();
  for (const bool atOnce : {true, false}) {
    const auto progress = [&](std::uint64_t done, std::uint64_t) {
      if (atOnce || done > 0) throw std::runtime_error("the window is gone");
    };
    QVERIFY_EXCEPTION_THROWN(harness.cache().convert(makeConfig(2, 2), progress, {}),
                             std::runtime_error);
    QCOMPARE(harness.snapshot(), before);
    QCOMPARE(harness.cache().config(), makeConfig(8, 8));
  }
  QVERIFY(convert(harness, makeConfig(2, 2)).pagesConverted > 0);
}

void KvCacheConvertTest::windowForgetsAtOnceAndFreesItsMemory() {
  KvHarness harness(makeConfig(8, 8), 3);
  for (int i = 0; i < 30; ++i) harness.feed(100);
  KvCacheConfig wanted = makeConfig(8, 8);
  wanted.slidingWindow = 300;
  const CacheConversion result = convert(harness, wanted);
  QCOMPARE(result.pagesConverted, 0);
  KvHarness fresh(wanted, 3);
  fresh.feed(3000);
  QCOMPARE(harness.cache().forgottenTokens(), fresh.cache().forgottenTokens());
  QCOMPARE(harness.snapshot(), fresh.snapshot());
  QVERIFY(kvBytes(harness.ledger().use()) <= kvBytes(fresh.ledger().use()));
  // Off again: what was forgotten is gone, and nothing more is.
  convert(harness, makeConfig(8, 8));
  const std::int64_t forgotten = harness.cache().forgottenTokens();
  harness.feed(1000);
  QCOMPARE(harness.cache().forgottenTokens(), forgotten);
  QVERIFY(!harness.cache().canTruncateTo(1000));
}

void KvCacheConvertTest::emptyCacheAdoptsTheSettings() {
  KvHarness harness(makeConfig(8, 8));
  harness.cache().reserve(1000);
  convert(harness, makeConfig(4, 4));
  QCOMPARE(harness.ledger().use().total(), std::uint64_t{0});
  harness.feed(300);
  KvHarness fresh(makeConfig(4, 4));
  fresh.feed(300);
  QCOMPARE(harness.snapshot(), fresh.snapshot());
}

void KvCacheConvertTest::costSaysWhatConvertDoes() {
  KvHarness harness(makeConfig(8, 2));
  harness.feed(500);
  KvCacheConfig wanted = makeConfig(4, 4);
  wanted.residualLength = 0;
  const engine::ConvertCost cost =
      engine::convertCost(harness.cache().contents(), kShape, 2, wanted, 1000);
  QVERIFY(cost.isInPlace);
  QCOMPARE(cost.tokensToRead, 0);
  QCOMPARE(cost.tokensBelowBits, harness.cache().packedTokens());
  QCOMPARE(cost.bytesBefore, kvBytes(harness.ledger().use()));
  const CacheConversion result = convert(harness, wanted);
  QCOMPARE(cost.pagesToConvert, result.pagesConverted);
  QCOMPARE(cost.bytesAfter, kvBytes(harness.ledger().use()));

  const engine::ConvertCost tooLong =
      engine::convertCost(harness.cache().contents(), kShape, 2, wanted, 400);
  QVERIFY(!tooLong.isInPlace);
  QCOMPARE(tooLong.tokensToRead, 500);
}

void KvCacheConvertTest::badSettingsAreRefused() {
  KvHarness harness(makeConfig(8, 8));
  harness.feed(200);
  const std::vector<std::byte> before = harness.snapshot();
  QVERIFY_EXCEPTION_THROWN(convert(harness, makeConfig(5, 8)), engine::Error);
  KvCacheConfig otherType = makeConfig(4, 4);
  otherType.exactType = kernels::DataType::kF32;
  QVERIFY_EXCEPTION_THROWN(convert(harness, otherType), engine::Error);
  QCOMPARE(harness.snapshot(), before);
}

void KvCacheConvertTest::switchingFiftyTimesTakesNoMoreMemory() {
  KvHarness harness(engine::presetById("exact").cache, 4);
  harness.feed(1000);
  std::uint64_t low = 0;
  for (int i = 0; i < 50; ++i) {
    const auto& presets = engine::builtInPresets();
    convert(harness, presets[static_cast<std::size_t>(i * 3) % presets.size()].cache);
    harness.feed(1);
    QCOMPARE(harness.cache().length(), 1001 + i);
    if (i == 9) low = kvBytes(harness.ledger().use());
  }
  convert(harness, engine::presetById("memory-limit").cache);
  QVERIFY(kvBytes(harness.ledger().use()) <= low);
  harness.cache().clear();
  QCOMPARE(harness.ledger().use().total(), std::uint64_t{0});
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::KvCacheConvertTest)
#include "kv_cache_convert_test.moc"
