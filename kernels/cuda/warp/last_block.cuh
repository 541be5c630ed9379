#pragma once
// Blocks that hand what they have made to the one that finishes last.

#include "kernels/cuda/warp/portability.cuh"

namespace longhand::kernels::cuda {

/// How many blocks have called this before, by one thread of each, behind a __syncthreads() that
/// follows all the block has written. In the block that is the last, everyone may read what the
/// others wrote, behind another __syncthreads(). The fences stand where the grid barrier of
/// cooperative groups has them: the first covers the writes of the whole block, which the barrier
/// brought before it; the second drops what L1 may hold of other blocks' results.
__device__ __forceinline__ unsigned countBlock(unsigned* counter) {
  __threadfence();
  const unsigned nBefore = atomicAdd(counter, 1U);
  __threadfence();
  return nBefore;
}

}  // namespace longhand::kernels::cuda
