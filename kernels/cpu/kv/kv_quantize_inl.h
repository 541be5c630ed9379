#pragma once
// Min-max quantization of whole pages: the operations of quantizer.cpp in the same order, many
// groups or values at a time, so that every bit agrees.

#include "kernels/cpu/kv/kv_common_inl.h"

namespace longhand::kernels {
namespace {

inline Float roundToHalf(Float value) {
  std::uint16_t halves[kLanes];
  Simd::storeHalf(halves, value);
  return Simd::loadHalf(halves);
}

/// Exact rows [nTokens, headDim] to floats that F16 can represent, [nTokens, rowFloats], padding 0.
template <typename Rows>
void roundRows(const std::byte* memory, std::int64_t nTokens, std::int64_t headDim,
               std::int64_t rowFloats, float* rows) {
  const Float most = Simd::broadcast(65504.0F);
  const Float least = Simd::broadcast(-65504.0F);
  const auto* source = rowsOf<Rows>(memory);
  for (std::int64_t t = 0; t < nTokens; ++t) {
    for (std::int64_t c = 0; c < rowFloats; c += kLanes) {
      const std::int64_t n = headDim - c;
      Float value = n > 0 ? loadUpTo<Rows>(source + c, n) : Simd::zero();
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

inline Float encode(const CodeRange& range, Float values, Float scale, Float min) {
  const Float isUsable = scale;
  const Float divisor = Simd::selectPositive(isUsable, scale, Simd::broadcast(1.0F));
  Float position = Simd::round(Simd::divide(Simd::subtract(values, min), divisor));
  if (range.isSymmetric) position = Simd::add(position, Simd::broadcast(range.offset));
  // Constant second: NaN becomes code 0, as in the scalar code.
  position = Simd::min(Simd::max(position, Simd::zero()), Simd::broadcast(range.largest));
  return Simd::selectPositive(isUsable, position, Simd::zero());
}

void quantizeKeys(const float* rows, std::int64_t nTokens, std::int64_t rowFloats, int nbits,
                  bool isSymmetric, std::uint8_t* codes, std::uint16_t* scales,
                  std::uint16_t* mins) {
  const CodeRange range(nbits, isSymmetric);
  for (std::int64_t c = 0; c < rowFloats; c += kLanes) {
    Float low = Simd::load(rows + c);
    Float high = low;
    for (std::int64_t t = 1; t < nTokens; ++t) {
      const Float value = Simd::load(rows + t * rowFloats + c);
      low = Simd::min(low, value);
      high = Simd::max(high, value);
    }
    const Float extent =
        isSymmetric ? Simd::max(Simd::abs(low), Simd::abs(high)) : Simd::subtract(high, low);
    const Float scale = roundToHalf(Simd::divide(extent, Simd::broadcast(range.divisor)));
    const Float min = isSymmetric ? Simd::zero() : Simd::add(low, Simd::zero());  // -0 becomes 0
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
      Float low = Simd::broadcast(row[first]);
      Float high = low;
      for (std::int64_t c = first; c < end; c += kLanes) {
        const Float value = Simd::load(row + c);  // padded rows: reading on is safe
        low = Simd::min(low, Simd::keepFirst(value, end - c, row[first]));
        high = Simd::max(high, Simd::keepFirst(value, end - c, row[first]));
      }
      const Float lowest = Simd::broadcast(Simd::smallest(low));
      const Float highest = Simd::broadcast(Simd::largest(high));
      const Float extent = isSymmetric ? Simd::max(Simd::abs(lowest), Simd::abs(highest))
                                       : Simd::subtract(highest, lowest);
      const Float scale = roundToHalf(Simd::divide(extent, Simd::broadcast(range.divisor)));
      const Float min = isSymmetric ? Simd::zero() : Simd::add(lowest, Simd::zero());
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
