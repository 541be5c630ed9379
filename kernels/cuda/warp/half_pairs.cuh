#pragma once
// Pairs of halves as 32-bit words, as tensor tiles and vector stores take them.

#include <cstring>

#include "kernels/cuda/warp/portability.cuh"

namespace longhand::kernels::cuda {

__device__ __forceinline__ unsigned wordOfHalves(__half2 halves) {
  unsigned word = 0;
  memcpy(&word, &halves, sizeof word);
  return word;
}

__device__ __forceinline__ __half2 halvesOfWord(unsigned word) {
  __half2 halves;
  memcpy(static_cast<void*>(&halves), &word, sizeof word);
  return halves;
}

/// Rounded to the nearest half; numbers beyond the range become +-65504, NaN stays.
__device__ __forceinline__ __half halfInRange(float x) {
  constexpr float kLargestHalf = 65504.0F;
  return __float2half_rn(x > kLargestHalf ? kLargestHalf : (x < -kLargestHalf ? -kLargestHalf : x));
}

/// Both halfInRange; `low` in the low half of the word.
__device__ __forceinline__ unsigned packHalves(float low, float high) {
  return wordOfHalves(__halves2half2(halfInRange(low), halfInRange(high)));
}

}  // namespace longhand::kernels::cuda
