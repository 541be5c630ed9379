#pragma once
// Starts a kernel under emulation, with the arguments of <<<>>>, and returns when it is done.
// Kernels that were registered can also be started without their type, as cudaLaunchKernel does.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/block_engine.h"

namespace longhand::cuda_on_cpu {

/// Runs body(argument) for every thread of the grid. `kernel` names the kernel whose limit of
/// dynamic shared memory cudaFuncSetAttribute may have raised. Throws Error.
void runGrid(const void* kernel, dim3 grid, dim3 block, std::size_t dynamicSharedBytes,
             void (*body)(void*), void* argument);

/// Dynamic shared memory that a kernel is allowed by cudaFuncSetAttribute, until the device is
/// reset.
void allowDynamicShared(const void* kernel, std::size_t bytes);
std::size_t allowedDynamicShared(const void* kernel);
void forgetAllowedShared();

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

/// How to call a kernel with addresses of its arguments.
struct KernelEntry {
  std::vector<std::size_t> argumentBytes;
  void (*run)(const void* kernel, dim3 grid, dim3 block, std::size_t dynamicSharedBytes,
              void* const* arguments) = nullptr;
};
void addKernel(const void* kernel, KernelEntry (*makeEntry)());
/// run is nullptr for a kernel that was never registered.
const KernelEntry& kernelEntry(const void* kernel);

/// What nvcc does for every __global__ function, here before its first launch.
template <class... Parameters>
void registerKernel(void (*kernel)(Parameters...)) {
  addKernel(reinterpret_cast<const void*>(kernel), [] {
    return KernelEntry{
        {sizeof(Parameters)...},
        [](const void* address, dim3 grid, dim3 block, std::size_t bytes, void* const* arguments) {
          const auto typed = reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(address));
          [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
            launch(typed, grid, block, bytes, nullptr,
                   *static_cast<Parameters*>(arguments[kIndex])...);
          }
          (std::index_sequence_for<Parameters...>{});
        }};
  });
}

}  // namespace longhand::cuda_on_cpu
