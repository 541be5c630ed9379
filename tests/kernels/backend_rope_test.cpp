#include <QtTest>

#include "kernels/checks/elementwise_check.h"
#include "kernels/checks/test_matrix.h"
#include "tests/kernels/test_backends.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;
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
  for (const std::int64_t nTokens : {1, 2, 90}) {
    for (std::int64_t headDim = 2; headDim <= 256; headDim += headDim < 72 ? 2 : 46) {
      const CheckResult result = checkRope(backend, nTokens, headDim);
      QVERIFY2(result.isGood(), result.problem.c_str());
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
