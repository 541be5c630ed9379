#pragma once
// Matrix products with weights of any type and any number of tokens; shapes as in
// kernels/backend.h.

#include <cstddef>

#include "kernels/cuda/launch_queue.h"
#include "kernels/types.h"

namespace longhand::kernels::cuda {

/// More tokens than this are multiplied in tiles of halves (tiled_matmul.h).
inline constexpr std::int64_t kMostMatvecTokens = 8;

/// True for 1 to 8 tokens, NF4 weights 16-byte aligned, and whole NF4 blocks in each row, where a
/// block of the device may have the shared memory (66 KiB for 8 tokens, 37 for one).
bool canNf4Matvec(const MatrixView& input, const WeightView& weight, std::size_t mostSharedBytes);

/// At the speed of memory. Inputs are taken exactly (two halves each), the codebook as halves: each
/// weight is off by up to 2^-12 of itself.
void launchNf4Matvec(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                     bool accumulate, const LaunchQueue& queue);

/// True for 1 to 8 tokens and F16, BF16 or int8 weights, 16-byte aligned, whose rows are whole
/// vectors of 16 bytes.
bool canRowMatvec(const MatrixView& input, const WeightView& weight);

/// At the speed of memory, in float.
void launchRowMatvec(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                     bool accumulate, const LaunchQueue& queue);

/// output = input * weight^T (+ output with `accumulate`): any shape, type and alignment. The path
/// of last resort, also the slow twin of the others on the device.
void launchPlainMatmul(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                       bool accumulate, const LaunchQueue& queue);

}  // namespace longhand::kernels::cuda
