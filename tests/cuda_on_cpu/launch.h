#pragma once
// Starts a kernel under emulation, with the arguments of <<<>>>, and returns when it is done.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <tuple>
#include <utility>

#include "tests/cuda_on_cpu/block_engine.h"

namespace longhand::cuda_on_cpu {

/// Runs body(argument) for every thread of the grid. `kernel` names the kernel whose limit of
/// dynamic shared memory cudaFuncSetAttribute may have raised. Throws Error.
void runGrid(const void* kernel, dim3 grid, dim3 block, std::size_t dynamicSharedBytes,
             void (*body)(void*), void* argument);

/// Dynamic shared memory that a kernel was allowed by cudaFuncSetAttribute.
void allowDynamicShared(const void* kernel, std::size_t bytes);

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t dynamicSharedBytes,
            cudaStream_t /*stream*/, Arguments&&... arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  } call{kernel, {static_cast<Parameters>(std::forward<Arguments>(arguments))...}};
  runGrid(
      reinterpret_cast<const void*>(kernel), grid, block, dynamicSharedBytes,
      [](void* pointer) {
        auto& self = *static_cast<Call*>(pointer);
        std::apply(self.kernel, self.arguments);
      },
      &call);
}

}  // namespace longhand::cuda_on_cpu
