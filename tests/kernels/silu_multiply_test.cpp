#include <cmath>
#include <limits>

#include <QtTest>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/test_backends.h"
#include "tests/kernels/test_matrix.h"

using namespace longhand::kernels;
using namespace longhand::tests;

namespace {

// e^x is within 2 units in the last place (4 roundings), 1 + e^x, the division, the product and
// the twin add one each: 8. Where gate < -88.3 the exponential is clamped: both values are then
// nearer to 0 than |gate| e^-88.3, which is 5e-37 for a gate of -110.
double toleranceOf(float gate, float up, double expected) {
  const double clamped =
      gate < -88.2F
          ? std::abs(static_cast<double>(gate) * static_cast<double>(up)) * std::exp(-88.2)
          : 0.0;
  return 8.0 * kUnitRoundoff * std::abs(expected) + clamped +
         static_cast<double>(std::numeric_limits<float>::denorm_min());
}

}  // namespace

class SiluMultiplyTest : public QObject {
  Q_OBJECT

 private slots:
  void everyWidthEqualsTheSlowTwin_data() { addBackends(); }
  void everyWidthEqualsTheSlowTwin();
  void theWholeRangeIsAccurate_data() { addBackends(); }
  void theWholeRangeIsAccurate();
  void nanStaysNan_data() { addBackends(); }
  void nanStaysNan();

 private:
  static std::string compare(Backend& backend, TestMatrix& gate, TestMatrix& up);
};

std::string SiluMultiplyTest::compare(Backend& backend, TestMatrix& gate, TestMatrix& up) {
  const MatrixView shape = gate.view();
  TestMatrix before(shape.rows, shape.cols);
  TestMatrix expected(shape.rows, shape.cols);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      before.at(row, col) = expected.at(row, col) = gate.at(row, col);
    }
  }
  backend.siluMultiply(gate.view(), up.view());
  createReferenceBackend()->siluMultiply(expected.view(), up.view());
  return firstMismatch(gate, expected, [&](auto row, auto col) {
    return toleranceOf(before.at(row, col), up.at(row, col),
                       static_cast<double>(expected.at(row, col)));
  });
}

void SiluMultiplyTest::everyWidthEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  Random random(5);
  for (const std::int64_t nTokens : {1, 3, 300}) {
    for (std::int64_t cols = 1; cols <= 70; ++cols) {
      TestMatrix gate(nTokens, cols, 3, 1);
      TestMatrix up(nTokens, cols, 2);
      gate.fill(random, 4.0F);
      up.fill(random);
      const std::string problem = compare(backend, gate, up);
      QVERIFY2(problem.empty(), problem.c_str());
      QVERIFY(gate.isPaddingUntouched());
    }
  }
}

void SiluMultiplyTest::theWholeRangeIsAccurate() {
  LONGHAND_FETCH_BACKEND();
  constexpr std::int64_t kCount = 440'001;  // -110 to 110 in steps of 0.0005
  TestMatrix gate(1, kCount);
  TestMatrix up(1, kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    gate.at(0, i) = -110.0F + static_cast<float>(i) * 0.0005F;
    up.at(0, i) = i % 2 == 0 ? 1.0F : -0.7F;
  }
  const std::string problem = compare(backend, gate, up);
  QVERIFY2(problem.empty(), problem.c_str());
}

void SiluMultiplyTest::nanStaysNan() {
  LONGHAND_FETCH_BACKEND();
  for (std::int64_t position = 0; position < 37; ++position) {
    std::vector<float> gate(37, 1.0F);
    std::vector<float> up(37, 1.0F);
    gate[static_cast<std::size_t>(position)] = std::numeric_limits<float>::quiet_NaN();
    backend.siluMultiply({gate.data(), 1, 37, 37}, {up.data(), 1, 37, 37});
    for (std::int64_t i = 0; i < 37; ++i) {
      QCOMPARE(std::isnan(gate[static_cast<std::size_t>(i)]), i == position);
    }
  }
}

QTEST_APPLESS_MAIN(SiluMultiplyTest)
#include "silu_multiply_test.moc"
