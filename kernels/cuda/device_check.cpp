#include "kernels/cuda/device_check.h"

#include <cstdio>

namespace longhand::kernels::cuda {
namespace {

// Turing: the oldest that CUDA 13 compiles for.
constexpr int kLeastMajor = 7;
constexpr int kLeastMinor = 5;

std::string versionText(int version) {  // 12040: 12.4
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string gibText(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / 0x1p30);
  return text;
}

/// Why there is no device to use.
std::string missingDeviceReason(cudaError_t error) {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (error == cudaErrorInsufficientDriver) {
    if (driver == 0) return "No NVIDIA driver is installed.";
    return "The NVIDIA driver is too old: it supports CUDA " + versionText(driver) +
           ", and Longhand needs " + versionText(runtime) + ". Update the driver.";
  }
  if (error == cudaSuccess || error == cudaErrorNoDevice)
    return "There is no NVIDIA graphics card.";
  return std::string("The NVIDIA driver reports: ") + cudaGetErrorString(error) + ".";
}

}  // namespace

bool checkDevice(int device, std::uint64_t leastFreeBytes, DeviceFacts& facts,
                 std::string& reason) {
  int count = 0;  // left untouched where there is no driver
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) {
    reason = missingDeviceReason(counted);
    cudaGetLastError();
    return false;
  }
  if (device < 0 || device >= count) {
    reason = "There is no NVIDIA graphics card number " + std::to_string(device) + ": there are " +
             std::to_string(count) + ", counted from 0.";
    return false;
  }
  cudaDeviceProp properties;
  std::size_t freeBytes = 0;
  std::size_t totalBytes = 0;
  int clockKhz = 0;
  cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, device);
  if (error == cudaSuccess) error = cudaMemGetInfo(&freeBytes, &totalBytes);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&clockKhz, cudaDevAttrClockRate, device);
  }
  if (error != cudaSuccess) {
    reason =
        std::string("The NVIDIA graphics card cannot be used: ") + cudaGetErrorString(error) + ".";
    cudaGetLastError();
    return false;
  }
  facts = {properties.name,
           properties.major,
           properties.minor,
           properties.multiProcessorCount,
           1e3 * static_cast<double>(clockKhz),
           properties.sharedMemPerBlockOptin};
  if (facts.major < kLeastMajor || (facts.major == kLeastMajor && facts.minor < kLeastMinor)) {
    reason = facts.name + " is too old (compute capability " + std::to_string(facts.major) + "." +
             std::to_string(facts.minor) + "): Longhand needs 7.5 or newer.";
    return false;
  }
  if (freeBytes < leastFreeBytes) {
    reason = facts.name + " has too little memory: " + gibText(freeBytes) + " of " +
             gibText(totalBytes) + " are free, and Longhand needs at least " +
             gibText(leastFreeBytes) + ".";
    return false;
  }
  return true;
}

}  // namespace longhand::kernels::cuda
