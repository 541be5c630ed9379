// Products on the paths that need aligned weights, which the weights of matmul_test are not.

#include <string>

#include <QtTest>

#include "kernels/checks/matmul_check.h"
#include "kernels/checks/test_matrix.h"
#include "tests/cuda_on_cpu/options.h"
#include "tests/kernels/test_backends.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;
using namespace longhand::tests;

namespace {

/// What went wrong, or nothing.
std::string multiplyAndCompare(Backend& backend, WeightForm form, std::int64_t rows,
                               std::int64_t cols, std::int64_t nTokens, bool accumulate) {
  return checkMatmul(backend, {form, rows, cols, nTokens, accumulate, true}).problem;
}

constexpr WeightForm kNf4Forms[] = {WeightForm::kNf4, WeightForm::kNf4DoubleQuantized};

/// Each thread of the emulation is a thread to ThreadSanitizer, so there are fewer shapes for it.
#ifdef __SANITIZE_THREAD__
constexpr bool kHasTsan = true;
#else
constexpr bool kHasTsan = false;
#endif

}  // namespace

class CudaMatmulTest : public QObject {
  Q_OBJECT

 private slots:
  void everyNumberOfTokensEqualsTheSlowTwin_data() { addEmulatedBackends(); }
  void everyNumberOfTokensEqualsTheSlowTwin();
  void everyTailEqualsTheSlowTwin_data() { addEmulatedBackends(); }
  void everyTailEqualsTheSlowTwin();
  void blocksGoFromGroupToGroupAndFromWeightToWeight_data() { addEmulatedBackends(); }
  void blocksGoFromGroupToGroupAndFromWeightToWeight();
  void longInputsEqualTheSlowTwin_data() { addEmulatedBackends(); }
  void longInputsEqualTheSlowTwin();
  void littleSharedMemoryGivesTheSameProducts_data() { addEmulatedBackends(); }
  void littleSharedMemoryGivesTheSameProducts();
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
        for (const std::int64_t nTokens : {1, 2}) {
          const std::string problem = multiplyAndCompare(backend, form, rows, cols, nTokens, false);
          QVERIFY2(problem.empty(), problem.c_str());
        }
      }
    }
  }
}

// The emulated device has 4 multiprocessors, so 4 blocks or 8, which share 16 groups of 32 rows.
void CudaMatmulTest::blocksGoFromGroupToGroupAndFromWeightToWeight() {
  LONGHAND_FETCH_BACKEND();
  const std::int64_t heights[] = {330, 33, 70};
  for (const WeightForm form : kNf4Forms) {
    for (const std::int64_t nTokens : {1, 3, 8}) {
      if (kHasTsan && (form == WeightForm::kNf4) != (nTokens == 3)) continue;
      const std::int64_t cols = kHasTsan ? 320 : 1152;
      const CheckResult checked =
          checkMatmulEach(backend, {form, 330, cols, nTokens, false, true}, heights);
      QVERIFY2(checked.isGood(), checked.problem.c_str());
    }
  }
}

// 16 warps have 256 columns of one token each, so some of them have two turns.
void CudaMatmulTest::longInputsEqualTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  for (const WeightForm form : kNf4Forms) {
    for (const std::int64_t cols : {4096, 4416}) {
      if (kHasTsan && (form == WeightForm::kNf4) == (cols == 4416)) continue;
      const std::string problem =
          multiplyAndCompare(backend, form, kHasTsan ? 33 : 150, cols, 1, false);
      QVERIFY2(problem.empty(), problem.c_str());
    }
  }
}

// As on devices of compute capability 7.5: no room between the rows of the table, for a tile of the
// input alone where it is long, and for no more than 4 tokens.
void CudaMatmulTest::littleSharedMemoryGivesTheSameProducts() {
  longhand::cuda_on_cpu::Options turing = longhand::cuda_on_cpu::options;
  turing.largestSharedBytes = std::size_t{64} << 10U;
  const longhand::cuda_on_cpu::ScopedOptions scope(turing);
  LONGHAND_FETCH_BACKEND();
  for (const std::int64_t nTokens : {1, 2, 4, 5, 8}) {
    if (kHasTsan && nTokens != 1 && nTokens != 4) continue;
    const MatmulCase c{
        WeightForm::kNf4DoubleQuantized, 40, kHasTsan ? 320 : 1152, nTokens, false, true};
    const CheckResult plain = checkMatmul(backend, c);
    QVERIFY2(plain.isGood(), plain.problem.c_str());
    const CheckResult gated = checkNormGateUp(backend, c);
    QVERIFY2(gated.isGood(), gated.problem.c_str());
  }
  const std::string problem =
      multiplyAndCompare(backend, WeightForm::kNf4, kHasTsan ? 1 : 33, 8256, 1, false);
  QVERIFY2(problem.empty(), problem.c_str());
}

QTEST_APPLESS_MAIN(CudaMatmulTest)
#include "cuda_matmul_test.moc"
