#pragma once
// Whole numbers rounded up to units: how many are needed, and how large they are together.

#include <type_traits>

namespace longhand::kernels {

/// For value >= 0 and unit > 0.
template <typename Integer>
constexpr Integer ceilDivide(Integer value, std::type_identity_t<Integer> unit) {
  return (value + unit - 1) / unit;
}
/// The smallest multiple of `unit` that is not below `value`.
template <typename Integer>
constexpr Integer roundUp(Integer value, std::type_identity_t<Integer> unit) {
  return ceilDivide(value, unit) * unit;
}

}  // namespace longhand::kernels
