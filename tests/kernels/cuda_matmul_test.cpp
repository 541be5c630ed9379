// Products on the paths that need aligned weights, which the weights of matmul_test are not.

#include <string>

#include <QtTest>

#include "kernels/checks/matmul_check.h"
#include "tests/kernels/test_backends.h"
#include "tests/kernels/test_matrix.h"

using namespace longhand::kernels;
using namespace longhand::tests;

namespace {

/// What went wrong, or nothing.
std::string multiplyAndCompare(Backend& backend, WeightForm form, std::int64_t rows,
                               std::int64_t cols, std::int64_t nTokens, bool accumulate) {
  return checkMatmul(backend, {form, rows, cols, nTokens, accumulate, true}).problem;
}

}  // namespace

class CudaMatmulTest : public QObject {
  Q_OBJECT

 private slots:
  void everyNumberOfTokensEqualsTheSlowTwin_data() { addEmulatedBackends(); }
  void everyNumberOfTokensEqualsTheSlowTwin();
  void everyTailEqualsTheSlowTwin_data() { addEmulatedBackends(); }
  void everyTailEqualsTheSlowTwin();
};

void CudaMatmulTest::everyNumberOfTokensEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  for (const WeightForm form : kWeightForms) {
    for (std::int64_t nTokens = 1; nTokens <= 9; ++nTokens) {
      const std::string problem =
          multiplyAndCompare(backend, form, 40, 1152, nTokens, nTokens % 2 == 0);
      QVERIFY2(problem.empty(), problem.c_str());
    }
  }
}

void CudaMatmulTest::everyTailEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  for (const WeightForm form : kWeightForms) {
    for (const std::int64_t cols : {40, 48, 64, 128, 192, 1024, 1088, 2112}) {
      for (const std::int64_t rows : {1, 31, 32, 33}) {
        const std::string problem = multiplyAndCompare(backend, form, rows, cols, 2, false);
        QVERIFY2(problem.empty(), problem.c_str());
      }
    }
  }
}

QTEST_APPLESS_MAIN(CudaMatmulTest)
#include "cuda_matmul_test.moc"
