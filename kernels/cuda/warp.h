#pragma once
// Reductions over the 32 lanes of a warp; every lane gets the result. All lanes must call.

#include "kernels/cuda/portability.h"

namespace longhand::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr int kWarpSize = 32;

__device__ __forceinline__ float warpSum(float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

__device__ __forceinline__ float warpMax(float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

}  // namespace longhand::kernels::cuda
