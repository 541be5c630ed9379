#pragma once
// Rotary position embedding of one head (Su et al. 2021), in the half-split order of Hugging Face.
// Included after simd_<set>.h: see cpu_kernels.h.

#include "kernels/cpu/weights/cpu_kernels.h"

namespace longhand::kernels {
namespace {

inline void ropeHead(float* head, const float* cosines, const float* sines, std::int64_t half) {
  std::int64_t i = 0;
  for (; i + Simd::kLanes <= half; i += Simd::kLanes) {
    const Simd::Float x = Simd::load(head + i);
    const Simd::Float y = Simd::load(head + half + i);
    const Simd::Float c = Simd::load(cosines + i);
    const Simd::Float s = Simd::load(sines + i);
    Simd::store(head + i, Simd::subtract(Simd::multiply(x, c), Simd::multiply(y, s)));
    Simd::store(head + half + i, Simd::multiplyAdd(y, c, Simd::multiply(x, s)));
  }
  for (; i < half; ++i) {
    const float x = head[i];
    const float y = head[half + i];
    head[i] = x * cosines[i] - y * sines[i];
    head[half + i] = y * cosines[i] + x * sines[i];
  }
}

}  // namespace
}  // namespace longhand::kernels
