#pragma once
// Reductions over the 32 lanes of a warp; every lane gets the result. All lanes must call.

#include "kernels/cuda/warp/portability.cuh"

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

/// The same of numbers that are not negative; one instruction from sm_80 on, since their bits are
/// in their order.
__device__ __forceinline__ float warpMaxOfMagnitudes(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(kAllLanes, __float_as_uint(value)));
#else
  return warpMax(value);
#endif
}

}  // namespace longhand::kernels::cuda
