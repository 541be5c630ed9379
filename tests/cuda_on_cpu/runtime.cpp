// A stand-in for libcudart: the calls the backend makes, over main memory. Streams run everything
// at once, in the order of the calls. Copies that leave a device allocation are refused, as a GPU's
// memory protection would.

#include "tests/cuda_on_cpu/runtime.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <set>

#include "tests/cuda_on_cpu/device_memory.h"
#include "tests/cuda_on_cpu/launch.h"

namespace longhand::cuda_on_cpu {
namespace {

constexpr std::align_val_t kAlignment{256};  // what cudaMalloc promises

std::mutex memoryMutex;                          // of all that follows, but for what is atomic
std::map<const std::byte*, std::size_t> blocks;  // address to size
std::map<const std::byte*, std::size_t> pinned;  // likewise
std::set<char*> handles;                         // streams and events
thread_local cudaError_t lastError = cudaSuccess;

DeviceCounters& counters() { return emulatedDevice().counters; }

cudaError_t stickyError() {
  return emulatedDevice().failures.isBroken ? cudaErrorIllegalAddress : cudaSuccess;
}

using runtime::report;
using runtime::requireWorkingDevice;

cudaError_t requireDriver() {
  const DeviceSettings& settings = emulatedDevice().settings;
  if (!settings.hasDriver || settings.driverVersion < CUDART_VERSION / 1000 * 1000) {
    return report(cudaErrorInsufficientDriver);
  }
  return settings.nDevices > 0 ? cudaSuccess : report(cudaErrorNoDevice);
}

using runtime::countsDown;

/// From now on every call fails.
void breakDevice() { emulatedDevice().failures.isBroken = true; }

/// The allocation that `address` lies in, or the end.
std::map<const std::byte*, std::size_t>::const_iterator find(
    const std::map<const std::byte*, std::size_t>& known, const void* address) {
  const auto* first = static_cast<const std::byte*>(address);
  auto next = known.upper_bound(first);
  if (next == known.begin()) return known.end();
  --next;
  return first < next->first + next->second ? next : known.end();
}

/// False where [address, address + bytes) starts in a device allocation and leaves it, or starts
/// nowhere in one although it should.
bool isInside(const void* address, std::size_t bytes, bool mustBeDevice) {
  const std::lock_guard lock(memoryMutex);
  const auto block = find(blocks, address);
  if (block == blocks.end()) return !mustBeDevice;
  return static_cast<const std::byte*>(address) + bytes <= block->first + block->second;
}

cudaError_t makeHandle(void** handle) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  const std::lock_guard lock(memoryMutex);
  *handle = *handles.insert(new char).first;
  ++counters().nStreamsAndEvents;
  return cudaSuccess;
}

cudaError_t dropHandle(void* handle) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  const std::lock_guard lock(memoryMutex);
  if (handles.erase(static_cast<char*>(handle)) == 0) {
    return report(cudaErrorInvalidResourceHandle);
  }
  delete static_cast<char*>(handle);
  --counters().nStreamsAndEvents;
  return cudaSuccess;
}

}  // namespace

cudaError_t runtime::report(cudaError_t error) {
  if (error != cudaSuccess) lastError = error;
  return error;
}

cudaError_t runtime::requireWorkingDevice() { return report(stickyError()); }

bool runtime::countsDown(std::atomic<int>& number) {
  int now = number.load();
  while (now > 0 && !number.compare_exchange_weak(now, now - 1)) {
  }
  return now == 1;
}

EmulatedDevice& emulatedDevice() {
  static EmulatedDevice device;
  return device;
}

bool beginLaunch() {
  ++counters().nLaunches;
  EmulatedDevice& device = emulatedDevice();
  if (!device.settings.hasKernels) report(cudaErrorNoKernelImageForDevice);
  if (countsDown(device.failures.launch)) breakDevice();
  return device.settings.hasKernels && !device.settings.computesWrongly &&
         !device.failures.isBroken;
}

}  // namespace longhand::cuda_on_cpu

using namespace longhand::cuda_on_cpu;
using namespace longhand::cuda_on_cpu::runtime;

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  const DeviceSettings& settings = emulatedDevice().settings;
  *version = settings.hasDriver ? settings.driverVersion : 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  const cudaError_t error = requireDriver();  // *count is left alone without a driver
  if (error == cudaSuccess) *count = emulatedDevice().settings.nDevices;
  return error;
}
cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = requireDriver();
  if (error != cudaSuccess) return error;
  return device < emulatedDevice().settings.nDevices ? cudaSuccess : report(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return requireDriver();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  const DeviceSettings& settings = emulatedDevice().settings;
  *properties = cudaDeviceProp{};
  std::strcpy(properties->name, "CPU emulation");
  properties->major = settings.major;
  properties->minor = settings.minor;
  properties->multiProcessorCount = 4;
  properties->warpSize = 32;
  properties->sharedMemPerBlockOptin = options.largestSharedBytes;
  properties->totalGlobalMem = settings.totalBytes;
  return requireDriver();
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  constexpr int kClockKhz = 10000;  // an emulated device is slow: tiles stay small
  *value = attribute == cudaDevAttrClockRate ? kClockKhz : 0;
  return requireDriver();
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int /*device*/) {
  if (size > 0) std::strncpy(text, "0000:01:00.0", static_cast<std::size_t>(size));
  return requireDriver();
}
cudaError_t cudaDeviceReset() {
  const std::lock_guard lock(memoryMutex);
  for (const auto& [address, bytes] : blocks) {
    ::operator delete(const_cast<std::byte*>(address), kAlignment);
  }
  for (const auto& [address, bytes] : pinned) std::free(const_cast<std::byte*>(address));
  for (char* handle : handles) delete handle;
  blocks.clear();
  pinned.clear();
  handles.clear();
  counters().deviceBytes = 0;
  counters().pinnedBytes = 0;
  counters().nStreamsAndEvents = 0;
  ++counters().nResets;
  forgetAllowedShared();
  if (!emulatedDevice().settings.staysBrokenAfterReset) emulatedDevice().failures.isBroken = false;
  lastError = cudaSuccess;
  return stickyError();
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = nullptr;
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  EmulatedDevice& device = emulatedDevice();
  ++device.counters.nDeviceAllocations;
  if (countsDown(device.failures.allocation)) return report(cudaErrorMemoryAllocation);
  const std::lock_guard lock(memoryMutex);
  if (bytes + device.settings.otherBytes + device.counters.deviceBytes >
      device.settings.totalBytes) {
    return report(cudaErrorMemoryAllocation);
  }
  void* const block = ::operator new(bytes, kAlignment, std::nothrow);
  if (block == nullptr) return report(cudaErrorMemoryAllocation);
  std::memset(block, 0xff, bytes);
  blocks[static_cast<std::byte*>(block)] = bytes;
  device.counters.deviceBytes += bytes;
  *memory = block;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  if (memory == nullptr) return cudaSuccess;
  const std::lock_guard lock(memoryMutex);
  const auto found = blocks.find(static_cast<std::byte*>(memory));
  if (found == blocks.end()) return report(cudaErrorInvalidValue);
  counters().deviceBytes -= found->second;
  ++counters().nFrees;
  blocks.erase(found);
  ::operator delete(memory, kAlignment);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  const EmulatedDevice& device = emulatedDevice();
  *total = device.settings.totalBytes;
  *free = device.settings.totalBytes - device.settings.otherBytes - device.counters.deviceBytes;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  *memory = nullptr;
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  EmulatedDevice& device = emulatedDevice();
  ++device.counters.nPinnedAllocations;
  if (countsDown(device.failures.allocation)) return report(cudaErrorMemoryAllocation);
  *memory = std::malloc(bytes);
  if (*memory == nullptr) return report(cudaErrorMemoryAllocation);
  const std::lock_guard lock(memoryMutex);
  pinned[static_cast<std::byte*>(*memory)] = bytes;
  device.counters.pinnedBytes += bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  const std::lock_guard lock(memoryMutex);
  const auto found = pinned.find(static_cast<std::byte*>(memory));
  if (found == pinned.end()) return report(cudaErrorInvalidValue);
  counters().pinnedBytes -= found->second;
  pinned.erase(found);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t /*stream*/) {
  if (countsDown(emulatedDevice().failures.copy)) breakDevice();
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  const bool toDevice = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool fromDevice = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!isInside(destination, bytes, toDevice) || !isInside(source, bytes, fromDevice)) {
    return report(cudaErrorInvalidValue);
  }
  if (kind == cudaMemcpyHostToDevice) {
    const std::lock_guard lock(memoryMutex);
    const bool isPinned = find(pinned, source) != pinned.end();
    (isPinned ? counters().pinnedUploadBytes : counters().pageableUploadBytes) += bytes;
  }
  std::memmove(destination, source, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t /*stream*/) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  if (!isInside(memory, bytes, true)) return report(cudaErrorInvalidValue);
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  void* handle = nullptr;
  const cudaError_t error = makeHandle(&handle);
  *stream = static_cast<cudaStream_t>(handle);
  return error;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return dropHandle(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) {
  ++counters().nSynchronizations;
  return requireWorkingDevice();
}
cudaError_t cudaDeviceSynchronize() {
  ++counters().nSynchronizations;
  return requireWorkingDevice();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  void* handle = nullptr;
  const cudaError_t error = makeHandle(&handle);
  *event = static_cast<cudaEvent_t>(handle);
  return error;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return dropHandle(event); }
cudaError_t cudaEventRecord(cudaEvent_t /*event*/, cudaStream_t /*stream*/) {
  return requireWorkingDevice();
}
cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) {
  ++counters().nSynchronizations;
  return requireWorkingDevice();
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  const auto bytes = static_cast<std::size_t>(value);
  if (bytes > options.largestSharedBytes) return report(cudaErrorInvalidValue);
  allowDynamicShared(kernel, bytes);
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  *attributes = {};
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(allowedDynamicShared(kernel));
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* nBlocks, const void* /*kernel*/,
                                                          int blockSize,
                                                          std::size_t dynamicSharedBytes) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  constexpr int kMostThreads = 1536;  // of a multiprocessor, with 168 registers for each thread
  constexpr int kRegisters = 65536;
  constexpr int kOfThread = 168;
  constexpr std::size_t kSharedBytes = std::size_t{100} << 10U;
  constexpr std::size_t kOfSystem = 1024;  // for each block
  *nBlocks = std::min({kMostThreads / blockSize, kRegisters / (kOfThread * blockSize),
                       static_cast<int>(kSharedBytes / (dynamicSharedBytes + kOfSystem))});
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  lastError = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  const cudaError_t sticky = stickyError();
  return sticky != cudaSuccess ? sticky : lastError;
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    default:
      return "unspecified launch failure";
  }
}

}  // extern "C"
