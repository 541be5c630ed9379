#pragma once
// Whether a device can run the backend, and what it is called.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

namespace longhand::kernels::cuda {

struct DeviceFacts {
  std::string name;  // "NVIDIA GeForce RTX 3060"
  int major = 0;     // compute capability
  int minor = 0;
  int nMultiprocessors = 0;
  double clockHz = 0.0;
  std::size_t mostSharedBytes = 0;  // of a block, after opting in
};

/// Fills in `facts` and makes the device current; false with one sentence in `reason` otherwise.
bool checkDevice(int device, std::uint64_t leastFreeBytes, DeviceFacts& facts, std::string& reason);

}  // namespace longhand::kernels::cuda
