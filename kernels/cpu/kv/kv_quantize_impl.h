#pragma once
// Min-max quantization of whole pages: the operations of quantizer.cpp in the same order, many
// groups or values at a time, so that every bit agrees.

#include "kernels/cpu/kv/kv_common_impl.h"

namespace longhand::kernels {
namespace {

inline F roundToHalf(F value) {
  std::uint16_t halves[kLanes];
  Simd::storeHalf(halves, value);
  return Simd::loadHalf(halves);
}

/// Exact rows [nTokens, headDim] to floats that F16 can represent, [nTokens, rowFloats], padding 0.
template <typename Rows>
void roundRows(const std::byte* memory, std::int64_t nTokens, std::int64_t headDim,
               std::int64_t rowFloats, float* rows) {
  const F most = Simd::set(65504.0F);
  const F least = Simd::set(-65504.0F);
  const auto* source = rowsOf<Rows>(memory);
  for (std::int64_t t = 0; t < nTokens; ++t) {
    for (std::int64_t c = 0; c < rowFloats; c += kLanes) {
      const std::int64_t n = headDim - c;
      F value = n > 0 ? loadUpTo<Rows>(source + c, n) : Simd::zero();
      if constexpr (sizeof(typename Rows::Element) == sizeof(float)) value = roundToHalf(value);
      Simd::store(rows + c, Simd::min(most, Simd::max(least, value)));  // NaN stays NaN
    }
    source += headDim;
    rows += rowFloats;
  }
}

void roundToHalves(const std::byte* memory, DataType type, std::int64_t nTokens,
                   std::int64_t headDim, std::int64_t rowFloats, float* rows) {
  if (type == DataType::kF16) {
    roundRows<HalfRows>(memory, nTokens, headDim, rowFloats, rows);
  } else {
    roundRows<FloatRows>(memory, nTokens, headDim, rowFloats, rows);
  }
}

struct CodeRange {
  float largest;  // 2^nbits - 1
  float offset;   // code of 0 in the symmetric scheme
  float divisor;  // range or absmax in scales
  bool isSymmetric;

  CodeRange(int nbits, bool symmetric)
      : largest(static_cast<float>((1 << nbits) - 1)),
        offset(static_cast<float>(1 << (nbits - 1))),
        divisor(symmetric ? offset - 1.0F : largest),
        isSymmetric(symmetric) {}
};

inline F encode(const CodeRange& range, F values, F scale, F min) {
  const F isUsable = scale;
  const F divisor = Simd::selectPositive(isUsable, scale, Simd::set(1.0F));
  F position = Simd::round(Simd::div(Simd::sub(values, min), divisor));
  if (range.isSymmetric) position = Simd::add(position, Simd::set(range.offset));
  // Constant second: NaN becomes code 0, as in the scalar code.
  position = Simd::min(Simd::max(position, Simd::zero()), Simd::set(range.largest));
  return Simd::selectPositive(isUsable, position, Simd::zero());
}

void quantizeKeys(const float* rows, std::int64_t nTokens, std::int64_t rowFloats, int nbits,
                  bool isSymmetric, std::uint8_t* codes, std::uint16_t* scales,
                  std::uint16_t* mins) {
  const CodeRange range(nbits, isSymmetric);
  for (std::int64_t c = 0; c < rowFloats; c += kLanes) {
    F low = Simd::load(rows + c);
    F high = low;
    for (std::int64_t t = 1; t < nTokens; ++t) {
      const F value = Simd::load(rows + t * rowFloats + c);
      low = Simd::min(low, value);
      high = Simd::max(high, value);
    }
    const F extent =
        isSymmetric ? Simd::max(Simd::abs(low), Simd::abs(high)) : Simd::sub(high, low);
    const F scale = roundToHalf(Simd::div(extent, Simd::set(range.divisor)));
    const F min = isSymmetric ? Simd::zero() : Simd::add(low, Simd::zero());  // -0 becomes 0
    Simd::storeHalf(scales + c, scale);
    if (mins != nullptr) Simd::storeHalf(mins + c, min);
    for (std::int64_t t = 0; t < nTokens; ++t) {
      const std::int64_t at = t * rowFloats + c;
      Simd::storeBytes(codes + at, encode(range, Simd::load(rows + at), scale, min));
    }
  }
}

void quantizeValues(const float* rows, std::int64_t nTokens, std::int64_t rowFloats,
                    std::int64_t headDim, std::int64_t valueGroupSize, int nbits, bool isSymmetric,
                    std::uint8_t* codes, std::uint16_t* scales, std::uint16_t* mins) {
  const CodeRange range(nbits, isSymmetric);
  std::int64_t group = 0;
  for (std::int64_t first = 0; first < headDim; first += valueGroupSize, ++group) {
    const std::int64_t end = smaller(first + valueGroupSize, headDim);
    for (std::int64_t t = 0; t < nTokens; ++t) {
      const float* row = rows + t * rowFloats;
      F low = Simd::set(row[first]);
      F high = low;
      for (std::int64_t c = first; c < end; c += kLanes) {
        const F value = Simd::load(row + c);  // padded rows: reading on is safe
        low = Simd::min(low, Simd::keepFirst(value, end - c, row[first]));
        high = Simd::max(high, Simd::keepFirst(value, end - c, row[first]));
      }
      const F lowest = Simd::set(Simd::reduceMin(low));
      const F highest = Simd::set(Simd::reduceMax(high));
      const F extent = isSymmetric ? Simd::max(Simd::abs(lowest), Simd::abs(highest))
                                   : Simd::sub(highest, lowest);
      const F scale = roundToHalf(Simd::div(extent, Simd::set(range.divisor)));
      const F min = isSymmetric ? Simd::zero() : Simd::add(lowest, Simd::zero());
      std::uint16_t halves[kLanes];
      Simd::storeHalf(halves, scale);
      scales[group * nTokens + t] = halves[0];
      if (mins != nullptr) {
        Simd::storeHalf(halves, min);
        mins[group * nTokens + t] = halves[0];
      }
      for (std::int64_t c = first; c < end; c += kLanes) {
        Simd::storeBytes(codes + t * rowFloats + c, encode(range, Simd::load(row + c), scale, min));
      }
    }
  }
}

}  // namespace
}  // namespace longhand::kernels
