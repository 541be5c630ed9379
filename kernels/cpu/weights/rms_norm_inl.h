#pragma once
// RMS norm of one row (Zhang and Sennrich 2019).
// Included after simd_<set>.h and simd_partial.h: see cpu_kernels.h.

#include "kernels/cpu/weights/cpu_kernels.h"

namespace longhand::kernels {
namespace {

inline void rmsNormRow(const float* input, const float* weight, float epsilon, std::int64_t count,
                       float* output) {
  Simd::Float squares = Simd::zero();
  std::int64_t i = 0;
  for (; i + Simd::kLanes <= count; i += Simd::kLanes) {
    const Simd::Float x = Simd::load(input + i);
    squares = Simd::multiplyAdd(x, x, squares);
  }
  if (i < count) {
    const Simd::Float x = loadFirst(input + i, count - i);
    squares = Simd::multiplyAdd(x, x, squares);
  }
  const float meanOfSquares = Simd::sum(squares) / static_cast<float>(count);
  const float factor = 1.0F / __builtin_sqrtf(meanOfSquares + epsilon);
  const Simd::Float factors = Simd::broadcast(factor);
  for (i = 0; i + Simd::kLanes <= count; i += Simd::kLanes) {
    const Simd::Float x = Simd::multiply(Simd::load(input + i), factors);
    Simd::store(output + i, Simd::multiply(x, Simd::load(weight + i)));
  }
  for (; i < count; ++i) output[i] = input[i] * factor * weight[i];
}

}  // namespace
}  // namespace longhand::kernels
