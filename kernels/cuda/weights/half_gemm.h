#pragma once
// The product of two matrices of halves, summed in float: what every large matrix product comes
// down to once a tile of the weight is expanded. cuBLAS makes it where it is installed; our own
// kernel makes it everywhere else, and in the tests.

#include <cstdint>

#include "kernels/cuda/warp/launch_queue.h"
#include "kernels/types.h"

namespace longhand::kernels::cuda {

/// Rows of halves are padded with zeros to a multiple of this.
inline constexpr std::int64_t kHalfRowMultiple = 32;

/// output[t, r] = sum over k of input[t, k] * weight[r, k], added to output with `accumulate`.
struct HalfProduct {
  const void* input = nullptr;   // half [nTokens, depth], 16-byte aligned
  const void* weight = nullptr;  // half [nRows, depth], 16-byte aligned
  float* output = nullptr;       // [nTokens, outputStride]
  std::int64_t nTokens = 0;
  std::int64_t nRows = 0;
  std::int64_t depth = 0;  // a multiple of kHalfRowMultiple
  std::int64_t outputStride = 0;
  bool accumulate = false;
};

/// Our own kernel: 128 x 128 outputs a block, mma.m16n8k16. Any device.
void launchHalfGemm(const HalfProduct& product, const LaunchQueue& queue);

}  // namespace longhand::kernels::cuda
