#pragma once
// Vector type of the KV kernels in the compiler's own vector extension: four lanes, any processor.
// For kv_portable.cpp only: it is compiled without instruction-set flags.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/half.h"

namespace longhand::kernels {
namespace {

struct Simd {
  static constexpr int kLanes = 4;
  static constexpr int kMaxAccumulators = 8;
  static constexpr int kGemmRows = 4;
  static constexpr int kGemmColumns = 2;

  using F = float __attribute__((vector_size(16)));
  using I = std::int32_t __attribute__((vector_size(16)));
  using U = std::uint32_t __attribute__((vector_size(16)));
  using Halves = std::uint16_t __attribute__((vector_size(8)));
  using Bytes = std::uint8_t __attribute__((vector_size(4)));

  static F zero() { return F{0.0F, 0.0F, 0.0F, 0.0F}; }
  static F set(float x) { return F{x, x, x, x}; }
  static F load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static F loadPartial(const float* p, std::int64_t n) {
    F v = zero();
    std::memcpy(&v, p, static_cast<std::size_t>(n) * sizeof(float));
    return v;
  }
  static void store(float* p, F v) { std::memcpy(p, &v, sizeof v); }
  static F loadHalf(const std::uint16_t* p) {
    Halves halves;
    std::memcpy(&halves, p, sizeof halves);
    const U bits = __builtin_convertvector(halves, U);
    const U sign = (bits & 0x8000U) << 16U;
    const U magnitude = bits & 0x7fffU;
    const U special = 0x7f800000U | ((magnitude & 0x3ffU) << 13U);  // infinity, NaN
    const U finite = bitsOf(floatOf(magnitude << 13U) * 0x1p112F);  // kernels/half.h
    return floatOf((magnitude >= 0x7c00U ? special : finite) | sign);
  }
  static F loadHalfPartial(const std::uint16_t* p, std::int64_t n) {
    std::uint16_t buffer[kLanes] = {};
    std::memcpy(buffer, p, static_cast<std::size_t>(n) * 2);
    return loadHalf(buffer);
  }
  static void storeHalf(std::uint16_t* p, F v) {
    for (int i = 0; i < kLanes; ++i) p[i] = floatToHalf(v[i]);
  }
  static U loadWords(const std::byte* p) {
    U v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static U loadWordsPartial(const std::byte* p, std::int64_t n) {
    U v = {0, 0, 0, 0};
    std::memcpy(&v, p, static_cast<std::size_t>(n) * 4);
    return v;
  }
  static U maskBits(U v, std::uint32_t mask) { return v & U{mask, mask, mask, mask}; }
  template <int kShift>
  static U shiftRight(U v) {
    return v >> kShift;
  }
  static F toFloat(U v) {  // values below 2^31
    return __builtin_convertvector(__builtin_convertvector(v, I), F);
  }
  static void storeBytes(std::uint8_t* p, F v) {  // whole numbers 0..255
    const Bytes bytes = __builtin_convertvector(__builtin_convertvector(v, I), Bytes);
    std::memcpy(p, &bytes, sizeof bytes);
  }

  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  /// The second where one is NaN.
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F abs(F a) { return floatOf(bitsOf(a) & 0x7fffffffU); }
  static F round(F a) {  // |a| < 2^22, ties to even; larger stay as they are
    const F magic = set(0x1.8p23F);
    const F rounded = (a + magic) - magic;
    return abs(a) < set(0x1p22F) ? rounded : a;
  }
  static F selectPositive(F condition, F a, F b) { return condition > zero() ? a : b; }
  static F keepFirst(F v, std::int64_t n, float other) {
    const I lane = {0, 1, 2, 3};
    const std::int32_t count = static_cast<std::int32_t>(n);
    return lane < I{count, count, count, count} ? v : set(other);
  }
  /// v where counts > index, else -infinity.
  static F keepVisible(F v, const std::int32_t* counts, std::int32_t index) {
    I count;
    std::memcpy(&count, counts, sizeof count);
    return count > I{index, index, index, index} ? v : set(-HUGE_VALF);
  }
  static float reduceAdd(F v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  static float reduceMax(F v) {
    const float a = v[0] > v[1] ? v[0] : v[1];
    const float b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
  }
  static float reduceMin(F v) { return -reduceMax(-v); }
  static void reduceAdd4(F a, F b, F c, F d, float* sums) {
    sums[0] = reduceAdd(a);
    sums[1] = reduceAdd(b);
    sums[2] = reduceAdd(c);
    sums[3] = reduceAdd(d);
  }
  /// v * 2^n for whole n in [-126, 127].
  static F scaleByPower(F v, F n) {
    const I bits = (__builtin_convertvector(n, I) + 127) << 23;
    F power;
    std::memcpy(&power, &bits, sizeof power);
    return v * power;
  }

 private:
  static U bitsOf(F v) {
    U bits;
    std::memcpy(&bits, &v, sizeof bits);
    return bits;
  }
  static F floatOf(U bits) {
    F v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
  }
};

}  // namespace
}  // namespace longhand::kernels
