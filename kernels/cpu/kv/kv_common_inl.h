#pragma once
// Pieces shared by the decode and prefill loops. Included after simd_<set>.h, in one file per
// instruction set; everything has internal linkage.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/kv/kv_kernels.h"

namespace longhand::kernels {
namespace {

using Float = Simd::Float;
using Words = Simd::Words;
constexpr std::int64_t kLanes = Simd::kLanes;

constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
constexpr std::int64_t roundedUp(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Calls body(integral_constant<0>) ... body(integral_constant<kCount - 1>).
template <int kCount, typename Body>
[[gnu::always_inline]] inline void unrolled(const Body& body) {
  if constexpr (kCount > 0) {
    unrolled<kCount - 1>(body);
    body(std::integral_constant<int, kCount - 1>{});
  }
}

/// Asks for the line that lies `ahead` bytes from p, which need not be memory of this process.
inline void prefetch(const void* p, std::ptrdiff_t ahead) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(p) +
                                                   static_cast<std::uintptr_t>(ahead)));
}

// --- Codes ------------------------------------------------------------------------------------

/// Code i of a word starts at this bit (page_layout.h).
constexpr int codeShift(int nbits, int i) { return 8 * (i % 4) + nbits * (i / 4); }

/// Code i of each word, times 2^codeShift: masking in place saves the shift, and the power of two
/// is folded into the scale. Only the code that ends at the sign bit is shifted down.
template <int kNbits, int i>
[[gnu::always_inline]] inline Float codeInPlace(Words words) {
  constexpr int kShift = codeShift(kNbits, i);
  if constexpr (kShift + kNbits == 32) {
    return Simd::toFloat(Simd::template shiftRight<kShift>(words));
  } else {
    return Simd::toFloat(Simd::maskBits(words, ((1U << kNbits) - 1U) << kShift));
  }
}

/// Code i of each word, in [0, 2^kNbits).
template <int kNbits, int i>
[[gnu::always_inline]] inline Float codeValue(Words words) {
  constexpr int kShift = codeShift(kNbits, i);
  if constexpr (kShift + kNbits == 32) {
    return Simd::toFloat(Simd::template shiftRight<kShift>(words));
  } else {
    return Simd::toFloat(
        Simd::maskBits(Simd::template shiftRight<kShift>(words), (1U << kNbits) - 1U));
  }
}

/// 2^-codeShift for each position in a word (1 for the one that codeInPlace shifts down),
/// repeated to fill kRowUnit entries.
template <int kNbits>
struct PlaceFactors {
  float values[kRowUnit];
  constexpr PlaceFactors() : values() {
    constexpr int kPerWord = 32 / kNbits;
    for (int i = 0; i < kRowUnit; ++i) {
      const int shift = codeShift(kNbits, i % kPerWord);
      float factor = 1.0F;
      if (shift + kNbits != 32) {
        for (int bit = 0; bit < shift; ++bit) factor *= 0.5F;
      }
      values[i] = factor;
    }
  }
};
template <int kNbits>
constexpr PlaceFactors<kNbits> kPlaceFactors{};

/// What a symmetric code of 0 stands for, in scales: -2^(nbits-1).
constexpr float symmetricMin(int nbits) { return -static_cast<float>(1 << (nbits - 1)); }

// --- Rows, whole or partial --------------------------------------------------------------------

struct HalfRows {
  using Element = std::uint16_t;
  static Float load(const Element* p) { return Simd::loadHalf(p); }
  static Float loadPartial(const Element* p, std::int64_t n) { return Simd::loadHalfPartial(p, n); }
};
struct FloatRows {
  using Element = float;
  static Float load(const Element* p) { return Simd::load(p); }
  static Float loadPartial(const Element* p, std::int64_t n) { return Simd::loadPartial(p, n); }
};

/// Lanes [0, n) of p where n < kLanes, else a whole vector; never reads past the row.
template <typename Rows>
[[gnu::always_inline]] inline Float loadUpTo(const typename Rows::Element* p, std::int64_t n) {
  return n >= kLanes ? Rows::load(p) : Rows::loadPartial(p, n);
}

template <typename Rows>
const typename Rows::Element* rowsOf(const std::byte* memory) {
  return reinterpret_cast<const typename Rows::Element*>(memory);
}

// --- Exponential -------------------------------------------------------------------------------

/// 2^x for x <= 0; 0 below -126, NaN stays NaN. The polynomial (degree 6, interpolated at Chebyshev
/// points of [-0.5, 0.5]) is within 2e-8; with rounding the relative error is under 2e-7.
inline Float powerOfTwo(Float x) {
  const Float bounded = Simd::max(Simd::broadcast(-126.0F), x);
  const Float whole = Simd::round(bounded);
  const Float part = Simd::subtract(bounded, whole);
  Float power = Simd::broadcast(0.00015461444854736328F);
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.0013400427997112274F));
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.009618056938052177F));
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.05550327152013779F));
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.24022650718688965F));
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.6931471824645996F));
  power = Simd::multiplyAdd(power, part, Simd::broadcast(1.0F));
  const Float result = Simd::scaleByPowerOf2(power, whole);
  return Simd::selectPositive(Simd::subtract(Simd::broadcast(-126.0F), x), Simd::zero(), result);
}

inline float powerOfTwo(float x) {
  float lanes[kLanes];
  Simd::store(lanes, powerOfTwo(Simd::broadcast(x)));
  return lanes[0];
}

inline void exp2InPlace(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    float lanes[kLanes] = {};
    const std::int64_t n = smaller(kLanes, count - i);
    for (std::int64_t lane = 0; lane < n; ++lane) lanes[lane] = values[i + lane];
    Simd::store(lanes, powerOfTwo(Simd::load(lanes)));
    for (std::int64_t lane = 0; lane < n; ++lane) values[i + lane] = lanes[lane];
  }
}

inline void scaleRow(float* row, std::int64_t rowFloats, float factor) {
  for (std::int64_t c = 0; c < rowFloats; c += kLanes) {
    Simd::store(row + c, Simd::multiply(Simd::load(row + c), Simd::broadcast(factor)));
  }
}

}  // namespace
}  // namespace longhand::kernels
