// A stand-in for libcudart: the calls the backend makes, over main memory. Streams run everything
// at once, in the order of the calls. Copies that leave a device allocation are refused, as a GPU's
// memory protection would.

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "tests/cuda_on_cpu/device_memory.h"
#include "tests/cuda_on_cpu/launch.h"

namespace longhand::cuda_on_cpu {
namespace {

std::mutex memoryMutex;
std::map<const std::byte*, std::size_t> blocks;  // address to size
std::size_t usedBytes = 0;
thread_local cudaError_t lastError = cudaSuccess;

constexpr std::align_val_t kAlignment{256};  // what cudaMalloc promises

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) lastError = error;
  return error;
}

cudaError_t requireDriver() {
  if (!deviceSettings.hasDriver || deviceSettings.driverVersion < CUDART_VERSION / 1000 * 1000) {
    return report(cudaErrorInsufficientDriver);
  }
  return deviceSettings.nDevices > 0 ? cudaSuccess : report(cudaErrorNoDevice);
}

/// False where [address, address + bytes) starts in a device allocation and leaves it, or starts
/// nowhere in one although it should.
bool isInside(const void* address, std::size_t bytes, bool mustBeDevice) {
  const std::lock_guard lock(memoryMutex);
  const auto* first = static_cast<const std::byte*>(address);
  auto next = blocks.upper_bound(first);
  if (next == blocks.begin()) return !mustBeDevice;
  --next;
  const std::byte* const end = next->first + next->second;
  if (first >= end) return !mustBeDevice;
  return first + bytes <= end;
}

}  // namespace

std::size_t allocatedDeviceBytes() {
  const std::lock_guard lock(memoryMutex);
  return usedBytes;
}

}  // namespace longhand::cuda_on_cpu

using namespace longhand::cuda_on_cpu;

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = deviceSettings.hasDriver ? deviceSettings.driverVersion : 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  const cudaError_t error = requireDriver();  // *count is left alone without a driver
  if (error == cudaSuccess) *count = deviceSettings.nDevices;
  return error;
}
cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = requireDriver();
  if (error != cudaSuccess) return error;
  return device < deviceSettings.nDevices ? cudaSuccess : report(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return requireDriver();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  *properties = cudaDeviceProp{};
  std::strcpy(properties->name, "CPU emulation");
  properties->major = deviceSettings.major;
  properties->minor = deviceSettings.minor;
  properties->multiProcessorCount = 4;
  properties->warpSize = 32;
  properties->sharedMemPerBlockOptin = options.largestSharedBytes;
  properties->totalGlobalMem = deviceSettings.totalBytes;
  return requireDriver();
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  constexpr int kClockKhz = 10000;  // an emulated device is slow: tiles stay small
  *value = attribute == cudaDevAttrClockRate ? kClockKhz : 0;
  return requireDriver();
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = nullptr;
  const std::lock_guard lock(memoryMutex);
  if (bytes > deviceSettings.totalBytes - usedBytes) return report(cudaErrorMemoryAllocation);
  void* const block = ::operator new(bytes, kAlignment, std::nothrow);
  if (block == nullptr) return report(cudaErrorMemoryAllocation);
  std::memset(block, 0xff, bytes);
  blocks[static_cast<std::byte*>(block)] = bytes;
  usedBytes += bytes;
  *memory = block;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const std::lock_guard lock(memoryMutex);
  const auto found = blocks.find(static_cast<std::byte*>(memory));
  if (found == blocks.end()) return report(cudaErrorInvalidValue);
  usedBytes -= found->second;
  blocks.erase(found);
  ::operator delete(memory, kAlignment);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(memoryMutex);
  *total = deviceSettings.totalBytes;
  *free = deviceSettings.totalBytes - usedBytes;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  *memory = std::malloc(bytes);
  return *memory == nullptr ? report(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t /*stream*/) {
  const bool toDevice = kind == cudaMemcpyHostToDevice;
  const bool fromDevice = kind == cudaMemcpyDeviceToHost;
  if (!isInside(destination, bytes, toDevice) || !isInside(source, bytes, fromDevice)) {
    return report(cudaErrorInvalidValue);
  }
  std::memmove(destination, source, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t /*stream*/) {
  if (!isInside(memory, bytes, false)) return report(cudaErrorInvalidValue);
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  const auto bytes = static_cast<std::size_t>(value);
  if (bytes > options.largestSharedBytes) return report(cudaErrorInvalidValue);
  allowDynamicShared(kernel, bytes);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = lastError;
  lastError = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return lastError; }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    default:
      return "unspecified launch failure";
  }
}

}  // extern "C"
