#include "kernels/checks/matmul_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/checks/device_copies.h"
#include "kernels/cpu/weights/int8_matmul.h"
#include "kernels/nf4.h"
#include "kernels/reference/reference_backend.h"

namespace longhand::kernels::checks {
namespace {

constexpr std::int64_t kMostMatvecTokens = 8;

// Every path sums in at least 4 lanes, so a product passes through at most cols / 4 additions of
// its lane and a few more that join lanes and panels and apply absmax; each of these roundings
// moves a result by at most one unit roundoff of sum |w x|.
double roundingsOf(std::int64_t cols) { return static_cast<double>(cols) / 4.0 + 16.0; }

/// Of the products that an output sums up.
struct ProductSums {
  double magnitudes = 0.0;  // sum |w x|
  double squares = 0.0;     // sum (w x)^2
  double factors = 0.0;     // sum |w| + |x|
};

ProductSums sumsOf(const float* weights, const float* inputs, std::int64_t cols) {
  ProductSums sums;
  for (std::int64_t i = 0; i < cols; ++i) {
    const double w = std::abs(static_cast<double>(weights[i]));
    const double x = std::abs(static_cast<double>(inputs[i]));
    sums.magnitudes += w * x;
    sums.squares += w * x * w * x;
    sums.factors += w + x;
  }
  return sums;
}

// What rounding the factors of NF4 and int8 products to bytes may add to |error| (int8_matmul.h):
// each input is off by at most 1/254 of its block's largest magnitude, each NF4 weight by
// kMaxInt8CodebookError of its block's absmax, which is at most the block's largest magnitude.
double byteError(DataType type, const float* weights, const float* inputs, std::int64_t cols) {
  constexpr std::int64_t kBlock = kNf4BlockSize;
  if (!isQuantized(type) || cols % kBlock != 0) return 0.0;
  double error = 0.0;
  for (std::int64_t first = 0; first < cols; first += kBlock) {
    double weightSum = 0;
    double inputSum = 0;
    double largestInput = 0;
    double absmax = 0;
    for (std::int64_t i = first; i < first + kBlock; ++i) {
      const double w = std::abs(static_cast<double>(weights[i]));
      const double x = std::abs(static_cast<double>(inputs[i]));
      weightSum += w;
      inputSum += x;
      largestInput = std::max(largestInput, x);
      absmax = std::max(absmax, w);
    }
    const double inputError = largestInput / 254.0;
    const double codebookError = static_cast<double>(kMaxInt8CodebookError);
    const double weightError = type == DataType::kNf4 ? absmax * codebookError : 0.0;
    error += weightSum * inputError + inputSum * weightError +
             static_cast<double>(kBlock) * inputError * weightError;
  }
  return error;
}

// What rounding both factors to halves may add to |error| (kernels/cuda/weights/tiled_matmul.h):
// half a unit in the last place of each, or half of the smallest subnormal. The errors go either
// way by chance, so that they add up like the root of squares; six deviations happen once in a
// billion.
double halfError(const ProductSums& sums) {
  const double largest = (0x1p-10 + 0x1p-22) * sums.magnitudes;
  const double likely = 6.0 * 0x1p-11 * std::sqrt(2.0 * sums.squares / 3.0);
  return std::min(largest, likely) + 0x1p-25 * sums.factors;
}

// A codebook rounded to halves: each weight is off by up to 2^-12 of itself, likewise by chance.
double codebookError(const ProductSums& sums) {
  return std::min(0x1p-12 * sums.magnitudes, 6.0 * 0x1p-12 * std::sqrt(sums.squares / 3.0)) +
         kUnitRoundoff * sums.magnitudes;
}

class Tolerances {
 public:
  Tolerances(const WeightView& weight, const MatrixView& input, FactorRounding rounding)
      : weight_(weight),
        input_(input),
        rounding_(rounding),
        all_(static_cast<std::size_t>(weight.rows * input.rows)) {
    std::vector<float> numbers(static_cast<std::size_t>(weight.cols));
    for (std::int64_t r = 0; r < weight.rows; ++r) {
      dequantizeRow(weight, r, numbers.data());
      for (std::int64_t t = 0; t < input.rows; ++t) at(t, r) = partOf(numbers.data(), t);
    }
  }

  double of(std::int64_t t, std::int64_t r, double expected) {
    return at(t, r) + 4.0 * kUnitRoundoff * std::abs(expected);
  }

 private:
  double& at(std::int64_t t, std::int64_t r) {
    return all_[static_cast<std::size_t>(t * weight_.rows + r)];
  }

  /// All of a tolerance that does not depend on the result.
  double partOf(const float* weights, std::int64_t t) const {
    const float* const inputs = input_.data + t * input_.stride;
    const ProductSums sums = sumsOf(weights, inputs, weight_.cols);
    double error = kUnitRoundoff * (roundingsOf(weight_.cols) + 4.0) * sums.magnitudes;
    switch (rounding_) {
      case FactorRounding::kNone:
        break;
      case FactorRounding::kBytes:
        error += byteError(weight_.type, weights, inputs, weight_.cols);
        break;
      case FactorRounding::kHalfCodebook:
        error += codebookError(sums);
        break;
      case FactorRounding::kHalves:
        error += halfError(sums);
        break;
    }
    return error;
  }

  const WeightView weight_;
  const MatrixView input_;
  FactorRounding rounding_;
  std::vector<double> all_;  // [tokens, rows]
};

std::string nameOf(const MatmulCase& c) {
  return std::string(nameOf(c.form)) + " [" + std::to_string(c.rows) + ", " +
         std::to_string(c.cols) + "] x " + std::to_string(c.nTokens) +
         (c.accumulate ? ", accumulated" : "") + (c.isAligned ? ", aligned" : "");
}

TestMatrix inputOf(const MatmulCase& c, Random& random) {
  // Rows that can be read as vectors, and rows that cannot.
  const bool isAligned = c.isAligned && c.nTokens % 2 == 0;
  TestMatrix input(c.nTokens, c.cols, isAligned ? 4 : 3, isAligned ? 0 : 1);
  input.fill(random);
  return input;
}

CheckResult compareProducts(const MatmulCase& c, FactorRounding rounding, TestMatrix& actual,
                            TestMatrix& expected, TestMatrix& input, const WeightView& weight) {
  const MatrixView inputView = input.view();
  Tolerances tolerances(weight, inputView, rounding);
  CheckResult result = compare(actual, expected, [&](std::int64_t t, std::int64_t r) {
    return tolerances.of(t, r, static_cast<double>(expected.at(t, r)));
  });
  if (!result.isGood()) result.problem = nameOf(c) + ": " + result.problem;
  return result;
}

/// A product of the checks below: its weight, what the backend made, what the twin made.
struct Product {
  TestWeight weight;
  TestMatrix actual;
  TestMatrix expected;

  Product(const MatmulCase& c, std::int64_t rows, Random& random)
      : weight(c.form, rows, c.cols, random, c.isAligned),
        actual(c.nTokens, rows, 5, 3),
        expected(c.nTokens, rows) {}
};

constexpr float kEpsilon = 1e-5F;

/// The input of products behind a norm. Of very different sizes, since a norm makes them alike.
struct NormedInput {
  TestMatrix input;
  TestMatrix weight;    // of the norm
  TestMatrix scratch;   // for the backend
  TestMatrix expected;  // what the twin makes of it

  NormedInput(const MatmulCase& c, Random& random)
      : input(inputOf(c, random)),
        weight(1, c.cols, 0, c.isAligned && c.nTokens % 2 == 0 ? 0 : 1),
        scratch(c.nTokens, c.cols, 4),
        expected(c.nTokens, c.cols) {
    weight.fill(random);
    for (std::int64_t t = 0; t < c.nTokens; ++t) {
      const float size = std::pow(30.0F, static_cast<float>(t % 4) - 1.5F);
      for (std::int64_t i = 0; i < c.cols; ++i) input.at(t, i) *= size;
    }
    createReferenceBackend()->rmsNorm(input.view(), weight.view().data, kEpsilon, expected.view());
  }
};

/// What a norm in floats adds to the error of a product: its factor is off by some cols / 8 + 8
/// roundings (elementwise_check.cpp), and so is every number of the input.
double normError(const WeightView& weight, const MatrixView& normed, std::int64_t t,
                 std::int64_t r) {
  std::vector<float> numbers(static_cast<std::size_t>(weight.cols));
  dequantizeRow(weight, r, numbers.data());
  const ProductSums sums = sumsOf(numbers.data(), normed.data + t * normed.stride, weight.cols);
  return kUnitRoundoff * (static_cast<double>(weight.cols) / 8.0 + 8.0) * sums.magnitudes;
}

CheckResult named(CheckResult result, const MatmulCase& c, const char* what) {
  if (!result.isGood()) result.problem = what + nameOf(c) + ": " + result.problem;
  return result;
}

}  // namespace

FactorRounding factorRounding(const Backend& backend, const MatmulCase& c) {
  const std::string path = backend.description();
  const auto has = [&path](const char* word) { return path.find(word) != std::string::npos; };
  if (has("CUDA")) {
    if (c.nTokens > kMostMatvecTokens) return FactorRounding::kHalves;
    const bool isNf4 = c.form == WeightForm::kNf4 || c.form == WeightForm::kNf4DoubleQuantized;
    return isNf4 && c.isAligned ? FactorRounding::kHalfCodebook : FactorRounding::kNone;
  }
  return has("AVX2") || has("VNNI") || has("BF16") ? FactorRounding::kBytes : FactorRounding::kNone;
}

CheckResult checkMatmul(Backend& backend, const MatmulCase& c) {
  const std::int64_t rows[] = {c.rows};
  return checkMatmulEach(backend, c, rows);
}

CheckResult checkMatmulEach(Backend& backend, const MatmulCase& c,
                            std::span<const std::int64_t> rowsOfEach) {
  Random random(static_cast<unsigned>(c.rows * 31 + c.cols * 7 + c.nTokens));
  std::vector<Product> products;
  for (const std::int64_t rows : rowsOfEach) {
    Product& p = products.emplace_back(c, rows, random);
    for (std::int64_t t = 0; c.accumulate && t < c.nTokens; ++t) {
      for (std::int64_t r = 0; r < rows; ++r) {
        p.expected.at(t, r) = p.actual.at(t, r) = static_cast<float>(t - r) * 0.37F;
      }
    }
  }
  TestMatrix input = inputOf(c, random);

  DeviceCopies copies(backend);
  std::vector<Projection> projections;
  for (Product& p : products) {
    projections.push_back({copies.copy(p.weight.view()), copies.copy(p.actual)});
  }
  const MatrixView inputOnDevice = copies.copy(input);
  if (projections.size() == 1) {
    backend.matmul(inputOnDevice, projections[0].weight, projections[0].output, c.accumulate);
  } else {
    backend.matmulEach(inputOnDevice, projections);
  }

  const std::unique_ptr<Backend> reference = createReferenceBackend();
  const FactorRounding rounding = factorRounding(backend, c);
  CheckResult result;
  for (Product& p : products) {
    copies.fetch(p.actual);
    reference->matmul(input.view(), p.weight.view(), p.expected.view(), c.accumulate);
    result.add(compareProducts(c, rounding, p.actual, p.expected, input, p.weight.view()));
  }
  return result;
}

CheckResult checkNormMatmulEach(Backend& backend, const MatmulCase& c,
                                std::span<const std::int64_t> rowsOfEach) {
  Random random(static_cast<unsigned>(c.rows * 17 + c.cols * 5 + c.nTokens));
  std::vector<Product> products;
  for (const std::int64_t rows : rowsOfEach) products.emplace_back(c, rows, random);
  NormedInput input(c, random);

  DeviceCopies copies(backend);
  std::vector<Projection> projections;
  for (Product& p : products) {
    projections.push_back({copies.copy(p.weight.view()), copies.copy(p.actual)});
  }
  backend.normMatmulEach(copies.copy(input.input), copies.copy(input.weight).data, kEpsilon,
                         copies.copy(input.scratch), projections);

  const std::unique_ptr<Backend> reference = createReferenceBackend();
  const MatrixView normed = input.expected.view();
  CheckResult result;
  for (Product& p : products) {
    copies.fetch(p.actual);
    const WeightView weight = p.weight.view();
    reference->matmul(normed, weight, p.expected.view(), false);
    Tolerances tolerances(weight, normed, factorRounding(backend, c));
    result.add(named(compare(p.actual, p.expected,
                             [&](std::int64_t t, std::int64_t r) {
                               const auto expected = static_cast<double>(p.expected.at(t, r));
                               return tolerances.of(t, r, expected) +
                                      normError(weight, normed, t, r);
                             }),
                     c, "norm and "));
  }
  return result;
}

CheckResult checkNormGateUp(Backend& backend, const MatmulCase& c) {
  Random random(static_cast<unsigned>(c.rows * 13 + c.cols * 3 + c.nTokens));
  Product gate(c, c.rows, random);
  Product up(c, c.rows, random);
  NormedInput input(c, random);

  DeviceCopies copies(backend);
  const Projection gateThere{copies.copy(gate.weight.view()), copies.copy(gate.actual)};
  Projection upThere{copies.copy(up.weight.view()), copies.copy(up.actual)};
  upThere.weight.codebook = gateThere.weight.codebook;  // one for the model, as the loader does it
  backend.normGateUp(copies.copy(input.input), copies.copy(input.weight).data, kEpsilon,
                     copies.copy(input.scratch), gateThere, upThere);
  copies.fetch(gate.actual);

  const std::unique_ptr<Backend> reference = createReferenceBackend();
  const MatrixView normed = input.expected.view();
  const FactorRounding rounding = factorRounding(backend, c);
  const WeightView gateWeight = gate.weight.view();
  const WeightView upWeight = up.weight.view();
  reference->matmul(normed, gateWeight, gate.expected.view(), false);
  reference->matmul(normed, upWeight, up.expected.view(), false);
  Tolerances gateTolerances(gateWeight, normed, rounding);
  Tolerances upTolerances(upWeight, normed, rounding);
  TestMatrix expected(c.nTokens, c.rows);
  for (std::int64_t t = 0; t < c.nTokens; ++t) {
    for (std::int64_t r = 0; r < c.rows; ++r) expected.at(t, r) = gate.expected.at(t, r);
  }
  reference->siluMultiply(expected.view(), up.expected.view());
  return named(compare(gate.actual, expected,
                       [&](std::int64_t t, std::int64_t r) {
                         const auto g = static_cast<double>(gate.expected.at(t, r));
                         const auto u = static_cast<double>(up.expected.at(t, r));
                         const double gateError =
                             gateTolerances.of(t, r, g) + normError(gateWeight, normed, t, r);
                         const double upError =
                             upTolerances.of(t, r, u) + normError(upWeight, normed, t, r);
                         // silu(g) is at most |g|, and its slope at most 1.1.
                         return 1.1 * gateError * (std::abs(u) + upError) + std::abs(g) * upError +
                                8.0 * kUnitRoundoff * std::abs(g * u);
                       }),
               c, "gate and up ");
}

}  // namespace longhand::kernels::checks
