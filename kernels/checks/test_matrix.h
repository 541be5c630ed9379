#pragma once
// Matrices and weights for checks of kernels. Buffers are exactly as long as they must be, so
// that a sanitizer sees a read past the end, and everything between the rows is NaN.

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/checks/check_result.h"
#include "kernels/types.h"

namespace longhand::kernels::checks {

/// Half the distance from 1 to the next float: the largest relative error of one rounding.
inline constexpr double kUnitRoundoff = 0x1p-24;

using Random = std::mt19937;

/// A float matrix that starts `misalignment` floats into its buffer, rows `padding` floats apart.
class TestMatrix {
 public:
  TestMatrix(std::int64_t rows, std::int64_t cols, std::int64_t padding = 0,
             std::int64_t misalignment = 0);

  /// Normal numbers.
  void fill(Random& random, float standardDeviation = 1.0F);
  MatrixView view();
  float& at(std::int64_t row, std::int64_t col);
  /// All of it, with what lies between the rows.
  std::span<float> buffer() { return buffer_; }
  /// True when nothing but the matrix was written.
  bool isPaddingUntouched() const;

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t stride_;
  std::int64_t misalignment_;
  std::vector<float> buffer_;  // [misalignment + (rows - 1) * stride + cols]
};

/// How the numbers of a weight are stored.
enum class WeightForm { kF32, kF16, kBF16, kNf4, kNf4DoubleQuantized, kInt8 };
inline constexpr WeightForm kWeightForms[] = {WeightForm::kF32,
                                              WeightForm::kF16,
                                              WeightForm::kBF16,
                                              WeightForm::kNf4,
                                              WeightForm::kNf4DoubleQuantized,
                                              WeightForm::kInt8};
const char* nameOf(WeightForm form);

/// A weight of random numbers; its data start one number (NF4: one byte) into their buffer, or at
/// its start (16-byte aligned) with `isAligned`.
class TestWeight {
 public:
  TestWeight(WeightForm form, std::int64_t rows, std::int64_t cols, Random& random,
             bool isAligned = false);
  WeightView view() const;

 private:
  WeightForm form_;
  std::int64_t rows_;
  std::int64_t cols_;
  std::size_t offset_;  // of the data in their buffer
  std::vector<float> floats_;
  std::vector<std::uint16_t> shorts_;
  std::vector<std::uint8_t> codes_;  // NF4
  std::vector<std::int8_t> bytes_;   // int8
  std::vector<float> scales_;        // int8
  std::vector<float> absmax_;
  std::vector<std::uint8_t> absmaxCodes_;
  std::vector<float> nestedAbsmax_;
  float nestedOffset_ = 0.0F;
};

using Tolerance = std::function<double(std::int64_t row, std::int64_t col)>;

/// Every number against the expected one. The problem is the first that is farther off than its
/// tolerance, or NaN; or that something was written outside of the matrix.
CheckResult compare(TestMatrix& actual, TestMatrix& expected, const Tolerance& tolerance);

/// The problem with a number, whatever was written outside of the matrix.
std::string firstMismatch(TestMatrix& actual, TestMatrix& expected, const Tolerance& tolerance);

}  // namespace longhand::kernels::checks
