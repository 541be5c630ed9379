#pragma once
// Memory of the device or of the host (pinned), and streams, that a CUDA object owns.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <type_traits>

namespace longhand::kernels::cuda {

struct FreeDevice {
  void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
};
struct FreePinned {
  void operator()(std::byte* memory) const noexcept { cudaFreeHost(memory); }
};
using DeviceMemory = std::unique_ptr<std::byte, FreeDevice>;
using PinnedMemory = std::unique_ptr<std::byte, FreePinned>;

struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
using StreamOwner = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;

/// Empty when there is no room, or when the device is broken: then cudaGetLastError() says so.
inline DeviceMemory allocateDevice(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error != cudaSuccess) {
    // To have no room is no fault: later calls shall not report it.
    if (error == cudaErrorMemoryAllocation) cudaGetLastError();
    return nullptr;
  }
  return DeviceMemory(static_cast<std::byte*>(memory));
}

inline PinnedMemory allocatePinned(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return PinnedMemory(static_cast<std::byte*>(memory));
}

}  // namespace longhand::kernels::cuda
