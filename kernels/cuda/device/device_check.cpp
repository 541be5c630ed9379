#include "kernels/cuda/device/device_check.h"

#include <array>
#include <cstdio>
#include <numeric>

#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/device/device_trial.h"

namespace longhand::kernels::cuda {
namespace {

// Turing: the oldest that CUDA 13 compiles for.
constexpr int kLeastMajor = 7;
constexpr int kLeastMinor = 5;

std::string versionText(int version) {  // 12040: 12.4
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string gibText(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GiB", static_cast<double>(bytes) / 0x1p30);
  return text.data();
}

/// "The NVIDIA driver" or "The NVIDIA driver 580.65.06".
std::string driverText(const Nvml* nvml) {
  const std::string version = nvml == nullptr ? "" : nvml->driverVersion();
  return "The NVIDIA driver" + (version.empty() ? "" : " " + version);
}

/// Why there is no device to use.
std::string missingDeviceReason(cudaError_t error, const Nvml* nvml) {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (error == cudaErrorInsufficientDriver) {
    if (driver == 0 && nvml == nullptr) return "No NVIDIA driver is installed.";
    if (driver == 0) {
      return driverText(nvml) + " is installed without its CUDA library, libcuda.so.1.";
    }
    // A runtime works with every driver of its own major version.
    return driverText(nvml) + " is too old: it supports CUDA " + versionText(driver) +
           ", and Longhand needs " + std::to_string(runtime / 1000) + ".0 or newer.";
  }
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    return "There is no NVIDIA graphics card.";
  }
  return driverText(nvml) + " reports: " + cudaGetErrorString(error) + ".";
}

/// How much of the device's memory other processes hold, for a sentence; empty when not known.
std::string othersText(const Nvml* nvml, const std::string& pciBusId) {
  if (nvml == nullptr) return {};
  const auto use = nvml->deviceUse(pciBusId);
  if (!use || use->ownBytes == 0 || use->usedBytes <= use->ownBytes) return {};
  return ", other programs hold " + gibText(use->usedBytes - use->ownBytes);
}

/// cudaErrorUnknown when the current device computes a few numbers wrongly; else what it reports.
cudaError_t tryDevice() {
  constexpr std::size_t kBytes = kTrialNumbers * sizeof(int);
  std::array<int, kTrialNumbers> numbers{};
  std::iota(numbers.begin(), numbers.end(), 0);

  const DeviceMemory memory = allocateDevice(kBytes);
  if (memory == nullptr) return cudaErrorMemoryAllocation;
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  error = cudaMemcpyAsync(memory.get(), numbers.data(), kBytes, cudaMemcpyHostToDevice, stream);
  if (error == cudaSuccess) {
    launchTrial(static_cast<int*>(static_cast<void*>(memory.get())), stream);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(numbers.data(), memory.get(), kBytes, cudaMemcpyDeviceToHost, stream);
  }
  const cudaError_t waited = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  if (error == cudaSuccess) error = waited;
  if (error != cudaSuccess) return error;
  for (int i = 0; i < kTrialNumbers; ++i) {
    const int thread = i % kTrialThreads;
    const int turned = i - thread + kTrialThreads - 1 - thread;
    if (numbers[static_cast<std::size_t>(i)] != 3 * turned + thread) return cudaErrorUnknown;
  }
  return cudaSuccess;
}

}  // namespace

bool checkDevice(int device, std::uint64_t leastFreeBytes, const Nvml* nvml, DeviceFacts& facts,
                 std::string& reason) {
  int count = 0;  // left untouched where there is no driver
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) {
    reason = missingDeviceReason(counted, nvml);
    cudaGetLastError();
    return false;
  }
  if (device < 0 || device >= count) {
    reason = "There is no NVIDIA graphics card number " + std::to_string(device) + ": there are " +
             std::to_string(count) + ", counted from 0.";
    return false;
  }
  cudaDeviceProp properties;
  std::array<char, 32> busId{};
  std::size_t freeBytes = 0;
  std::size_t totalBytes = 0;
  int clockKhz = 0;
  cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, device);
  if (error == cudaSuccess) error = cudaMemGetInfo(&freeBytes, &totalBytes);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&clockKhz, cudaDevAttrClockRate, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetPCIBusId(busId.data(), static_cast<int>(busId.size()), device);
  }
  if (error != cudaSuccess) {
    reason =
        std::string("The NVIDIA graphics card cannot be used: ") + cudaGetErrorString(error) + ".";
    cudaGetLastError();
    return false;
  }
  facts = {properties.name,
           busId.data(),
           properties.major,
           properties.minor,
           properties.multiProcessorCount,
           1e3 * static_cast<double>(clockKhz),
           properties.sharedMemPerBlockOptin};
  const std::string capability = std::to_string(facts.major) + "." + std::to_string(facts.minor);
  if (facts.major < kLeastMajor || (facts.major == kLeastMajor && facts.minor < kLeastMinor)) {
    reason = facts.name + " is too old (compute capability " + capability +
             "): Longhand needs 7.5 or newer.";
    return false;
  }
  if (freeBytes < leastFreeBytes) {
    reason = facts.name + " has too little memory: " + gibText(freeBytes) + " of " +
             gibText(totalBytes) + " are free" + othersText(nvml, facts.pciBusId) +
             ", and Longhand needs at least " + gibText(leastFreeBytes) + ".";
    return false;
  }
  error = tryDevice();
  if (error == cudaSuccess) return true;
  cudaGetLastError();
  if (error == cudaErrorNoKernelImageForDevice) {
    reason = "This installation's CUDA plug-in has no code for " + facts.name +
             " (compute capability " + capability + ").";
  } else {
    reason = facts.name + " failed in a first computation: " +
             (error == cudaErrorUnknown ? "its results are wrong" : cudaGetErrorString(error)) +
             ".";
  }
  return false;
}

}  // namespace longhand::kernels::cuda
