#include "kernels/cpu/weights/int8_matmul.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/checks/test_matrix.h"
#include "kernels/cpu/base/cpu_path.h"
#include "kernels/cpu/weights/cpu_kernels.h"
#include "kernels/nf4.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;

namespace {

constexpr std::int64_t kBlock = kNf4BlockSize;

/// The formula of int8_kernels.h, term by term in double, and what its float sums may be off by.
class IntegerTwin {
 public:
  IntegerTwin(const WeightView& weight, const MatrixView& input) : nBlocks_(weight.cols / kBlock) {
    if (weight.type == DataType::kInt8) {
      addInt8(weight);
    } else {
      addNf4(weight);
    }
    for (std::int64_t t = 0; t < input.rows; ++t) addToken(input.data + t * input.stride);
  }

  double product(std::int64_t token, std::int64_t row, bool wantMagnitude) const {
    double sum = 0;
    for (std::int64_t b = 0; b < nBlocks_; ++b) {
      std::int64_t dot = 0;
      for (std::int64_t i = 0; i < kBlock; ++i) {
        dot += std::int64_t{weightBytes_[at((row * nBlocks_ + b) * kBlock + i)]} *
               inputBytes_[at((token * nBlocks_ + b) * kBlock + i)];
      }
      const double term = static_cast<double>(dot) * weightScales_[at(row * nBlocks_ + b)] *
                          inputScales_[at(token * nBlocks_ + b)];
      sum += wantMagnitude ? std::abs(term) : term;
    }
    return sum;
  }
  std::int64_t nBlocks() const { return nBlocks_; }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  void addInt8(const WeightView& weight) {
    const auto* codes = static_cast<const std::int8_t*>(static_cast<const void*>(weight.data));
    for (std::int64_t i = 0; i < weight.rows * weight.cols; ++i) weightBytes_.push_back(codes[i]);
    for (std::int64_t b = 0; b < weight.rows * nBlocks_; ++b) {
      weightScales_.push_back(static_cast<double>(weight.scales[b]));
    }
  }
  void addNf4(const WeightView& weight) {
    const Int8Codebook codebook = roundCodebook(weight.codebook);
    const auto* codes = static_cast<const std::uint8_t*>(static_cast<const void*>(weight.data));
    for (std::int64_t i = 0; i < weight.rows * weight.cols; ++i) {
      const unsigned byte = codes[i / 2];
      const unsigned code = i % 2 == 0 ? byte >> 4U : byte & 15U;
      weightBytes_.push_back(codebook.bytes[code] - 128);
    }
    for (std::int64_t b = 0; b < weight.rows * nBlocks_; ++b) {
      weightScales_.push_back(static_cast<double>(codebook.step) * absmaxOf(weight, b));
    }
  }
  static double absmaxOf(const WeightView& weight, std::int64_t block) {
    if (weight.absmax != nullptr) return static_cast<double>(weight.absmax[block]);
    return static_cast<double>(weight.nestedCodebook[weight.absmaxCodes[block]] *
                                   weight.nestedAbsmax[block / kNf4NestedBlockSize] +
                               weight.nestedOffset);
  }
  void addToken(const float* row) {
    for (std::int64_t b = 0; b < nBlocks_; ++b) {
      float largest = 0;
      for (std::int64_t i = 0; i < kBlock; ++i) {
        largest = std::max(largest, std::abs(row[b * kBlock + i]));
      }
      inputScales_.push_back(static_cast<double>(largest / 127.0F));
      for (std::int64_t i = 0; i < kBlock; ++i) {
        const float scaled = largest > 0 ? row[b * kBlock + i] * (127.0F / largest) : 0.0F;
        inputBytes_.push_back(static_cast<int>(std::nearbyint(scaled)));
      }
    }
  }

  std::int64_t nBlocks_;
  std::vector<int> weightBytes_;      // [rows, cols]
  std::vector<double> weightScales_;  // [rows, nBlocks]
  std::vector<int> inputBytes_;       // [nTokens, cols]
  std::vector<double> inputScales_;   // [nTokens, nBlocks]
};

struct Shape {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t nTokens;
  bool accumulate;
};

/// What is wrong with a product, or nothing.
std::string compareWithTwin(Int8Matmul& matmul, WeightForm form, const Shape& shape) {
  const auto [rows, cols, nTokens, accumulate] = shape;
  Random random(static_cast<unsigned>(rows * 31 + cols * 7 + nTokens));
  const TestWeight weight(form, rows, cols, random);
  TestMatrix input(nTokens, cols, 3, 1);
  TestMatrix actual(nTokens, rows, 5, 3);
  TestMatrix expected(nTokens, rows);
  input.fill(random);
  if (cols > kBlock) {  // a block of zeros
    for (std::int64_t i = 0; i < kBlock; ++i) input.at(nTokens - 1, i) = 0.0F;
  }
  const IntegerTwin twin(weight.view(), input.view());
  for (std::int64_t t = 0; t < nTokens; ++t) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const float before = accumulate ? static_cast<float>(t - r) * 0.37F : 0.0F;
      if (accumulate) actual.at(t, r) = before;
      expected.at(t, r) =
          static_cast<float>(static_cast<double>(before) + twin.product(t, r, false));
    }
  }
  const Projection projection{weight.view(), actual.view()};
  matmul.multiply(input.view(), std::span(&projection, 1), accumulate);

  // Each block's term is rounded in its scales and their product (4 times), and the running sum
  // once for each block.
  const auto roundings = static_cast<double>(twin.nBlocks() + 6);
  std::string problem = firstMismatch(actual, expected, [&](std::int64_t t, std::int64_t r) {
    const double magnitude = twin.product(t, r, true) + std::abs(static_cast<double>(t - r));
    return kUnitRoundoff * roundings * magnitude;
  });
  if (problem.empty() && !actual.isPaddingUntouched()) problem = "wrote outside of the output";
  if (problem.empty()) return {};
  return std::string(nameOf(form)) + " [" + std::to_string(rows) + ", " + std::to_string(cols) +
         "] x " + std::to_string(nTokens) + (accumulate ? ", accumulated: " : ": ") + problem;
}

}  // namespace

class Int8MatmulTest : public QObject {
  Q_OBJECT

 private slots:
  void initTestCase_data();
  void init();
  void everyNumberOfRowsEqualsTheFormula();
  void everyNumberOfTokensEqualsTheFormula();
  void everyWidthEqualsTheFormula();
  void manyTokensTakeSeveralSlabs();
  void aCodebookIsRoundedWithinItsBound();
  void anyCodebookIsTaken();
  void numbersThatAreNoneStayVisible();
  void tinyNumbersCountAsZero();
  void wholeBlocksOnly();

 private:
  std::string compare(const Shape& shape) {
    for (const WeightForm form :
         {WeightForm::kNf4, WeightForm::kNf4DoubleQuantized, WeightForm::kInt8}) {
      std::string problem = compareWithTwin(*matmul_, form, shape);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  void multiply(TestMatrix& input, const TestWeight& weight, TestMatrix& output) {
    const Projection projection{weight.view(), output.view()};
    matmul_->multiply(input.view(), std::span(&projection, 1), false);
  }

  ThreadPool pool_{3};
  std::unique_ptr<Int8Matmul> matmul_;  // its scratch holds what earlier products of a test left
};

// Every test runs once for each set of kernels that has integer products.
void Int8MatmulTest::initTestCase_data() {
  QTest::addColumn<int>("path");
  QTest::newRow("AVX2") << static_cast<int>(CpuPath::kAvx2);
  QTest::newRow("AVX-VNNI") << static_cast<int>(CpuPath::kAvxVnni);
  QTest::newRow("AVX-512 VNNI") << static_cast<int>(CpuPath::kAvx512Vnni);
}

void Int8MatmulTest::init() {
  QFETCH_GLOBAL(int, path);
  if (!isSupported(static_cast<CpuPath>(path))) QSKIP("this machine lacks the instructions for it");
  matmul_ = std::make_unique<Int8Matmul>(*kernelsFor(static_cast<CpuPath>(path)).int8, pool_);
}

void Int8MatmulTest::everyNumberOfRowsEqualsTheFormula() {
  for (std::int64_t rows = 1; rows <= 130; ++rows) {
    const std::string problem = compare({rows, 128, 7, rows % 2 == 0});
    QVERIFY2(problem.empty(), problem.c_str());
  }
}

void Int8MatmulTest::everyNumberOfTokensEqualsTheFormula() {
  for (std::int64_t nTokens = 1; nTokens <= 26; ++nTokens) {
    for (const bool accumulate : {false, true}) {
      const std::string problem = compare({37, 192, nTokens, accumulate});
      QVERIFY2(problem.empty(), problem.c_str());
    }
  }
}

void Int8MatmulTest::everyWidthEqualsTheFormula() {
  for (std::int64_t nBlocks = 1; nBlocks <= 35; ++nBlocks) {
    const std::string problem = compare({66, nBlocks * kBlock, 5, nBlocks % 2 == 0});
    QVERIFY2(problem.empty(), problem.c_str());
  }
}

void Int8MatmulTest::manyTokensTakeSeveralSlabs() {
  for (const std::int64_t nTokens : {std::int64_t{193}, Int8Matmul::kSlabTokens - 1,
                                     Int8Matmul::kSlabTokens, Int8Matmul::kSlabTokens + 1}) {
    const std::string problem = compare({65, 576, nTokens, true});
    QVERIFY2(problem.empty(), problem.c_str());
  }
}

void Int8MatmulTest::aCodebookIsRoundedWithinItsBound() {
  const Int8Codebook rounded = roundCodebook(kNf4Codebook.data());
  for (std::size_t i = 0; i < 16; ++i) {
    const float number = static_cast<float>(rounded.bytes[i] - 128) * rounded.step;
    QVERIFY(std::abs(number - kNf4Codebook[i]) <= kMaxInt8CodebookError);
  }
}

void Int8MatmulTest::anyCodebookIsTaken() {
  for (const float scale : {1e-20F, 3.0F, 1e20F}) {
    float codebook[16];
    for (int i = 0; i < 16; ++i) codebook[i] = static_cast<float>(i * i - 90) * scale;
    const Int8Codebook rounded = roundCodebook(codebook);
    for (std::size_t i = 0; i < 16; ++i) {
      const float number = static_cast<float>(rounded.bytes[i] - 128) * rounded.step;
      QVERIFY(std::abs(number - codebook[i]) <= 0.51F * rounded.step);
      QVERIFY(rounded.bytes[i] >= 1);
    }
  }
  const float zeros[16] = {};
  for (const std::uint8_t byte : roundCodebook(zeros).bytes) QCOMPARE(byte, std::uint8_t{128});
}

void Int8MatmulTest::numbersThatAreNoneStayVisible() {
  Random random(3);
  const TestWeight weight(WeightForm::kNf4, 70, 256, random);
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    TestMatrix input(9, 256);
    TestMatrix output(9, 70);
    input.fill(random);
    input.at(4, 100) = wrong;
    multiply(input, weight, output);
    for (std::int64_t t = 0; t < 9; ++t) {
      for (std::int64_t r = 0; r < 70; ++r) QCOMPARE(std::isfinite(output.at(t, r)), t != 4);
    }
  }
}

void Int8MatmulTest::tinyNumbersCountAsZero() {
  Random random(4);
  const TestWeight weight(WeightForm::kNf4, 3, 64, random);
  TestMatrix input(1, 64);
  TestMatrix output(1, 3);
  for (std::int64_t i = 0; i < 64; ++i) input.at(0, i) = i % 2 == 0 ? 1e-39F : -9e-31F;
  multiply(input, weight, output);
  for (std::int64_t r = 0; r < 3; ++r) QCOMPARE(output.at(0, r), 0.0F);
}

void Int8MatmulTest::wholeBlocksOnly() {
  Random random(5);
  QVERIFY(Int8Matmul::accepts(TestWeight(WeightForm::kNf4, 3, 128, random).view()));
  QVERIFY(!Int8Matmul::accepts(TestWeight(WeightForm::kNf4, 4, 96, random).view()));
  QVERIFY(Int8Matmul::accepts(TestWeight(WeightForm::kInt8, 3, 64, random).view()));
  QVERIFY(!Int8Matmul::accepts(TestWeight(WeightForm::kInt8, 4, 80, random).view()));
  QVERIFY(!Int8Matmul::accepts(TestWeight(WeightForm::kF16, 4, 64, random).view()));
}

QTEST_APPLESS_MAIN(Int8MatmulTest)
#include "int8_matmul_test.moc"
