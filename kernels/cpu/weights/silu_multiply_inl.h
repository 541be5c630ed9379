#pragma once
// SwiGLU's gate: silu(gate) * up (Shazeer 2020).
// Included after simd_<set>.h and simd_partial.h: see cpu_kernels.h.

#include "kernels/cpu/weights/cpu_kernels.h"

namespace longhand::kernels {
namespace {

// e^x within 2 units in the last place for x in [-87.3, 88.3] (there 2^n stays a normal number);
// beyond, the value at the nearer end. x = n ln 2 + r, |r| <= ln 2 / 2; e^r is its Taylor
// polynomial of degree 7, whose remainder 0.3466^8 / 8! = 5e-9 is a tenth of float's epsilon.
inline Simd::Float exponential(Simd::Float x) {
  x = Simd::min(Simd::broadcast(88.3F), Simd::max(Simd::broadcast(-87.3F), x));  // NaN stays NaN
  // Adding and taking away 1.5 * 2^23 rounds to a whole number.
  const Simd::Float rounder = Simd::broadcast(0x1.8p23F);
  const Simd::Float log2e = Simd::broadcast(0x1.715476p0F);
  const Simd::Float n = Simd::subtract(Simd::multiplyAdd(x, log2e, rounder), rounder);
  // ln 2 in two parts (Cody and Waite): the first has 9 bits, so that n times it is exact.
  Simd::Float r = Simd::multiplyAdd(n, Simd::broadcast(-0x1.63p-1F), x);
  r = Simd::multiplyAdd(n, Simd::broadcast(0x1.bd0106p-13F), r);
  Simd::Float p = Simd::broadcast(1.0F / 5040.0F);
  p = Simd::multiplyAdd(p, r, Simd::broadcast(1.0F / 720.0F));
  p = Simd::multiplyAdd(p, r, Simd::broadcast(1.0F / 120.0F));
  p = Simd::multiplyAdd(p, r, Simd::broadcast(1.0F / 24.0F));
  p = Simd::multiplyAdd(p, r, Simd::broadcast(1.0F / 6.0F));
  p = Simd::multiplyAdd(p, r, Simd::broadcast(0.5F));
  const Simd::Float one = Simd::broadcast(1.0F);
  p = Simd::multiplyAdd(p, r, one);
  p = Simd::multiplyAdd(p, r, one);
  return Simd::scaleByPowerOf2(p, n);
}

inline Simd::Float siluTimes(Simd::Float gate, Simd::Float up) {
  const Simd::Float e = exponential(Simd::subtract(Simd::zero(), gate));
  const Simd::Float silu = Simd::divide(gate, Simd::add(Simd::broadcast(1.0F), e));
  return Simd::multiply(silu, up);
}

inline void siluMultiplyRow(float* gate, const float* up, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + Simd::kLanes <= count; i += Simd::kLanes) {
    Simd::store(gate + i, siluTimes(Simd::load(gate + i), Simd::load(up + i)));
  }
  if (i < count) {
    const Simd::Float result =
        siluTimes(loadFirst(gate + i, count - i), loadFirst(up + i, count - i));
    storeFirst(gate + i, result, count - i);
  }
}

}  // namespace
}  // namespace longhand::kernels
