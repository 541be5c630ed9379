#include "kernels/checks/elementwise_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "kernels/checks/device_copies.h"
#include "kernels/reference/reference_backend.h"

namespace longhand::kernels::checks {
namespace {

// The sum of squares, in at least 4 lanes, is off by at most cols / 4 + 4 roundings, its root by
// half of that; the root, the division and two products add 5.
double rmsNormTolerance(double value, std::int64_t cols) {
  return std::abs(value) * kUnitRoundoff * (static_cast<double>(cols) / 8.0 + 8.0);
}

// e^x is within 2 units in the last place (4 roundings), 1 + e^x, the division, the product and
// the twin add one each: 8. Where gate < -88.3 the exponential is clamped: both values are then
// nearer to 0 than |gate| e^-88.3, which is 5e-37 for a gate of -110.
double siluTolerance(float gate, float up, double expected) {
  const double clamped =
      gate < -88.2F
          ? std::abs(static_cast<double>(gate) * static_cast<double>(up)) * std::exp(-88.2)
          : 0.0;
  return 8.0 * kUnitRoundoff * std::abs(expected) + clamped +
         static_cast<double>(std::numeric_limits<float>::denorm_min());
}

/// Copies the numbers of one matrix into another of the same shape.
void assign(TestMatrix& to, TestMatrix& from) {
  const MatrixView shape = from.view();
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t col = 0; col < shape.cols; ++col) to.at(row, col) = from.at(row, col);
  }
}

/// Rows that can be read in vectors of 4 where the number of tokens is even and `cols` allows, else
/// rows that cannot.
TestMatrix rowsOf(std::int64_t nTokens, std::int64_t cols) {
  if (nTokens % 2 == 0 && cols % 4 == 0) return {nTokens, cols, 4, 0};
  return {nTokens, cols, 3, 1};
}

CheckResult named(CheckResult result, std::int64_t nTokens, std::int64_t cols) {
  if (result.isGood()) return result;
  result.problem =
      "[" + std::to_string(nTokens) + ", " + std::to_string(cols) + "]: " + result.problem;
  return result;
}

}  // namespace

CheckResult checkEmbed(Backend& backend, WeightForm form, std::int64_t vocab, std::int64_t cols,
                       std::int64_t nTokens) {
  Random random(6);
  const TestWeight table(form, vocab, cols, random);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(nTokens));
  for (std::int32_t& id : ids) {
    id = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab));
  }
  TestMatrix actual = rowsOf(nTokens, cols);
  TestMatrix expected(nTokens, cols);
  DeviceCopies copies(backend);
  backend.embed(copies.copy(table.view()), ids, copies.copy(actual));
  copies.fetch(actual);
  createReferenceBackend()->embed(table.view(), ids, expected.view());
  return named(compare(actual, expected, [](auto, auto) { return 0.0; }), nTokens, cols);
}

CheckResult checkRmsNorm(Backend& backend, std::int64_t nTokens, std::int64_t cols,
                         bool isInPlace) {
  constexpr float kEpsilon = 1e-5F;
  Random random(2);
  TestMatrix input = rowsOf(nTokens, cols);
  TestMatrix weight(1, cols, 0, nTokens % 2 == 0 ? 0 : 1);
  TestMatrix output = rowsOf(nTokens, cols);
  TestMatrix expected(nTokens, cols);
  input.fill(random, 3.0F);
  weight.fill(random);
  createReferenceBackend()->rmsNorm(input.view(), weight.view().data, kEpsilon, expected.view());
  TestMatrix& actual = isInPlace ? input : output;
  DeviceCopies copies(backend);
  const MatrixView inputThere = copies.copy(input);
  const MatrixView outputThere = isInPlace ? inputThere : copies.copy(output);
  backend.rmsNorm(inputThere, copies.copy(weight).data, kEpsilon, outputThere);
  copies.fetch(actual);
  return named(compare(actual, expected,
                       [&](auto row, auto col) {
                         return rmsNormTolerance(static_cast<double>(expected.at(row, col)), cols);
                       }),
               nTokens, cols);
}

CheckResult checkRope(Backend& backend, std::int64_t nTokens, std::int64_t headDim) {
  const std::int64_t cols = 3 * headDim;
  Random random(4);
  TestMatrix actual = rowsOf(nTokens, cols);
  TestMatrix before(nTokens, cols);
  TestMatrix expected(nTokens, cols);
  TestMatrix cosSin(nTokens, headDim);
  before.fill(random);
  assign(actual, before);
  assign(expected, before);
  for (std::int64_t row = 0; row < nTokens; ++row) {
    for (std::int64_t i = 0; i < headDim / 2; ++i) {
      const float angle = static_cast<float>(random() % 1000) * 0.01F;
      cosSin.at(row, i) = std::cos(angle);
      cosSin.at(row, headDim / 2 + i) = std::sin(angle);
    }
  }
  DeviceCopies copies(backend);
  backend.rope(copies.copy(actual), headDim, copies.copy(cosSin).data);
  copies.fetch(actual);
  createReferenceBackend()->rope(expected.view(), headDim, cosSin.view().data);
  // Two products and a sum: at most 2 roundings of each product, and the twin's own.
  return named(compare(actual, expected,
                       [&](auto row, auto col) {
                         const std::int64_t half = headDim / 2;
                         const auto partner = col % headDim < half ? col + half : col - half;
                         return 3.0 * kUnitRoundoff *
                                (std::abs(static_cast<double>(before.at(row, col))) +
                                 std::abs(static_cast<double>(before.at(row, partner))));
                       }),
               nTokens, cols);
}

CheckResult checkSiluMultiply(Backend& backend, TestMatrix& gate, TestMatrix& up) {
  const MatrixView shape = gate.view();
  TestMatrix before(shape.rows, shape.cols);
  TestMatrix expected(shape.rows, shape.cols);
  assign(before, gate);
  assign(expected, gate);
  DeviceCopies copies(backend);
  backend.siluMultiply(copies.copy(gate), copies.copy(up));
  copies.fetch(gate);
  createReferenceBackend()->siluMultiply(expected.view(), up.view());
  return named(compare(gate, expected,
                       [&](auto row, auto col) {
                         return siluTolerance(before.at(row, col), up.at(row, col),
                                              static_cast<double>(expected.at(row, col)));
                       }),
               shape.rows, shape.cols);
}

CheckResult checkSiluMultiply(Backend& backend, std::int64_t nTokens, std::int64_t cols,
                              float standardDeviation) {
  Random random(5);
  TestMatrix gate = rowsOf(nTokens, cols);
  TestMatrix up = rowsOf(nTokens, cols);
  gate.fill(random, standardDeviation);
  up.fill(random);
  return checkSiluMultiply(backend, gate, up);
}

CheckResult checkArgmax(Backend& backend, std::int64_t count) {
  Random random(7);
  const auto expect = [&](std::vector<float>& logits, std::int32_t expected) -> CheckResult {
    DeviceCopies copies(backend);
    const float* const data = logits.data();
    const std::int32_t found = backend.argmax(copies.copy(data, logits.size()), count);
    if (found == expected) return {};
    return {HUGE_VAL, std::to_string(count) + " logits: expected " + std::to_string(expected) +
                          ", got " + std::to_string(found)};
  };
  std::vector<float> logits(static_cast<std::size_t>(count));
  std::uniform_real_distribution<float> uniform(-5.0F, 5.0F);
  for (float& logit : logits) logit = uniform(random);
  CheckResult result;
  for (const std::int64_t position : {std::int64_t{0}, count / 3, count / 2, count - 1}) {
    std::vector<float> one = logits;
    one.back() = 7.0F;  // the lowest index of equal ones counts
    one[static_cast<std::size_t>(position)] = 7.0F;
    result.add(expect(one, static_cast<std::int32_t>(position)));
    one[static_cast<std::size_t>(count - 1 - position)] = std::numeric_limits<float>::quiet_NaN();
    result.add(expect(one, -1));
  }
  return result;
}

CheckResult checkTopLogits(Backend& backend, std::int64_t count, std::int64_t nBest) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Random random(static_cast<unsigned>(count * 3 + nBest));
  std::vector<float> logits(static_cast<std::size_t>(count));
  for (float& logit : logits) {
    const auto kind = random() % 64;
    const float steps = static_cast<float>(random() % 512) - 256.0F;  // so some are equal
    logit = kind == 0   ? std::numeric_limits<float>::quiet_NaN()
            : kind == 1 ? -kInfinity
            : kind == 2 ? -0.0F
                        : steps / 16.0F;
  }
  logits[random() % logits.size()] = kInfinity;
  std::vector<ScoredToken> expected;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -kInfinity) expected.push_back({logits[i], static_cast<std::int32_t>(i)});
  }
  std::ranges::stable_sort(expected, std::greater<>(), &ScoredToken::logit);
  expected.resize(std::min(expected.size(), static_cast<std::size_t>(nBest)));

  DeviceCopies copies(backend);
  const float* const data = logits.data();
  std::vector<ScoredToken> best(static_cast<std::size_t>(nBest));
  const std::int64_t found = backend.topLogits(copies.copy(data, logits.size()), count, best);
  const std::string name =
      "the best " + std::to_string(nBest) + " of " + std::to_string(count) + " logits: ";
  if (found != std::ssize(expected)) {
    return {HUGE_VAL,
            name + std::to_string(found) + " instead of " + std::to_string(expected.size())};
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (best[i] == expected[i]) continue;
    return {HUGE_VAL, name + "number " + std::to_string(i) + " is " + std::to_string(best[i].id) +
                          " instead of " + std::to_string(expected[i].id)};
  }
  return {};
}

CheckResult checkMemory(Backend& backend, std::size_t bytes) {
  std::vector<std::byte> pattern(bytes);
  for (std::size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::byte* const first = backend.allocate(bytes);
  std::byte* const second = backend.allocate(bytes);
  std::vector<std::byte> back(bytes);
  if (first != nullptr && second != nullptr) {
    backend.upload(first, pattern.data(), bytes);
    backend.copy(second, first, bytes);
    backend.download(back.data(), second, bytes);
  }
  const bool hasRoom = first != nullptr && second != nullptr;
  backend.release(second, bytes);
  backend.release(first, bytes);
  if (!hasRoom) throw std::bad_alloc();
  if (back == pattern) return {};
  return {HUGE_VAL, std::to_string(bytes) + " bytes came back otherwise than they went"};
}

}  // namespace longhand::kernels::checks
