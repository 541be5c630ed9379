#include "kernels/half.h"

#include <cmath>
#include <limits>

#include <QtTest>

using namespace longhand::kernels;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a 16-bit format means, from its definition: sign, exponent bits, fraction bits.
double valueOf(std::uint16_t bits, int exponentBits, int fractionBits) {
  const int bias = (1 << (exponentBits - 1)) - 1;
  const int exponent = (bits >> fractionBits) & ((1 << exponentBits) - 1);
  const int fraction = bits & ((1 << fractionBits) - 1);
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponentBits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fractionBits);
  return sign * std::ldexp(fraction + (1 << fractionBits), exponent - bias - fractionBits);
}

// Between each two neighbours: the middle goes to the even one, anything else to the nearer one.
template <typename Round>
void checkRounding(std::uint16_t lastFinite, int exponentBits, int fractionBits,
                   const Round& round) {
  for (unsigned bits = 0; bits < lastFinite; ++bits) {
    const std::uint16_t low = static_cast<std::uint16_t>(bits);
    const std::uint16_t high = static_cast<std::uint16_t>(bits + 1);
    const float middle = static_cast<float>(
        (valueOf(low, exponentBits, fractionBits) + valueOf(high, exponentBits, fractionBits)) /
        2.0);
    const std::uint16_t even = bits % 2 == 0 ? low : high;
    QCOMPARE(round(middle), even);
    QCOMPARE(round(std::nextafter(middle, 0.0F)), low);
    QCOMPARE(round(std::nextafter(middle, kInfinity)), high);
    QCOMPARE(round(-middle), static_cast<std::uint16_t>(even | 0x8000U));
  }
}

}  // namespace

class HalfTest : public QObject {
  Q_OBJECT

 private slots:
  void everyHalfHasItsValue();
  void everyBfloatHasItsValue();
  void everyHalfSurvivesTheRoundTrip();
  void floatsRoundToTheNearestHalf();
  void floatsRoundToTheNearestBfloat();
  void overflowBecomesInfinity();
  void nanStaysNan();
};

void HalfTest::everyHalfHasItsValue() {
  for (unsigned i = 0; i < 65536; ++i) {
    const std::uint16_t bits = static_cast<std::uint16_t>(i);
    const double expected = valueOf(bits, 5, 10);
    const float actual = halfToFloat(bits);
    QCOMPARE(std::signbit(actual), (bits & 0x8000U) != 0);
    QVERIFY(std::isnan(expected) ? std::isnan(actual) : static_cast<double>(actual) == expected);
  }
}

void HalfTest::everyBfloatHasItsValue() {
  for (unsigned i = 0; i < 65536; ++i) {
    const std::uint16_t bits = static_cast<std::uint16_t>(i);
    const double expected = valueOf(bits, 8, 7);
    const float actual = bfloatToFloat(bits);
    QCOMPARE(std::signbit(actual), (bits & 0x8000U) != 0);
    QVERIFY(std::isnan(expected) ? std::isnan(actual) : static_cast<double>(actual) == expected);
  }
}

void HalfTest::everyHalfSurvivesTheRoundTrip() {
  for (unsigned i = 0; i < 65536; ++i) {
    const std::uint16_t bits = static_cast<std::uint16_t>(i);
    if (std::isnan(halfToFloat(bits))) continue;
    QCOMPARE(floatToHalf(halfToFloat(bits)), bits);
    if (!std::isnan(bfloatToFloat(bits))) QCOMPARE(floatToBfloat(bfloatToFloat(bits)), bits);
  }
}

void HalfTest::floatsRoundToTheNearestHalf() { checkRounding(0x7bff, 5, 10, floatToHalf); }

void HalfTest::floatsRoundToTheNearestBfloat() { checkRounding(0x7f7f, 8, 7, floatToBfloat); }

void HalfTest::overflowBecomesInfinity() {
  QCOMPARE(floatToHalf(65519.996F), std::uint16_t{0x7bff});
  QCOMPARE(floatToHalf(65520.0F), std::uint16_t{0x7c00});
  QCOMPARE(floatToHalf(-1e30F), std::uint16_t{0xfc00});
  QCOMPARE(floatToHalf(kInfinity), std::uint16_t{0x7c00});
  QCOMPARE(floatToBfloat(std::numeric_limits<float>::max()), std::uint16_t{0x7f80});
  QCOMPARE(floatToHalf(0x1p-25F), std::uint16_t{0});  // half of the least: ties to even
}

void HalfTest::nanStaysNan() {
  for (const std::uint32_t bits : {0x7f800001U, 0x7fc00000U, 0xffffffffU, 0x7f801fffU}) {
    const float nan = std::bit_cast<float>(bits);
    QVERIFY(std::isnan(halfToFloat(floatToHalf(nan))));
    QVERIFY(std::isnan(bfloatToFloat(floatToBfloat(nan))));
  }
}

QTEST_APPLESS_MAIN(HalfTest)
#include "half_test.moc"
