#include <cmath>
#include <limits>

#include <QtTest>

#include "kernels/checks/elementwise_check.h"
#include "kernels/checks/test_matrix.h"
#include "tests/kernels/test_backends.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;
using namespace longhand::tests;

class SiluMultiplyTest : public QObject {
  Q_OBJECT

 private slots:
  void everyWidthEqualsTheSlowTwin_data() { addBackends(); }
  void everyWidthEqualsTheSlowTwin();
  void theWholeRangeIsAccurate_data() { addBackends(); }
  void theWholeRangeIsAccurate();
  void nanStaysNan_data() { addBackends(); }
  void nanStaysNan();
};

void SiluMultiplyTest::everyWidthEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  for (const std::int64_t nTokens : {1, 3, 300}) {
    for (std::int64_t cols = 1; cols <= 70; ++cols) {
      const CheckResult result = checkSiluMultiply(backend, nTokens, cols, 4.0F);
      QVERIFY2(result.isGood(), result.problem.c_str());
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
  const CheckResult result = checkSiluMultiply(backend, gate, up);
  QVERIFY2(result.isGood(), result.problem.c_str());
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
