#pragma once
// The group quantizer of the KV cache, as scalar code that every backend must agree with bit for
// bit, after KIVI (Liu et al. 2024) and quanto:
//   scale = (max - min) / (2^nbits - 1)     formed in float32, then rounded to F16
//   code  = clip(rint((x - min) / scale), 0, 2^nbits - 1)     with the rounded scale, ties to even
//   value = code * scale + min
// A group whose scale is 0 (constant, or an underflow) has all codes 0 and gives min back.
// Symmetric: scale = absmax / (2^(nbits-1) - 1), code = rint(x / scale) + 2^(nbits-1), no min.

#include <cstdint>
#include <span>

#include "kernels/kv_types.h"

namespace longhand::kernels {

struct GroupParameters {
  float scale = 0.0F;  // representable in F16 (unless made by quantizeGroupF32)
  float min = 0.0F;    // likewise; 0 in the symmetric scheme
};

/// Quantizes one group of values that are representable in F16. codes.size() == values.size() > 0.
GroupParameters quantizeGroup(std::span<const float> values, int nbits, QuantScheme scheme,
                              QuantSolver solver, std::span<std::uint8_t> codes);

/// The same without rounding scale to F16 (profile f32 of the reference values); min-max only.
GroupParameters quantizeGroupF32(std::span<const float> values, int nbits,
                                 std::span<std::uint8_t> codes);

/// The value a code stands for. In F16 storage results must be clamped to +-65504.
float dequantize(std::uint8_t code, int nbits, QuantScheme scheme, const GroupParameters& group);

}  // namespace longhand::kernels
