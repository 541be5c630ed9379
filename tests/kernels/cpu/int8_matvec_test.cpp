// A few tokens with NF4 and int8 weights in 8-bit integers, against the formula of
// int8_matvec_kernels.h in double: what is left is the rounding of float sums.
#include "kernels/cpu/weights/int8_matvec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/checks/test_matrix.h"
#include "kernels/cpu/base/cpu_path.h"
#include "kernels/cpu/weights/byte_codebook.h"
#include "kernels/cpu/weights/cpu_kernels.h"
#include "kernels/nf4.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;

namespace {

constexpr std::int64_t kBlock = kNf4BlockSize;
constexpr WeightForm kForms[] = {WeightForm::kNf4, WeightForm::kNf4DoubleQuantized,
                                 WeightForm::kInt8};

/// The input as its bytes stand for it.
std::vector<double> roundedInput(const float* numbers, std::int64_t count, float largestNumber) {
  std::vector<double> rounded(static_cast<std::size_t>(count));
  for (std::int64_t first = 0; first < count; first += kBlock) {
    float largest = 0.0F;
    for (std::int64_t i = first; i < first + kBlock; ++i) {
      largest = std::max(largest, std::fabs(numbers[i]));
    }
    if (largest < 1e-30F) continue;
    const float inverse = largestNumber / largest;
    for (std::int64_t i = first; i < first + kBlock; ++i) {
      rounded[static_cast<std::size_t>(i)] =
          static_cast<double>(std::nearbyint(numbers[i] * inverse)) *
          static_cast<double>(largest / largestNumber);
    }
  }
  return rounded;
}

/// The largest magnitude in a row.
double largestOf(const WeightView& weight, std::int64_t row) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < weight.cols; ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(weightAt(weight, row, i))));
  }
  return largest;
}

/// A weight row as the bytes of its codebook stand for it.
std::vector<double> weightRow(const WeightView& weight, const ByteCodebook& bytes,
                              std::int64_t row) {
  std::vector<double> numbers(static_cast<std::size_t>(weight.cols));
  if (weight.type == DataType::kInt8) {
    for (std::int64_t i = 0; i < weight.cols; ++i) {
      numbers[static_cast<std::size_t>(i)] = static_cast<double>(weightAt(weight, row, i));
    }
    return numbers;
  }
  std::vector<float> codebook(16);
  for (std::size_t code = 0; code < 16; ++code) {
    const int number = bytes.bytes[code];
    codebook[code] = bytes.step * (static_cast<float>(number) - bytes.zero);
  }
  WeightView rounded = weight;
  rounded.codebook = codebook.data();
  for (std::int64_t i = 0; i < weight.cols; ++i) {
    numbers[static_cast<std::size_t>(i)] = static_cast<double>(weightAt(rounded, row, i));
  }
  return numbers;
}

struct NamedPath {
  const char* name;
  CpuPath path;
};
constexpr NamedPath kPaths[] = {{"avx2", CpuPath::kAvx2},
                                {"avx-vnni", CpuPath::kAvxVnni},
                                {"avx512-vnni", CpuPath::kAvx512Vnni}};

void addPaths() {
  QTest::addColumn<int>("index");
  for (int i = 0; i < std::ssize(kPaths); ++i) QTest::newRow(kPaths[i].name) << i;
}

}  // namespace

class Int8MatvecTest : public QObject {
  Q_OBJECT

 private slots:
  void everyWidthAndNumberOfTokensFollowsTheFormula_data() { addPaths(); }
  void everyWidthAndNumberOfTokensFollowsTheFormula();
  void severalWeightsShareOneInput_data() { addPaths(); }
  void severalWeightsShareOneInput();
  void blocksOfZerosAndOutliersFollowTheFormula_data() { addPaths(); }
  void blocksOfZerosAndOutliersFollowTheFormula();
  void notANumberIsNotHidden_data() { addPaths(); }
  void notANumberIsNotHidden();
  void theCodebookIsWithinItsError();
};

namespace {

/// The kernels of a test row, or nullptr where the machine or the path has none.
const Int8MatvecKernels* kernelsOf(int index) {
  const CpuPath path = kPaths[index].path;
  return isSupported(path) ? kernelsFor(path).int8Matvec : nullptr;
}

#define LONGHAND_FETCH_KERNELS()                                 \
  QFETCH(int, index);                                            \
  const Int8MatvecKernels* const kernels = kernelsOf(index);     \
  if (kernels == nullptr) QSKIP("no integer products for this"); \
  ThreadPool pool(3);                                            \
  Int8Matvec matvec(*kernels, pool)

/// What is wrong with the product, or nothing.
std::string compare(Int8Matvec& matvec, const Int8MatvecKernels& kernels, WeightForm form,
                    const std::vector<std::int64_t>& rowsOfEach, TestMatrix& input,
                    bool accumulate) {
  Random random(7);
  const MatrixView x = input.view();
  std::vector<TestWeight> weights;
  std::vector<TestMatrix> actual;
  std::vector<Projection> projections;
  for (const std::int64_t rows : rowsOfEach) {
    weights.emplace_back(form, rows, x.cols, random);
    actual.emplace_back(x.rows, rows, 5, 3);
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (accumulate) actual[i].fill(random);
    projections.push_back({weights[i].view(), actual[i].view()});
  }
  std::vector<TestMatrix> before = actual;
  matvec.multiply(x, projections, accumulate);

  const float largestNumber = kernels.digits[x.rows - 1].largestNumber;
  const ByteCodebook bytes = roundToBytes(kNf4Codebook);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    TestMatrix expected(x.rows, rowsOfEach[i]);
    TestMatrix allowed(x.rows, rowsOfEach[i]);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      const std::vector<double> numbers =
          roundedInput(x.data + t * x.stride, x.cols, largestNumber);
      for (std::int64_t r = 0; r < rowsOfEach[i]; ++r) {
        const std::vector<double> row = weightRow(weights[i].view(), bytes, r);
        const double largest = largestOf(weights[i].view(), r);
        const double start = accumulate ? static_cast<double>(before[i].at(t, r)) : 0.0;
        double sum = start;
        double size = std::abs(start);  // of the terms that are added as floats
        for (std::size_t k = 0; k < row.size(); ++k) {
          sum += row[k] * numbers[k];
          // The part of the codebook's zero, which is as large as its largest number, is added
          // and taken away apart.
          size += std::abs(row[k] * numbers[k]) + 2.0 * largest * std::abs(numbers[k]);
        }
        expected.at(t, r) = static_cast<float>(sum);
        // One rounding for each block in its lane, and some 16 more.
        const double roundings = static_cast<double>(x.cols / kBlock) + 16.0;
        allowed.at(t, r) = static_cast<float>(kUnitRoundoff * roundings * 2.0 * size);
      }
    }
    const std::string problem = firstMismatch(
        actual[i], expected,
        [&](std::int64_t t, std::int64_t r) { return static_cast<double>(allowed.at(t, r)); });
    if (!problem.empty()) {
      return std::string(nameOf(form)) + ", weight " + std::to_string(i) + ", width " +
             std::to_string(x.cols) + ", tokens " + std::to_string(x.rows) + ": " + problem;
    }
    if (!actual[i].isPaddingUntouched()) return "wrote outside of the output";
  }
  return {};
}

}  // namespace

void Int8MatvecTest::everyWidthAndNumberOfTokensFollowsTheFormula() {
  LONGHAND_FETCH_KERNELS();
  for (const WeightForm form : kForms) {
    for (const std::int64_t nBlocks : {1, 2, 3, 4, 15, 16, 17, 33, 43}) {
      for (std::int64_t nTokens = 1; nTokens <= kMaxInt8MatvecTokens; ++nTokens) {
        Random random(static_cast<unsigned>(nBlocks * 10 + nTokens));
        TestMatrix input(nTokens, nBlocks * kBlock, 3, 1);
        input.fill(random);
        const bool accumulate = nTokens % 2 == 0;
        const std::string problem = compare(matvec, *kernels, form, {5}, input, accumulate);
        QVERIFY2(problem.empty(), problem.c_str());
      }
    }
  }
}

void Int8MatvecTest::severalWeightsShareOneInput() {
  LONGHAND_FETCH_KERNELS();
  for (const WeightForm form : kForms) {
    for (const std::int64_t nTokens : {1, 3}) {
      Random random(3);
      TestMatrix input(nTokens, 5 * kBlock, 3, 1);
      input.fill(random);
      const std::string problem = compare(matvec, *kernels, form, {1, 700, 3, 256}, input, false);
      QVERIFY2(problem.empty(), problem.c_str());
    }
  }
}

void Int8MatvecTest::blocksOfZerosAndOutliersFollowTheFormula() {
  LONGHAND_FETCH_KERNELS();
  Random random(5);
  TestMatrix input(2, 6 * kBlock);
  input.fill(random);
  for (std::int64_t i = 0; i < kBlock; ++i) {
    input.at(0, i) = 0.0F;
    input.at(0, kBlock + i) *= 1e-33F;  // counts as zero
    input.at(1, 2 * kBlock + i) *= 1e-25F;
    input.at(1, 3 * kBlock + i) = 3.0F;  // the largest possible sums
  }
  input.at(0, 2 * kBlock + 7) = 4000.0F;
  input.at(1, 63) = -1e6F;
  for (const WeightForm form : kForms) {
    const std::string problem = compare(matvec, *kernels, form, {9}, input, false);
    QVERIFY2(problem.empty(), problem.c_str());
  }
}

void Int8MatvecTest::notANumberIsNotHidden() {
  LONGHAND_FETCH_KERNELS();
  for (const WeightForm form : kForms) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const std::int64_t at : {0, 17, 191}) {
        Random random(11);
        const TestWeight weight(form, 3, 3 * kBlock, random);
        TestMatrix input(2, 3 * kBlock);
        TestMatrix output(2, 3);
        input.fill(random);
        input.at(1, at) = bad;
        const Projection projection{weight.view(), output.view()};
        matvec.multiply(input.view(), std::span(&projection, 1), false);
        for (std::int64_t r = 0; r < 3; ++r) {
          QVERIFY(std::isfinite(output.at(0, r)));
          QVERIFY(!std::isfinite(output.at(1, r)));
        }
      }
    }
  }
}

void Int8MatvecTest::theCodebookIsWithinItsError() {
  const ByteCodebook bytes = roundToBytes(kNf4Codebook);
  for (std::size_t code = 0; code < 16; ++code) {
    const float value = bytes.step * (static_cast<float>(bytes.bytes[code]) - bytes.zero);
    QVERIFY(std::fabs(value - kNf4Codebook[code]) <= kMaxByteCodebookError);
  }
}

QTEST_APPLESS_MAIN(Int8MatvecTest)
#include "int8_matvec_test.moc"
