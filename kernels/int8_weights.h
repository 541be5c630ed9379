#pragma once
// Int8 weights: symmetric 8-bit codes with one F32 scale for each block of 64 (8.5 bits a weight).
// Layout: WeightView in kernels/types.h. The same blocks as GGUF's Q8_0 have, twice as long.

#include <cstdint>
#include <span>

namespace longhand::kernels {

/// scale = absmax / 127, code = round(x / scale), to even where halfway; a block of zeros has scale
/// 0. The error of a value is at most scale / 2 (and rounding in float). `values` are finite, a run
/// of the flattened matrix that starts at a block boundary.
void quantizeInt8(std::span<const float> values,  // [n]
                  std::span<std::int8_t> codes,   // [n]
                  std::span<float> scales);       // [ceil(n / kInt8BlockSize)]

}  // namespace longhand::kernels
