#pragma once
// NF4 weights (QLoRA, Dettmers et al. 2023): 4-bit codes of a normal-quantile codebook with one
// absmax for each block of 64, optionally itself quantized to 8 bits ("double quantization").
// Layout and formula: WeightView in kernels/types.h; bit-compatible with bitsandbytes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/types.h"

namespace longhand::kernels {

/// The 16 NF4 values, ascending from -1 to 1.
extern const std::array<float, 16> kNf4Codebook;
/// The 256 values of bitsandbytes' signed dynamic 8-bit map, ascending.
const std::array<float, 256>& dynamicCodebook();

/// code = number of midpoints of the codebook below x * (1 / absmax), in float32; high nibble
/// first. `values` is a run of the flattened matrix that starts at a block boundary; its length
/// need not be a multiple of the block. The last byte of an odd count is padded with code 7.
void quantizeNf4(std::span<const float> values,  // [n]
                 std::span<std::uint8_t> codes,  // [ceil(n / 2)]
                 std::span<float> absmax);       // [ceil(n / 64)]

/// Double quantization of absmax: offset = mean(absmax), then 8-bit codes of the dynamic codebook
/// in blocks of 256 around it. Returns the offset.
float quantizeAbsmax(std::span<const float> absmax,        // [n_blocks]
                     std::span<std::uint8_t> absmaxCodes,  // [n_blocks]
                     std::span<float> nestedAbsmax);       // [ceil(n_blocks / 256)]

/// Element (row, col) of any weight as float, exactly as every backend must see it.
float weightAt(const WeightView& weight, std::int64_t row, std::int64_t col);
/// A whole row, [cols].
void dequantizeRow(const WeightView& weight, std::int64_t row, float* output);

}  // namespace longhand::kernels
