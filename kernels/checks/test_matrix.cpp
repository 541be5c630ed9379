#include "kernels/checks/test_matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "kernels/half.h"
#include "kernels/int8_weights.h"
#include "kernels/nf4.h"

namespace longhand::kernels::checks {

TestMatrix::TestMatrix(std::int64_t rows, std::int64_t cols, std::int64_t padding,
                       std::int64_t misalignment)
    : rows_(rows),
      cols_(cols),
      stride_(cols + padding),
      misalignment_(misalignment),
      buffer_(static_cast<std::size_t>(misalignment + (rows - 1) * stride_ + cols),
              std::numeric_limits<float>::quiet_NaN()) {}

void TestMatrix::fill(Random& random, float standardDeviation) {
  std::normal_distribution<float> normal(0.0F, standardDeviation);
  for (std::int64_t row = 0; row < rows_; ++row) {
    for (std::int64_t col = 0; col < cols_; ++col) at(row, col) = normal(random);
  }
}

MatrixView TestMatrix::view() { return {buffer_.data() + misalignment_, rows_, cols_, stride_}; }

float& TestMatrix::at(std::int64_t row, std::int64_t col) {
  return buffer_[static_cast<std::size_t>(misalignment_ + row * stride_ + col)];
}

bool TestMatrix::isPaddingUntouched() const {
  for (std::int64_t i = 0; i < std::ssize(buffer_); ++i) {
    const std::int64_t offset = i - misalignment_;
    const bool isInside = offset >= 0 && offset % stride_ < cols_;
    if (!isInside && !std::isnan(buffer_[static_cast<std::size_t>(i)])) return false;
  }
  return true;
}

const char* nameOf(WeightForm form) {
  switch (form) {
    case WeightForm::kF32:
      return "F32";
    case WeightForm::kF16:
      return "F16";
    case WeightForm::kBF16:
      return "BF16";
    case WeightForm::kNf4:
      return "NF4";
    case WeightForm::kNf4DoubleQuantized:
      return "NF4 double quantized";
    case WeightForm::kInt8:
      return "int8";
  }
  return "";
}

TestWeight::TestWeight(WeightForm form, std::int64_t rows, std::int64_t cols, Random& random,
                       bool isAligned)
    : form_(form), rows_(rows), cols_(cols), offset_(isAligned ? 0 : 1) {
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<std::size_t>(rows * cols));
  for (float& number : numbers) number = normal(random);
  switch (form) {
    case WeightForm::kF32:
      floats_.resize(offset_);
      floats_.insert(floats_.end(), numbers.begin(), numbers.end());
      return;
    case WeightForm::kF16:
    case WeightForm::kBF16:
      shorts_.resize(offset_);
      for (const float number : numbers) {
        shorts_.push_back(form == WeightForm::kF16 ? floatToHalf(number) : floatToBfloat(number));
      }
      return;
    case WeightForm::kInt8:
      bytes_.resize(offset_ + numbers.size());
      scales_.resize((numbers.size() + 63) / 64);
      quantizeInt8(numbers, std::span(bytes_).subspan(offset_), scales_);
      return;
    case WeightForm::kNf4:
    case WeightForm::kNf4DoubleQuantized:
      break;
  }
  codes_.resize(offset_ + (numbers.size() + 1) / 2);
  absmax_.resize((numbers.size() + 63) / 64);
  quantizeNf4(numbers, std::span(codes_).subspan(offset_), absmax_);
  if (form == WeightForm::kNf4DoubleQuantized) {
    absmaxCodes_.resize(absmax_.size());
    nestedAbsmax_.resize((absmax_.size() + 255) / 256);
    nestedOffset_ = quantizeAbsmax(absmax_, absmaxCodes_, nestedAbsmax_);
  }
}

WeightView TestWeight::view() const {
  WeightView weight;
  weight.rows = rows_;
  weight.cols = cols_;
  switch (form_) {
    case WeightForm::kF32:
      weight.type = DataType::kF32;
      weight.data = std::as_bytes(std::span(floats_).subspan(offset_)).data();
      return weight;
    case WeightForm::kF16:
    case WeightForm::kBF16:
      weight.type = form_ == WeightForm::kF16 ? DataType::kF16 : DataType::kBF16;
      weight.data = std::as_bytes(std::span(shorts_).subspan(offset_)).data();
      return weight;
    case WeightForm::kInt8:
      weight.type = DataType::kInt8;
      weight.data = std::as_bytes(std::span(bytes_).subspan(offset_)).data();
      weight.scales = scales_.data();
      return weight;
    case WeightForm::kNf4:
      weight.absmax = absmax_.data();
      break;
    case WeightForm::kNf4DoubleQuantized:
      weight.absmaxCodes = absmaxCodes_.data();
      weight.nestedAbsmax = nestedAbsmax_.data();
      weight.nestedCodebook = dynamicCodebook().data();
      weight.nestedOffset = nestedOffset_;
      break;
  }
  weight.type = DataType::kNf4;
  weight.data = std::as_bytes(std::span(codes_).subspan(offset_)).data();
  weight.codebook = kNf4Codebook.data();
  return weight;
}

namespace {

std::string mismatchText(std::int64_t row, std::int64_t col, double wanted, double got,
                         double allowed) {
  std::ostringstream text;
  text.precision(9);
  text << "row " << row << ", column " << col << ": expected " << wanted << ", got " << got
       << ", difference " << got - wanted << ", tolerance " << allowed;
  return text.str();
}

CheckResult compareNumbers(TestMatrix& actual, TestMatrix& expected, const Tolerance& tolerance) {
  CheckResult result;
  const MatrixView shape = expected.view();
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      const double wanted = static_cast<double>(expected.at(row, col));
      const double got = static_cast<double>(actual.at(row, col));
      const double allowed = tolerance(row, col);
      const double difference = std::abs(got - wanted);
      if (!(difference <= allowed)) {  // NaN, too
        result.worst = std::isnan(difference) || allowed == 0.0 ? HUGE_VAL : difference / allowed;
        result.problem = mismatchText(row, col, wanted, got, allowed);
        return result;
      }
      if (allowed > 0.0) result.worst = std::max(result.worst, difference / allowed);
    }
  }
  return result;
}

}  // namespace

CheckResult compare(TestMatrix& actual, TestMatrix& expected, const Tolerance& tolerance) {
  CheckResult result = compareNumbers(actual, expected, tolerance);
  if (result.isGood() && !actual.isPaddingUntouched()) {
    result = {HUGE_VAL, "wrote outside of the output"};
  }
  return result;
}

std::string firstMismatch(TestMatrix& actual, TestMatrix& expected, const Tolerance& tolerance) {
  return compareNumbers(actual, expected, tolerance).problem;
}

}  // namespace longhand::kernels::checks
