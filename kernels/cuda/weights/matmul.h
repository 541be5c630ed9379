#pragma once
// Matrix products with weights of any type and any number of tokens; shapes as in
// kernels/backend.h.

#include <cstddef>
#include <span>

#include "kernels/cuda/warp/launch_queue.h"
#include "kernels/types.h"

namespace longhand::kernels::cuda {

/// More tokens than this are multiplied in tiles of halves (tiled_matmul.h).
inline constexpr std::int64_t kMostMatvecTokens = 8;

inline constexpr int kMostProjections = 3;

/// Products of 1 to 8 tokens in one launch.
struct MatvecCall {
  MatrixView input;                         // [n, cols]
  std::span<const Projection> projections;  // [1..kMostProjections] of the same cols
  const float* normWeight = nullptr;        // [cols]: of rmsNorm(input); nullptr: of the input
  float normEpsilon = 0.0F;
  bool accumulate = false;
  /// Two projections of equal shapes: projections[0].output = silu(its product) * the other one's.
  /// Nothing is written to projections[1].output.
  bool isGated = false;
};

/// What a launch has to know of the device.
struct MatvecDevice {
  std::size_t mostSharedBytes = 0;  // of a block, after opting in
  int nMultiprocessors = 1;
};

/// True for NF4 weights that are 16-byte aligned, with whole NF4 blocks in each row, where a block
/// of the device may have the shared memory (59 KiB for up to 4 tokens, 83 for more). Gated ones
/// share their codebook.
bool canNf4Matvec(const MatvecCall& call, const MatvecDevice& device);

/// At the speed of memory. Inputs are taken exactly (two halves each), the codebook as halves: each
/// weight is off by up to 2^-12 of itself.
void launchNf4Matvec(const MatvecCall& call, const MatvecDevice& device, const LaunchQueue& queue);

/// True for F16, BF16 or int8 weights of one type, 16-byte aligned, whose rows are whole vectors of
/// 16 bytes.
bool canRowMatvec(const MatvecCall& call);

/// At the speed of memory, in float.
void launchRowMatvec(const MatvecCall& call, const LaunchQueue& queue);

/// output = input * weight^T (+ output with `accumulate`): any shape, type and alignment. The path
/// of last resort, also the slow twin of the others on the device.
void launchPlainMatmul(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                       bool accumulate, const LaunchQueue& queue);

}  // namespace longhand::kernels::cuda
