#pragma once
// The device functions that CUDA's own headers do not give a host compiler. Add what a kernel
// needs.
//
// Last places are as bad as on a GPU, so that nothing can depend on them unseen: products and sums
// fuse where nvcc would fuse them (CMakeLists.txt, on processors that can), but for the functions
// that promise to round, and functions of the math library are off by what CUDA's may be off.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tests/cuda_on_cpu/sanitizer_hooks.h"

template <class T>
inline T __ldg(const T* address) {
  return *address;
}
template <class T>
inline T __ldcs(const T* address) {
  return *address;
}
template <class T>
inline void __stcs(T* address, T value) {
  *address = value;
}

// --- Atomics: acquire and release, since tsan models no fences -----------------------------------

template <class T>
requires std::is_integral_v<T>
inline T atomicAdd(T* address, T value) {
  return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);
}
inline float atomicAdd(float* address, float value) {
  auto* bits = static_cast<std::uint32_t*>(static_cast<void*>(address));
  std::uint32_t before = __atomic_load_n(bits, __ATOMIC_RELAXED);
  std::uint32_t after = 0;
  do {
    after = std::bit_cast<std::uint32_t>(std::bit_cast<float>(before) + value);
  } while (
      !__atomic_compare_exchange_n(bits, &before, after, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  return std::bit_cast<float>(before);
}
template <class T>
requires std::is_integral_v<T>
inline T atomicMax(T* address, T value) {
  T before = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (before < value && !__atomic_compare_exchange_n(address, &before, value, true,
                                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return before;
}
template <class T>
requires std::is_integral_v<T>
inline T atomicCAS(T* address, T expected, T value) {
  __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}
inline void __threadfence() {
#ifndef LONGHAND_EMULATION_TSAN
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// --- Scalars -------------------------------------------------------------------------------------

namespace longhand::cuda_on_cpu {

/// A number that the compiler cannot fuse with what is done to it, nor with what made it.
template <class Float>
inline Float rounded(Float x) {
#ifdef __x86_64__
  asm("" : "+x"(x));
#endif
  return x;
}

/// `places` units in the last place more or less, as its bits have it. Zeros, infinities, NaN and
/// their neighbours stay.
inline float lastPlacesOff(float x, std::uint32_t places) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude < 16U || magnitude > 0x7f7ffff0U) return x;
  const bool isMore = (bits * 2654435761U >> 31U) != 0;
  return std::bit_cast<float>(isMore ? bits + places : bits - places);
}

// The largest errors of CUDA's (CUDA C++ Programming Guide, mathematical functions).
inline float deviceExp(float x) { return x == 0.0F ? 1.0F : lastPlacesOff(std::exp(x), 2); }
inline float deviceExp2(float x) { return x == 0.0F ? 1.0F : lastPlacesOff(std::exp2(x), 2); }
inline float deviceLog2(float x) { return lastPlacesOff(std::log2(x), 1); }
inline float devicePow(float x, float y) { return lastPlacesOff(std::pow(x, y), 4); }
/// ex2.approx.ftz.f32.
inline float powerOfTwo(float x) { return x < -126.0F ? 0.0F : deviceExp2(x); }

}  // namespace longhand::cuda_on_cpu

#define expf(x) ::longhand::cuda_on_cpu::deviceExp(x)
#define exp2f(x) ::longhand::cuda_on_cpu::deviceExp2(x)
#define log2f(x) ::longhand::cuda_on_cpu::deviceLog2(x)
#define powf(x, y) ::longhand::cuda_on_cpu::devicePow(x, y)

inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return longhand::cuda_on_cpu::rounded(1.0F / x); }
inline float __fmul_rn(float a, float b) {
  using longhand::cuda_on_cpu::rounded;
  return rounded(rounded(a) * rounded(b));
}
inline float __fadd_rn(float a, float b) {
  using longhand::cuda_on_cpu::rounded;
  return rounded(rounded(a) + rounded(b));
}
inline float __fsub_rn(float a, float b) {
  using longhand::cuda_on_cpu::rounded;
  return rounded(rounded(a) - rounded(b));
}
inline float __fdiv_rn(float a, float b) {
  using longhand::cuda_on_cpu::rounded;
  return rounded(rounded(a) / rounded(b));
}
inline double __dmul_rn(double a, double b) {
  using longhand::cuda_on_cpu::rounded;
  return rounded(rounded(a) * rounded(b));
}
inline double __dadd_rn(double a, double b) {
  using longhand::cuda_on_cpu::rounded;
  return rounded(rounded(a) + rounded(b));
}
inline float __saturatef(float x) { return x > 0.0F ? (x < 1.0F ? x : 1.0F) : 0.0F; }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float2int_rn(float x) {
  if (std::isnan(x)) return 0;
  if (x >= 0x1p31F) return std::numeric_limits<int>::max();
  if (x < -0x1p31F) return std::numeric_limits<int>::min();
  return static_cast<int>(std::nearbyint(x));
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }

/// Picks four of the eight bytes of (b, a), one for each nibble of the selector.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32U | a;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 15U;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7U))) & 0xffU;
    if ((choice & 8U) != 0) byte = (byte & 0x80U) != 0 ? 0xffU : 0U;  // replicates the sign
    result |= byte << (8 * i);
  }
  return result;
}

inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<std::int8_t>(a >> (8 * i)) * static_cast<std::int8_t>(b >> (8 * i));
  }
  return c;
}

// --- Halves (the GPU computes them in float and rounds once)
// --------------------------------------

inline __half __hfma(__half a, __half b, __half c) {
  return __float2half(std::fma(__half2float(a), __half2float(b), __half2float(c)));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return __halves2half2(__hfma(__low2half(a), __low2half(b), __low2half(c)),
                        __hfma(__high2half(a), __high2half(b), __high2half(c)));
}
