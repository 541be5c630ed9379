#include <vector>

#include <QtTest>

#include "kernels/checks/elementwise_check.h"
#include "kernels/checks/test_matrix.h"
#include "tests/kernels/test_backends.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;
using namespace longhand::tests;

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
  for (const std::int64_t nTokens : {1, 3, 40}) {
    for (std::int64_t cols = 1; cols <= 600; cols += cols < 70 ? 1 : 131) {
      const CheckResult result = checkRmsNorm(backend, nTokens, cols, false);
      QVERIFY2(result.isGood(), result.problem.c_str());
    }
  }
}

void RmsNormTest::worksInPlace() {
  LONGHAND_FETCH_BACKEND();
  const CheckResult result = checkRmsNorm(backend, 5, 77, true);
  QVERIFY2(result.isGood(), result.problem.c_str());
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
