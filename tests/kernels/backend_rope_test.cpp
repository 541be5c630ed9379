#include <cmath>

#include <QtTest>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/test_backends.h"
#include "tests/kernels/test_matrix.h"

using namespace longhand::kernels;
using namespace longhand::tests;

class BackendRopeTest : public QObject {
  Q_OBJECT

 private slots:
  void everyHeadSizeEqualsTheSlowTwin_data() { addBackends(); }
  void everyHeadSizeEqualsTheSlowTwin();
  void aQuarterTurnSwapsTheHalves_data() { addBackends(); }
  void aQuarterTurnSwapsTheHalves();
};

void BackendRopeTest::everyHeadSizeEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  const auto reference = createReferenceBackend();
  Random random(4);
  for (const std::int64_t nTokens : {1, 2, 90}) {
    for (std::int64_t headDim = 2; headDim <= 256; headDim += headDim < 72 ? 2 : 46) {
      const std::int64_t cols = 3 * headDim;
      TestMatrix actual(nTokens, cols, 1, 1);
      TestMatrix before(nTokens, cols);
      TestMatrix expected(nTokens, cols);
      TestMatrix cosSin(nTokens, headDim);
      before.fill(random);
      for (std::int64_t row = 0; row < nTokens; ++row) {
        for (std::int64_t col = 0; col < cols; ++col) {
          actual.at(row, col) = expected.at(row, col) = before.at(row, col);
        }
        for (std::int64_t i = 0; i < headDim / 2; ++i) {
          const float angle = static_cast<float>(random() % 1000) * 0.01F;
          cosSin.at(row, i) = std::cos(angle);
          cosSin.at(row, headDim / 2 + i) = std::sin(angle);
        }
      }
      backend.rope(actual.view(), headDim, cosSin.view().data);
      reference->rope(expected.view(), headDim, cosSin.view().data);
      // Two products and a sum: at most 2 roundings of each product, and the twin's own.
      const std::string problem = firstMismatch(actual, expected, [&](auto row, auto col) {
        const std::int64_t partner =
            col % headDim < headDim / 2 ? col + headDim / 2 : col - headDim / 2;
        return 3.0 * kUnitRoundoff *
               (std::abs(static_cast<double>(before.at(row, col))) +
                std::abs(static_cast<double>(before.at(row, partner))));
      });
      QVERIFY2(problem.empty(), problem.c_str());
      QVERIFY(actual.isPaddingUntouched());
    }
  }
}

void BackendRopeTest::aQuarterTurnSwapsTheHalves() {
  LONGHAND_FETCH_BACKEND();
  float head[4] = {1, 2, 3, 4};
  const float cosSin[4] = {0, 0, 1, 1};
  backend.rope({head, 1, 4, 4}, 4, cosSin);
  QCOMPARE(head[0], -3.0F);
  QCOMPARE(head[1], -4.0F);
  QCOMPARE(head[2], 1.0F);
  QCOMPARE(head[3], 2.0F);
}

QTEST_APPLESS_MAIN(BackendRopeTest)
#include "backend_rope_test.moc"
