#pragma once
// What kernel sources need beyond CUDA C++ so that the same file also runs under the emulation of
// tests/cuda_on_cpu. That defines SHARED and DYN_SHARED itself, and is force-included before this.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "kernels/cuda/warp/launch_queue.h"

namespace longhand::kernels::cuda {

template <class T>
using Same = T;

#ifndef LONGHAND_CUDA_ON_CPU
/// SHARED(tile, float[4][64]); instead of __shared__ float tile[4][64];
#define SHARED(name, ...) __shared__ __align__(16)::longhand::kernels::cuda::Same<__VA_ARGS__> name
/// DYN_SHARED(float, scores); instead of extern __shared__ float scores[];
#define DYN_SHARED(type, name)                                  \
  extern __shared__ __align__(128) unsigned char name##Bytes[]; \
  type* const name = reinterpret_cast<type*>(name##Bytes)
#endif

/// kernel<<<grid, block, dynamicSharedBytes, stream>>>(arguments...), or an entry of the queue's
/// list. Errors: cudaGetLastError().
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t dynamicSharedBytes,
            const LaunchQueue& queue, Arguments&&... arguments) {
#ifdef LONGHAND_CUDA_ON_CPU
  cuda_on_cpu::registerKernel(kernel);
#endif
  if (LaunchList* const list = queue.list(); list != nullptr) {
    list->add(reinterpret_cast<const void*>(kernel), grid, block, dynamicSharedBytes,
              static_cast<Parameters>(arguments)...);
    return;
  }
#ifdef LONGHAND_CUDA_ON_CPU
  cuda_on_cpu::launch(kernel, grid, block, dynamicSharedBytes, queue.stream(),
                      std::forward<Arguments>(arguments)...);
#else
  // clang-format off
  kernel<<<grid, block, dynamicSharedBytes, queue.stream()>>>(static_cast<Parameters>(arguments)...);
  // clang-format on
#endif
}

/// ceil(a / b) for positive numbers.
template <class T>
__host__ __device__ constexpr T ceilDivide(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace longhand::kernels::cuda
