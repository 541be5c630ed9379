#include <cmath>
#include <vector>

#include <QtTest>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/test_backends.h"
#include "tests/kernels/test_matrix.h"

using namespace longhand::kernels;
using namespace longhand::tests;

namespace {

// The sum of squares, in at least 4 lanes, is off by at most cols / 4 + 4 roundings, its root by
// half of that; the root, the division and two products add 5.
double toleranceOf(double value, std::int64_t cols) {
  return std::abs(value) * kUnitRoundoff * (static_cast<double>(cols) / 8.0 + 8.0);
}

}  // namespace

class RmsNormTest : public QObject {
  Q_OBJECT

 private slots:
  void everyWidthEqualsTheSlowTwin_data() { addBackends(); }
  void everyWidthEqualsTheSlowTwin();
  void worksInPlace_data() { addBackends(); }
  void worksInPlace();
  void aRowOfZerosStaysZero_data() { addBackends(); }
  void aRowOfZerosStaysZero();
};

void RmsNormTest::everyWidthEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  const auto reference = createReferenceBackend();
  Random random(2);
  for (const std::int64_t nTokens : {1, 3, 40}) {
    for (std::int64_t cols = 1; cols <= 600; cols += cols < 70 ? 1 : 131) {
      TestMatrix input(nTokens, cols, 3, 1);
      TestMatrix weight(1, cols, 0, 1);
      TestMatrix actual(nTokens, cols, 1, 2);
      TestMatrix expected(nTokens, cols);
      input.fill(random, 3.0F);
      weight.fill(random);
      backend.rmsNorm(input.view(), weight.view().data, 1e-5F, actual.view());
      reference->rmsNorm(input.view(), weight.view().data, 1e-5F, expected.view());
      const std::string problem = firstMismatch(actual, expected, [&](auto row, auto col) {
        return toleranceOf(static_cast<double>(expected.at(row, col)), cols);
      });
      QVERIFY2(problem.empty(), problem.c_str());
      QVERIFY(actual.isPaddingUntouched());
    }
  }
}

void RmsNormTest::worksInPlace() {
  LONGHAND_FETCH_BACKEND();
  Random random(3);
  TestMatrix matrix(5, 77, 2);
  TestMatrix weight(1, 77);
  TestMatrix expected(5, 77);
  matrix.fill(random);
  weight.fill(random);
  createReferenceBackend()->rmsNorm(matrix.view(), weight.view().data, 1e-6F, expected.view());
  backend.rmsNorm(matrix.view(), weight.view().data, 1e-6F, matrix.view());
  const std::string problem = firstMismatch(matrix, expected, [&](auto row, auto col) {
    return toleranceOf(static_cast<double>(expected.at(row, col)), 77);
  });
  QVERIFY2(problem.empty(), problem.c_str());
}

void RmsNormTest::aRowOfZerosStaysZero() {
  LONGHAND_FETCH_BACKEND();
  std::vector<float> zeros(20, 0.0F);
  const std::vector<float> ones(20, 1.0F);
  backend.rmsNorm({zeros.data(), 1, 20, 20}, ones.data(), 1e-5F, {zeros.data(), 1, 20, 20});
  for (const float value : zeros) QCOMPARE(value, 0.0F);
}

QTEST_APPLESS_MAIN(RmsNormTest)
#include "rms_norm_test.moc"
