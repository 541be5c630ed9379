// Products on the paths that need aligned weights, which the weights of matmul_test are not.

#include <cmath>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/nf4.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/test_backends.h"
#include "tests/kernels/test_matrix.h"

using namespace longhand::kernels;
using namespace longhand::tests;

namespace {

/// A weight's numbers in the backend's memory, aligned as the engine's are.
class DeviceWeight {
 public:
  DeviceWeight(Backend& backend, const WeightView& weight)
      : backend_(backend),
        view_(weight),
        bytes_(bytesOf(weight.type, weight.rows * weight.cols)),
        memory_(backend.allocate(bytes_)) {
    backend.upload(memory_, weight.data, bytes_);
    view_.data = memory_;
  }
  ~DeviceWeight() { backend_.release(memory_, bytes_); }
  const WeightView& view() const { return view_; }

 private:
  Backend& backend_;
  WeightView view_;
  std::size_t bytes_;
  std::byte* memory_;
};

/// What went wrong, or nothing.
std::string multiplyAndCompare(Backend& backend, WeightForm form, std::int64_t rows,
                               std::int64_t cols, std::int64_t nTokens, bool accumulate) {
  Random random(static_cast<unsigned>(rows * 31 + cols * 7 + nTokens));
  const TestWeight weight(form, rows, cols, random);
  const DeviceWeight onDevice(backend, weight.view());
  // Rows that can be read as vectors, and rows that cannot.
  TestMatrix input(nTokens, cols, nTokens % 2 == 0 ? 4 : 3, nTokens % 2 == 0 ? 0 : 1);
  TestMatrix actual(nTokens, rows, 5, 3);
  TestMatrix expected(nTokens, rows);
  input.fill(random);
  if (accumulate) {
    for (std::int64_t t = 0; t < nTokens; ++t) {
      for (std::int64_t r = 0; r < rows; ++r) expected.at(t, r) = actual.at(t, r) = 1.25F;
    }
  }
  backend.matmul(input.view(), onDevice.view(), actual.view(), accumulate);
  createReferenceBackend()->matmul(input.view(), weight.view(), expected.view(), accumulate);

  std::vector<float> numbers(static_cast<std::size_t>(cols));
  const std::string problem = firstMismatch(actual, expected, [&](auto t, auto r) {
    // The codebook is rounded to halves: each weight is off by up to 2^-12 of itself, by chance to
    // either side, so that the errors add up like their root of squares; six of these happen once
    // in a billion. Float sums add what matmul_test derives.
    dequantizeRow(weight.view(), r, numbers.data());
    double squares = 0.0;
    double sum = std::abs(static_cast<double>(expected.at(t, r)));
    for (std::int64_t i = 0; i < cols; ++i) {
      const double product = static_cast<double>(numbers[static_cast<std::size_t>(i)]) *
                             static_cast<double>(input.at(t, i));
      squares += product * product;
      sum += std::abs(product);
    }
    // More than 8 tokens: weights and inputs are rounded to halves, each twice as coarse.
    constexpr std::int64_t kMostMatvecTokens = 8;
    const double rounding = nTokens > kMostMatvecTokens ? 0x1p-11 * std::sqrt(2.0) : 0x1p-12;
    return 6.0 * rounding * std::sqrt(squares / 3.0) +
           kUnitRoundoff * (static_cast<double>(cols) / 4.0 + 20.0) * sum;
  });
  if (problem.empty() && actual.isPaddingUntouched()) return {};
  return std::string(nameOf(form)) + " [" + std::to_string(rows) + ", " + std::to_string(cols) +
         "] x " + std::to_string(nTokens) + ": " +
         (problem.empty() ? "wrote outside of the output" : problem);
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
