#include "kernels/page_layout.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/checks/kv_scene.h"

using namespace longhand::kernels;
using longhand::kernels::checks::pageFormat;

namespace {

struct Part {
  std::size_t start;
  std::size_t bytes;
};

/// Start and unpadded size of each part, computed from the description in page_layout.h.
std::vector<Part> partsOf(const PageFormat& format, const PageLayout& layout, std::size_t nKvHeads,
                          std::size_t headDim) {
  const std::size_t group = format.groupSize;
  const std::size_t exactBytes =
      nKvHeads * group * headDim * (format.exactType == DataType::kF32 ? 4 : 2);
  const std::size_t keyWords = (headDim * format.keyNbits + 31) / 32;
  const std::size_t valueGroups =
      (headDim + std::min(group, headDim) - 1) / std::min(group, headDim);
  std::vector<Part> parts;
  parts.push_back(
      {layout.keyCodes, format.keyNbits == 16 ? exactBytes : nKvHeads * keyWords * group * 4});
  parts.push_back({layout.valueCodes, format.valueNbits == 16
                                          ? exactBytes
                                          : nKvHeads * group * headDim * format.valueNbits / 8});
  const auto add = [&](std::size_t start, std::size_t count) {
    if (start != kNoPart) parts.push_back({start, count * 2});
  };
  add(layout.keyScales, nKvHeads * headDim);
  add(layout.keyMins, nKvHeads * headDim);
  add(layout.valueScales, nKvHeads * valueGroups * group);
  add(layout.valueMins, nKvHeads * valueGroups * group);
  return parts;
}

}  // namespace

class PageLayoutTest : public QObject {
  Q_OBJECT

 private slots:
  void partsAreAlignedAndDoNotOverlap();
  void partsExistWhereTheFormatHasThem();
  void bytesOfLlama2AreThoseOfTheDesign_data();
  void bytesOfLlama2AreThoseOfTheDesign();
  void onlyKnownFormatsAreValid();
};

void PageLayoutTest::partsAreAlignedAndDoNotOverlap() {
  for (const std::int64_t headDim : {8, 10, 64, 80, 100, 128, 256}) {
    for (const std::int64_t nKvHeads : {1, 3, 32}) {
      for (const int keyNbits : {16, 8, 4, 2}) {
        for (const int valueNbits : {16, 8, 4, 2}) {
          for (const int groupSize : {32, 64, 128}) {
            const PageFormat format = pageFormat(keyNbits, valueNbits, groupSize);
            const PageLayout layout = pageLayout(format, nKvHeads, headDim);
            std::size_t end = 0;
            for (const Part& part : partsOf(format, layout, static_cast<std::size_t>(nKvHeads),
                                            static_cast<std::size_t>(headDim))) {
              QCOMPARE(part.start % kPartAlignmentBytes, std::size_t{0});
              QVERIFY(part.start >= end);
              QVERIFY(part.start - end < kPartAlignmentBytes);  // nothing is wasted
              end = part.start + part.bytes;
            }
            QVERIFY(layout.totalBytes >= end && layout.totalBytes - end < kPartAlignmentBytes);
            QCOMPARE(layout.totalBytes % kPartAlignmentBytes, std::size_t{0});
            QCOMPARE(layout.codeBytes + layout.scaleBytes, layout.totalBytes);
          }
        }
      }
    }
  }
}

void PageLayoutTest::partsExistWhereTheFormatHasThem() {
  const PageLayout asymmetric = pageLayout(pageFormat(4, 2, 64), 2, 80);
  QVERIFY(asymmetric.keyMins != kNoPart && asymmetric.valueMins != kNoPart);
  QCOMPARE(asymmetric.keyWords, std::int64_t{10});
  QCOMPARE(asymmetric.valueWords, std::int64_t{4});
  QCOMPARE(asymmetric.valueGroupSize, std::int64_t{64});
  QCOMPARE(asymmetric.nValueGroups, std::int64_t{2});  // 64 and 16 channels
  const PageLayout symmetric = pageLayout(pageFormat(4, 2, 64, QuantScheme::kSymmetric), 2, 80);
  QVERIFY(symmetric.keyScales != kNoPart && symmetric.valueScales != kNoPart);
  QVERIFY(symmetric.keyMins == kNoPart && symmetric.valueMins == kNoPart);
  const PageLayout exactKeys = pageLayout(pageFormat(16, 8, 64), 2, 80);
  QVERIFY(exactKeys.keyScales == kNoPart && exactKeys.valueScales != kNoPart);
  const PageLayout exact = pageLayout(pageFormat(16, 16, 32), 2, 80);
  QCOMPARE(exact.scaleBytes, std::size_t{0});
  QCOMPARE(exact.totalBytes, std::size_t{2 * 2 * 32 * 80 * 2});
}

void PageLayoutTest::bytesOfLlama2AreThoseOfTheDesign_data() {
  QTest::addColumn<int>("keyNbits");
  QTest::addColumn<int>("valueNbits");
  QTest::addColumn<double>("gib");  // of 100,000 tokens
  QTest::newRow("FP16") << 16 << 16 << 48.8;
  QTest::newRow("int8") << 8 << 8 << 25.9;
  QTest::newRow("int4") << 4 << 4 << 13.7;
  QTest::newRow("K4V2") << 4 << 2 << 10.7;
  QTest::newRow("int2") << 2 << 2 << 7.6;
}

void PageLayoutTest::bytesOfLlama2AreThoseOfTheDesign() {
  QFETCH(int, keyNbits);
  QFETCH(int, valueNbits);
  QFETCH(double, gib);
  const PageLayout layout = pageLayout(pageFormat(keyNbits, valueNbits, 64), 32, 128);
  const double bytes = 100'000.0 / 64.0 * 32.0 * static_cast<double>(layout.totalBytes);
  QVERIFY(std::fabs(bytes / (1024.0 * 1024.0 * 1024.0) - gib) < 0.06);
}

void PageLayoutTest::onlyKnownFormatsAreValid() {
  QVERIFY(isValid(pageFormat(16, 2, 128)));
  QVERIFY(!isValid(pageFormat(3, 4, 64)));
  QVERIFY(!isValid(pageFormat(4, 0, 64)));
  QVERIFY(!isValid(pageFormat(4, 4, 48)));
  QVERIFY(!isValid(pageFormat(4, 4, 64, static_cast<QuantScheme>(2))));
  QVERIFY(!isValid(pageFormat(4, 4, 64, QuantScheme::kAsymmetric, DataType::kBF16)));
}

QTEST_APPLESS_MAIN(PageLayoutTest)
#include "page_layout_test.moc"
