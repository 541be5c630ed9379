// The memory strip: sums, small segments, forecast, words.
#include "ui/memory/memory_strip.h"

#include <QtTest>

#include "ui/style/format.h"

using namespace longhand;
using namespace longhand::ui;
using engine::MemoryCategory;

namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr std::uint64_t kGiB = 1024 * kMiB;

MemoryStripData large() {
  MemoryStripData data;
  data.totalBytes = 24 * kGiB;
  data.freeBytes = 4 * kGiB;
  data.processBytes = 18 * kGiB;
  data.deviceName = QStringLiteral("Test GPU");
  data.use[MemoryCategory::kWeights] = 4 * kGiB;
  data.use[MemoryCategory::kKvCodes] = 11 * kGiB;
  data.use[MemoryCategory::kKvScales] = kGiB;
  data.use[MemoryCategory::kKvExact] = 3 * kMiB;
  data.use[MemoryCategory::kWorkspace] = 512 * kMiB;
  return data;
}

MemoryStripData small() {
  MemoryStripData data;
  data.totalBytes = 24 * kGiB;
  data.freeBytes = 20 * kGiB;
  data.processBytes = 60 * kMiB;
  data.use[MemoryCategory::kWeights] = 20 * kMiB;
  data.use[MemoryCategory::kKvCodes] = 2 * kMiB;
  data.use[MemoryCategory::kKvScales] = 500 * 1024;
  data.use[MemoryCategory::kKvExact] = 800 * 1024;
  data.use[MemoryCategory::kWorkspace] = 4 * kMiB;
  return data;
}

std::uint64_t bytes(const MemoryStripData& data, MemorySegmentKind kind) {
  for (const MemorySegment& segment : memorySegments(data)) {
    if (segment.kind == kind) return segment.bytes;
  }
  return 0;
}

std::uint64_t sum(const MemoryStripData& data) {
  std::uint64_t total = 0;
  for (const MemorySegment& segment : memorySegments(data)) total += segment.bytes;
  return total;
}

}  // namespace

class MemoryStripTest : public QObject {
  Q_OBJECT

  const Theme theme_ = makeTheme(ThemeKind::kDark);

 private slots:
  void segmentsSumToTheDevicesTotal() {
    QCOMPARE(memorySegments(large()).size(), std::size_t{kMemorySegmentKinds});
    QCOMPARE(sum(large()), 24 * kGiB);
    QCOMPARE(sum(small()), 24 * kGiB);
    QCOMPARE(bytes(large(), MemorySegmentKind::kUnattributed), 18 * kGiB - 16 * kGiB - 515 * kMiB);
    QCOMPARE(bytes(large(), MemorySegmentKind::kOther), 2 * kGiB);
    QCOMPARE(bytes(large(), MemorySegmentKind::kFree), 4 * kGiB);
  }

  void ledgerWinsWhereTheProcessHoldsLess() {
    MemoryStripData data = large();
    data.processBytes = kGiB;  // reserved pages that were never touched
    data.freeBytes = 20 * kGiB;
    QCOMPARE(bytes(data, MemorySegmentKind::kUnattributed), std::uint64_t{0});
    QCOMPARE(bytes(data, MemorySegmentKind::kKvCodes), 11 * kGiB);
    QCOMPARE(sum(data), 24 * kGiB);
  }

  void contradictoryNumbersStillSumUp() {
    MemoryStripData data = large();
    data.totalBytes = 8 * kGiB;  // less than the ledger
    QCOMPARE(sum(data), 8 * kGiB);
    data.totalBytes = 0;
    QVERIFY(memorySegments(data).empty());
  }

  void bytesAreShownInBinaryUnits_data() {
    QTest::addColumn<quint64>("bytes");
    QTest::addColumn<QString>("text");
    QTest::newRow("B") << quint64{512} << QStringLiteral("512 B");
    QTest::newRow("KiB") << quint64{1536} << QStringLiteral("1.5 KiB");
    QTest::newRow("MiB") << quint64{25690112} << QStringLiteral("24.5 MiB");
    QTest::newRow("hundreds") << quint64{500 * kMiB} << QStringLiteral("500 MiB");
    QTest::newRow("GiB") << quint64{14710374564} << QStringLiteral("13.70 GiB");
  }
  void bytesAreShownInBinaryUnits() {
    QFETCH(quint64, bytes);
    QTEST(formatBytes(bytes), "text");
  }

  void everySegmentWithBytesCanBeSeenAndPointedAt_data() {
    QTest::addColumn<bool>("tiny");
    QTest::newRow("large model") << false;
    QTest::newRow("small model") << true;
  }
  void everySegmentWithBytesCanBeSeenAndPointedAt() {
    QFETCH(bool, tiny);
    MemoryStrip strip(theme_);
    strip.resize(900, strip.sizeHint().height());
    strip.setData(tiny ? small() : large());
    QCOMPARE(strip.isZoomed(), tiny);
    for (const MemorySegment& segment : memorySegments(strip.data())) {
      const QRectF rect = strip.segmentRect(segment.kind);
      QVERIFY2(rect.width() >= 3, qPrintable(memorySegmentName(segment.kind)));
      QVERIFY(rect.right() <= strip.width());
      const auto found = strip.segmentAt(rect.center().toPoint());
      QVERIFY(found.has_value());
      QCOMPARE(found->kind, segment.kind);
      QCOMPARE(found->bytes, segment.bytes);
    }
  }

  void smallModelsKvCacheIsVisibleInTheSecondBar() {
    MemoryStrip strip(theme_);
    strip.resize(900, 60);
    strip.setData(small());
    // 2 of 60 MiB; in the whole device's bar it would be the minimum of 3 pixels.
    QVERIFY(strip.segmentRect(MemorySegmentKind::kKvCodes).width() > 15);
    QVERIFY(strip.segmentRect(MemorySegmentKind::kKvCodes).top() >
            strip.segmentRect(MemorySegmentKind::kFree).top());
  }

  void hugeForecastDoesNotHideWhatIsThere() {
    MemoryStrip strip(theme_);
    strip.resize(900, 60);
    MemoryStripData data = small();
    data.forecast = data.use;
    (*data.forecast)[MemoryCategory::kKvCodes] = 500 * kGiB;
    strip.setData(data);
    QVERIFY(strip.segmentRect(MemorySegmentKind::kWeights).width() > 50);
  }

  void textEquivalentSaysEverything() {
    MemoryStrip strip(theme_);
    QCOMPARE(strip.accessibleDescription(), QStringLiteral("Memory: not known."));
    MemoryStripData data = large();
    data.forecast = data.use;
    (*data.forecast)[MemoryCategory::kKvCodes] = 30 * kGiB;
    data.forecastLabel = QStringLiteral("Quality, 100,000 tokens");
    strip.setData(data);
    const QString text = strip.accessibleDescription();
    for (const char* part :
         {"Test GPU, 24.00 GiB in all", "Weights 4.00 GiB", "KV codes 11.00 GiB",
          "KV scales 1.00 GiB", "Exact KV 3.0 MiB", "Workspace 512 MiB", "Other processes 2.00 GiB",
          "Free 4.00 GiB", "Forecast for Quality, 100,000 tokens: 35.50 GiB", "does not fit"}) {
      QVERIFY2(text.contains(QLatin1String(part)), qPrintable(text));
    }
  }

  void whatTheCacheReservedIsToldApartFromWhatItUses() {
    MemoryStrip strip(theme_);
    strip.resize(1600, 60);
    strip.setData(large());
    const QImage allUsed = strip.grab().toImage();
    const QRectF place = strip.segmentRect(MemorySegmentKind::kKvCodes);
    MemoryStripData data = large();
    data.unused[MemoryCategory::kKvCodes] = 5 * kGiB;
    strip.setData(data);
    QCOMPARE(strip.segmentRect(MemorySegmentKind::kKvCodes), place);
    QVERIFY(strip.textEquivalent().contains(u"KV codes 6.00 GiB"));
    QVERIFY(strip.textEquivalent().contains(u"reserved for the cache 5.00 GiB"));
    const QImage shown = strip.grab().toImage();
    const auto y = static_cast<int>(place.center().y());
    const auto left = static_cast<int>(place.left()) + 3;
    const auto right = static_cast<int>(place.right()) - 4;
    QCOMPARE(shown.pixel(left, y), allUsed.pixel(left, y));
    QVERIFY(shown.pixel(right, y) != allUsed.pixel(right, y));
  }

  void legendTakesASecondRowInANarrowWindow() {
    MemoryStrip strip(theme_);
    strip.resize(1600, 60);
    strip.setData(large());
    const int wide = strip.sizeHint().height();
    strip.resize(500, 60);
    QVERIFY(strip.sizeHint().height() > wide);
  }

  void forecastIsPainted() {
    MemoryStrip strip(theme_);
    strip.resize(900, 60);
    strip.setData(large());
    const QImage without = strip.grab().toImage();
    MemoryStripData data = large();
    data.forecast = data.use;
    strip.setData(data);
    QVERIFY(strip.grab().toImage() != without);
  }
};

QTEST_MAIN(MemoryStripTest)
#include "memory_strip_test.moc"
