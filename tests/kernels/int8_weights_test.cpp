#include "kernels/int8_weights.h"

#include <cmath>
#include <random>
#include <vector>

#include <QtTest>

#include "kernels/nf4.h"
#include "kernels/types.h"

using namespace longhand::kernels;

namespace {

struct Int8Row {
  explicit Int8Row(const std::vector<float>& values)
      : codes(values.size()), scales((values.size() + 63) / 64) {
    quantizeInt8(values, codes, scales);
  }
  WeightView view() const {
    WeightView weight;
    weight.type = DataType::kInt8;
    weight.rows = 1;
    weight.cols = static_cast<std::int64_t>(codes.size());
    weight.data = reinterpret_cast<const std::byte*>(codes.data());
    weight.scales = scales.data();
    return weight;
  }

  std::vector<std::int8_t> codes;
  std::vector<float> scales;
};

}  // namespace

class Int8WeightsTest : public QObject {
  Q_OBJECT

 private slots:
  void noValueIsFartherThanHalfAScale();
  void theLargestValueHasTheLargestCode();
  void blocksOfZerosStayZero();
  void aShortLastBlockHasItsOwnScale();
};

void Int8WeightsTest::noValueIsFartherThanHalfAScale() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<float> values(64 * 40 + 17);
  for (float& value : values) value = normal(random);
  const Int8Row row(values);
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const float scale = row.scales[static_cast<std::size_t>(i / kInt8BlockSize)];
    const float error = std::abs(weightAt(row.view(), 0, i) - values[static_cast<std::size_t>(i)]);
    // Half a scale, and the rounding of code * scale in float: 127 * 2^-24 of a scale.
    QVERIFY(error <= scale * (0.5F + 127.0F * 0x1p-23F));
  }
}

void Int8WeightsTest::theLargestValueHasTheLargestCode() {
  std::vector<float> values(64, 0.25F);
  values[5] = -3.0F;
  const Int8Row row(values);
  QCOMPARE(int{row.codes[5]}, -127);
  QCOMPARE(weightAt(row.view(), 0, 5), -3.0F);
  QCOMPARE(int{row.codes[6]}, 11);  // 0.25 / (3 / 127) = 10.58
}

void Int8WeightsTest::blocksOfZerosStayZero() {
  std::vector<float> values(128, 0.0F);
  values[64] = 1.0F;
  const Int8Row row(values);
  QCOMPARE(row.scales[0], 0.0F);
  for (std::int64_t i = 0; i < 64; ++i) QCOMPARE(weightAt(row.view(), 0, i), 0.0F);
  QCOMPARE(weightAt(row.view(), 0, 64), 1.0F);
}

void Int8WeightsTest::aShortLastBlockHasItsOwnScale() {
  std::vector<float> values(65, 127.0F);
  values[64] = 254.0F;
  const Int8Row row(values);
  QCOMPARE(row.scales, (std::vector<float>{1.0F, 2.0F}));
  QCOMPARE(int{row.codes[64]}, 127);
}

QTEST_APPLESS_MAIN(Int8WeightsTest)
#include "int8_weights_test.moc"
