#pragma once
// The 16 numbers of a 4-bit codebook as bytes, for integer dot products.

#include <span>

#include "kernels/cpu/weights/int8_matvec_kernels.h"

namespace longhand::kernels {

/// codebook[code] ~ step * (bytes[code] - zero), with the step and the zero (any real number) that
/// give the least sum of squared errors among a grid of them. The numbers must be finite.
ByteCodebook roundToBytes(std::span<const float, 16> codebook);

/// The largest error of roundToBytes for the NF4 codebook, where the largest magnitude is 1.
inline constexpr float kMaxByteCodebookError = 0.0039F;

}  // namespace longhand::kernels
