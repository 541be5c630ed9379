#pragma once
// Scalar conversions between float and the 16-bit formats, bit-exact on every machine: round to
// nearest, ties to even; NaN stays NaN, overflow becomes infinity.

#include <bit>
#include <cstdint>

namespace longhand::kernels {

/// IEEE 754 binary16 to float (exact).
inline float halfToFloat(std::uint16_t half) {
  const std::uint32_t sign = (static_cast<std::uint32_t>(half) & 0x8000U) << 16U;
  const std::uint32_t magnitude = half & 0x7fffU;
  if (magnitude >= 0x7c00U) {
    return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13U));
  }
  // Scaling by 2^112 re-biases the exponent and normalizes subnormals in one multiplication.
  const float scaled = std::bit_cast<float>(magnitude << 13U) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

/// Float to IEEE 754 binary16, nearest even.
inline std::uint16_t floatToHalf(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude >= 0x7f800000U) {  // infinity, NaN (kept quiet)
    return static_cast<std::uint16_t>(sign | 0x7c00U | (magnitude > 0x7f800000U ? 0x200U : 0U));
  }
  if (magnitude >= 0x477ff000U) {  // 65520 and more round to infinity
    return static_cast<std::uint16_t>(sign | 0x7c00U);
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: adding 0.5 aligns the subnormal's last bit
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t odd = (magnitude >> 13U) & 1U;
  return static_cast<std::uint16_t>(sign | ((magnitude + 0xc8000fffU + odd) >> 13U));
}

inline float bfloatToFloat(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
}

inline std::uint16_t floatToBfloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

}  // namespace longhand::kernels
