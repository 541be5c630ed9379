#include <string>
#include <vector>

#include <QtTest>

#include "kernels/checks/matmul_check.h"
#include "kernels/checks/test_matrix.h"
#include "tests/kernels/test_backends.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;
using namespace longhand::tests;

namespace {

#ifdef __SANITIZE_THREAD__
constexpr bool kHasTsan = true;
#else
constexpr bool kHasTsan = false;
#endif

/// Each thread of the emulation is a thread to ThreadSanitizer, so that sees fewer shapes of it.
bool getsFewShapes(const Backend& backend) { return kHasTsan && !backend.usesHostMemory(); }

// What went wrong, or nothing.
std::string multiplyAndCompare(Backend& backend, WeightForm form, std::int64_t rows,
                               std::int64_t cols, std::int64_t nTokens, bool accumulate,
                               bool isAligned = false) {
  return checkMatmul(backend, {form, rows, cols, nTokens, accumulate, isAligned}).problem;
}

}  // namespace

class MatmulTest : public QObject {
  Q_OBJECT

 private slots:
  void everyWidthEqualsTheSlowTwin_data() { addBackends(); }
  void everyWidthEqualsTheSlowTwin();
  void everyNumberOfRowsEqualsTheSlowTwin_data() { addBackends(); }
  void everyNumberOfRowsEqualsTheSlowTwin();
  void everyNumberOfTokensEqualsTheSlowTwin_data() { addBackends(); }
  void everyNumberOfTokensEqualsTheSlowTwin();
  void workIsSharedByThreads_data() { addBackends(); }
  void workIsSharedByThreads();
  void alignedWeightsEqualTheSlowTwin_data() { addBackends(); }
  void alignedWeightsEqualTheSlowTwin();
  void severalWeightsShareOneInput_data() { addBackends(); }
  void severalWeightsShareOneInput();
  void noTokensDoNothing_data() { addBackends(); }
  void noTokensDoNothing();
};

void MatmulTest::everyWidthEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  std::vector<std::int64_t> widths;
  const std::int64_t step = getsFewShapes(backend) ? 5 : 1;
  for (std::int64_t cols = 1; cols <= 35; cols += step) widths.push_back(cols);
  for (const std::int64_t cols :
       {63, 64, 65, 127, 128, 129, 172, 192, 320, 1023, 1024, 1025, 1088, 2048, 2112}) {
    widths.push_back(cols);
  }
  for (const WeightForm form : kWeightForms) {
    for (const std::int64_t cols : widths) {
      for (const std::int64_t nTokens : {1, 3, 7}) {
        const std::string problem = multiplyAndCompare(backend, form, 5, cols, nTokens, false);
        QVERIFY2(problem.empty(), problem.c_str());
      }
    }
  }
}

void MatmulTest::everyNumberOfRowsEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  std::vector<std::int64_t> counts;
  const std::int64_t step = getsFewShapes(backend) ? 5 : 1;
  for (std::int64_t rows = 1; rows <= 17; rows += step) counts.push_back(rows);
  for (const std::int64_t rows : {63, 64, 65, 127, 130}) counts.push_back(rows);
  for (const WeightForm form : kWeightForms) {
    for (const std::int64_t rows : counts) {
      for (const std::int64_t nTokens : {1, 2, 9}) {
        for (const std::int64_t cols : {51, 192}) {
          const std::string problem = multiplyAndCompare(backend, form, rows, cols, nTokens, true);
          QVERIFY2(problem.empty(), problem.c_str());
        }
      }
    }
  }
}

void MatmulTest::everyNumberOfTokensEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  const std::int64_t step = getsFewShapes(backend) ? 5 : 1;
  for (const WeightForm form : kWeightForms) {
    for (std::int64_t nTokens = 1; nTokens <= 26; nTokens += step) {
      for (const std::int64_t cols : {33, 64, 1152}) {
        for (const bool accumulate : {false, true}) {
          const std::string problem =
              multiplyAndCompare(backend, form, 7, cols, nTokens, accumulate);
          QVERIFY2(problem.empty(), problem.c_str());
        }
      }
    }
  }
}

void MatmulTest::workIsSharedByThreads() {
  LONGHAND_FETCH_BACKEND();
  const std::int64_t rows = getsFewShapes(backend) ? 301 : 1501;
  for (const WeightForm form : kWeightForms) {
    for (const std::int64_t nTokens : {1, 4, 21}) {
      const std::string problem = multiplyAndCompare(backend, form, rows, 256, nTokens, true);
      QVERIFY2(problem.empty(), problem.c_str());
    }
  }
}

void MatmulTest::alignedWeightsEqualTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  struct Shape {
    std::int64_t rows, cols, nTokens;
  };
  constexpr Shape kShapes[] = {{1, 64, 9},    {40, 64, 10},  {3, 128, 9},    {130, 192, 17},
                               {65, 448, 33}, {257, 64, 65}, {129, 32, 129}, {70, 1024, 66}};
  for (const WeightForm form : kWeightForms) {
    for (const auto& [rows, cols, nTokens] : kShapes) {
      for (const bool accumulate : {false, true}) {
        const std::string problem =
            multiplyAndCompare(backend, form, rows, cols, nTokens, accumulate, true);
        QVERIFY2(problem.empty(), problem.c_str());
      }
    }
  }
}

void MatmulTest::severalWeightsShareOneInput() {
  LONGHAND_FETCH_BACKEND();
  const std::int64_t rowsOfEach[] = {5, 130, 64};
  for (const WeightForm form : kWeightForms) {
    for (const std::int64_t nTokens : {1, 3, 8, 9, 40}) {
      for (const std::int64_t cols : {172, 192}) {
        const checks::MatmulCase c{
            .form = form, .rows = 5, .cols = cols, .nTokens = nTokens, .isAligned = true};
        const std::string problem = checks::checkMatmulEach(backend, c, rowsOfEach).problem;
        QVERIFY2(problem.empty(), problem.c_str());
      }
    }
  }
}

void MatmulTest::noTokensDoNothing() {
  LONGHAND_FETCH_BACKEND();
  Random random(1);
  const TestWeight weight(WeightForm::kF16, 4, 8, random);
  backend.matmul({nullptr, 0, 8, 8}, weight.view(), {nullptr, 0, 4, 4}, false);
}

QTEST_APPLESS_MAIN(MatmulTest)
#include "matmul_test.moc"
