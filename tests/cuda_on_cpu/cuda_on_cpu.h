#pragma once
// Makes a C++ compiler accept CUDA C++ and run its kernels on the CPU. Force-include it when a .cu
// file is compiled with g++ or clang++:  g++ -x c++ -include tests/cuda_on_cpu/cuda_on_cpu.h x.cu
// (the CMake function longhand_emulate_cuda does). kernels/cuda/warp/portability.cuh gives nvcc the
// same names. README.md says how it works and what it cannot show.

#define LONGHAND_CUDA_ON_CPU 1

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tests/cuda_on_cpu/async_copy.h"
#include "tests/cuda_on_cpu/block_engine.h"
#include "tests/cuda_on_cpu/collectives.h"
#include "tests/cuda_on_cpu/intrinsics.h"
#include "tests/cuda_on_cpu/launch.h"

// --- The language
// ---------------------------------------------------------------------------------

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

#define threadIdx (::longhand::cuda_on_cpu::current.fiber->threadIndex)
#define blockIdx (::longhand::cuda_on_cpu::current.blockIndex)
#define blockDim (::longhand::cuda_on_cpu::current.blockSize)
#define gridDim (::longhand::cuda_on_cpu::current.gridSize)

using std::max;
using std::min;

// --- Places in the source, to tell barriers, collectives and arrays apart
// -------------------------

#define LONGHAND_TEXT_OF(x) #x
#define LONGHAND_TEXT(x) LONGHAND_TEXT_OF(x)
#define LONGHAND_SITE __FILE__ ":" LONGHAND_TEXT(__LINE__) "#" LONGHAND_TEXT(__COUNTER__)

/// SHARED(tile, float[4][64]); declares a shared array. Its place is a static of its own: compilers
/// may merge equal string literals, and never these.
#define SHARED(name, ...)                             \
  static constexpr char name##Site[] = LONGHAND_SITE; \
  auto& name = ::longhand::cuda_on_cpu::sharedArray<__VA_ARGS__>(name##Site)
/// DYN_SHARED(float, scores); the block's dynamic shared memory, 128-byte aligned.
#define DYN_SHARED(type, name) \
  type* const name = static_cast<type*>(::longhand::cuda_on_cpu::current.engine->dynamicShared())

namespace longhand::cuda_on_cpu {
template <class T>
LONGHAND_NO_TSAN T& sharedArray(const char* site) {
  return *static_cast<T*>(current.engine->sharedArray(site, sizeof(T)));
}
}  // namespace longhand::cuda_on_cpu

// --- Barriers and collectives
// ---------------------------------------------------------------------

#define LONGHAND_BARRIER(id, nThreads, predicate, vote)              \
  (::longhand::cuda_on_cpu::current.engine->barrier(                 \
      (id), (nThreads), LONGHAND_SITE, static_cast<bool>(predicate), \
      ::longhand::cuda_on_cpu::BlockEngine::Vote::vote))
#define __syncthreads() static_cast<void>(LONGHAND_BARRIER(0, 0, false, kNone))
#define __syncthreads_or(p) LONGHAND_BARRIER(0, 0, (p), kAny)
#define __syncthreads_and(p) LONGHAND_BARRIER(0, 0, (p), kAll)
#define __syncthreads_count(p) LONGHAND_BARRIER(0, 0, (p), kCount)
#define __syncwarp(...) ::longhand::cuda_on_cpu::syncWarp(LONGHAND_SITE __VA_OPT__(, ) __VA_ARGS__)
#define LONGHAND_SHUFFLE(kind, ...)                                                           \
  ::longhand::cuda_on_cpu::shuffle<::longhand::cuda_on_cpu::ShuffleKind::kind>(LONGHAND_SITE, \
                                                                               __VA_ARGS__)
#define __shfl_sync(...) LONGHAND_SHUFFLE(kIndex, __VA_ARGS__)
#define __shfl_up_sync(...) LONGHAND_SHUFFLE(kUp, __VA_ARGS__)
#define __shfl_down_sync(...) LONGHAND_SHUFFLE(kDown, __VA_ARGS__)
#define __shfl_xor_sync(...) LONGHAND_SHUFFLE(kXor, __VA_ARGS__)
#define __ballot_sync(mask, p) \
  ::longhand::cuda_on_cpu::ballot(LONGHAND_SITE, (mask), static_cast<bool>(p))
#define __any_sync(mask, p) (__ballot_sync(mask, p) != 0)
#define __all_sync(mask, p) (__ballot_sync(mask, !(p)) == 0)
