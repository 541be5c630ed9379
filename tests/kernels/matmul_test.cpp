#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/cpu/int8_matmul.h"
#include "kernels/nf4.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/test_backends.h"
#include "tests/kernels/test_matrix.h"

using namespace longhand::kernels;
using namespace longhand::tests;

namespace {

// Every path sums in at least 4 lanes, so a product passes through at most cols / 4 additions of
// its lane and a few more that join lanes and panels and apply absmax; each of these roundings
// moves a result by at most one unit roundoff of sum |w x|.
double roundingsOf(std::int64_t cols) { return static_cast<double>(cols) / 4.0 + 16.0; }

// sum_i |weight[r, i] * input[t, i]| for every output.
std::vector<double> absoluteSums(const WeightView& weight, const MatrixView& input) {
  std::vector<double> sums(static_cast<std::size_t>(input.rows * weight.rows));
  std::vector<float> numbers(static_cast<std::size_t>(weight.cols));
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    dequantizeRow(weight, r, numbers.data());
    for (std::int64_t t = 0; t < input.rows; ++t) {
      double sum = 0;
      for (std::int64_t i = 0; i < weight.cols; ++i) {
        sum += std::abs(static_cast<double>(numbers[static_cast<std::size_t>(i)]) *
                        static_cast<double>(input.data[t * input.stride + i]));
      }
      sums[static_cast<std::size_t>(t * weight.rows + r)] = sum;
    }
  }
  return sums;
}

// What rounding the factors of NF4 and int8 products to bytes may add to |error| (int8_matmul.h):
// each input is off by at most 1/254 of its block's largest magnitude, each NF4 weight by
// kMaxInt8CodebookError of its block's absmax, which is at most the block's largest magnitude.
std::vector<double> integerErrors(const WeightView& weight, const MatrixView& input) {
  constexpr std::int64_t kBlock = kNf4BlockSize;
  std::vector<double> errors(static_cast<std::size_t>(input.rows * weight.rows));
  if (!isQuantized(weight.type) || weight.cols % kBlock != 0) return errors;
  std::vector<float> numbers(static_cast<std::size_t>(weight.cols));
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    dequantizeRow(weight, r, numbers.data());
    for (std::int64_t t = 0; t < input.rows; ++t) {
      double error = 0;
      for (std::int64_t first = 0; first < weight.cols; first += kBlock) {
        double weightSum = 0;
        double inputSum = 0;
        double largestInput = 0;
        double absmax = 0;
        for (std::int64_t i = first; i < first + kBlock; ++i) {
          const double w = std::abs(static_cast<double>(numbers[static_cast<std::size_t>(i)]));
          const double x = std::abs(static_cast<double>(input.data[t * input.stride + i]));
          weightSum += w;
          inputSum += x;
          largestInput = std::max(largestInput, x);
          absmax = std::max(absmax, w);
        }
        const double inputError = largestInput / 254.0;
        const double codebookError = static_cast<double>(kMaxInt8CodebookError);
        const double weightError = weight.type == DataType::kNf4 ? absmax * codebookError : 0.0;
        error += weightSum * inputError + inputSum * weightError +
                 static_cast<double>(kBlock) * inputError * weightError;
      }
      errors[static_cast<std::size_t>(t * weight.rows + r)] = error;
    }
  }
  return errors;
}

// What rounding the factors to halves may add to |error| (kernels/cuda/tiled_matmul.h): half a unit
// in the last place of each, or half of the smallest subnormal.
double halfError(double sum, const WeightView& weight, const MatrixView& input, std::int64_t t,
                 std::int64_t r) {
  std::vector<float> numbers(static_cast<std::size_t>(weight.cols));
  dequantizeRow(weight, r, numbers.data());
  double magnitudes = 0;
  for (std::int64_t i = 0; i < weight.cols; ++i) {
    magnitudes += std::abs(static_cast<double>(numbers[static_cast<std::size_t>(i)])) +
                  std::abs(static_cast<double>(input.data[t * input.stride + i]));
  }
  return (0x1p-10 + 0x1p-22) * sum + 0x1p-25 * magnitudes;
}

// Multiplies on both backends; what went wrong, or nothing.
std::string multiplyAndCompare(Backend& backend, WeightForm form, std::int64_t rows,
                               std::int64_t cols, std::int64_t nTokens, bool accumulate,
                               bool isAligned = false) {
  Random random(static_cast<unsigned>(rows * 31 + cols * 7 + nTokens));
  const TestWeight weight(form, rows, cols, random, isAligned);
  TestMatrix input(nTokens, cols, 3, 1);
  TestMatrix actual(nTokens, rows, 5, 3);
  TestMatrix expected(nTokens, rows);
  input.fill(random);
  if (accumulate) {
    for (std::int64_t t = 0; t < nTokens; ++t) {
      for (std::int64_t r = 0; r < rows; ++r) {
        expected.at(t, r) = actual.at(t, r) = static_cast<float>(t - r) * 0.37F;
      }
    }
  }
  backend.matmul(input.view(), weight.view(), actual.view(), accumulate);
  createReferenceBackend()->matmul(input.view(), weight.view(), expected.view(), accumulate);

  const std::vector<double> sums = absoluteSums(weight.view(), input.view());
  const std::string path = backend.description();
  const bool isInteger = path.find("AVX2") != std::string::npos ||
                         path.find("VNNI") != std::string::npos ||
                         path.find("BF16") != std::string::npos;
  constexpr std::int64_t kMostFloatTokens = 8;
  const bool isHalf = nTokens > kMostFloatTokens && path.find("CUDA") != std::string::npos;
  const std::vector<double> rounding =
      isInteger ? integerErrors(weight.view(), input.view()) : std::vector<double>(sums.size());
  std::string problem = firstMismatch(actual, expected, [&](std::int64_t t, std::int64_t r) {
    const double sum = sums[static_cast<std::size_t>(t * rows + r)];
    const double total = std::abs(static_cast<double>(expected.at(t, r))) + sum;
    return kUnitRoundoff * (roundingsOf(cols) * sum + 4.0 * total) +
           rounding[static_cast<std::size_t>(t * rows + r)] +
           (isHalf ? halfError(sum, weight.view(), input.view(), t, r) : 0.0);
  });
  if (problem.empty() && !actual.isPaddingUntouched()) problem = "wrote outside of the output";
  if (problem.empty()) return {};
  return std::string(nameOf(form)) + " [" + std::to_string(rows) + ", " + std::to_string(cols) +
         "] x " + std::to_string(nTokens) + (accumulate ? ", accumulated: " : ": ") + problem;
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
  void noTokensDoNothing_data() { addBackends(); }
  void noTokensDoNothing();
};

void MatmulTest::everyWidthEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  std::vector<std::int64_t> widths;
  for (std::int64_t cols = 1; cols <= 35; ++cols) widths.push_back(cols);
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
  for (std::int64_t rows = 1; rows <= 17; ++rows) counts.push_back(rows);
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
  for (const WeightForm form : kWeightForms) {
    for (std::int64_t nTokens = 1; nTokens <= 26; ++nTokens) {
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
  for (const WeightForm form : kWeightForms) {
    for (const std::int64_t nTokens : {1, 4, 21}) {
      const std::string problem = multiplyAndCompare(backend, form, 1501, 256, nTokens, true);
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

void MatmulTest::noTokensDoNothing() {
  LONGHAND_FETCH_BACKEND();
  Random random(1);
  const TestWeight weight(WeightForm::kF16, 4, 8, random);
  backend.matmul({nullptr, 0, 8, 8}, weight.view(), {nullptr, 0, 4, 4}, false);
}

QTEST_APPLESS_MAIN(MatmulTest)
#include "matmul_test.moc"
