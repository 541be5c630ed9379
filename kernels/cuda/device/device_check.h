#pragma once
// Whether a device can run the backend, and what it is called.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/cuda/device/nvml.h"

namespace longhand::kernels::cuda {

struct DeviceFacts {
  std::string name;      // "NVIDIA GeForce RTX 3060"
  std::string pciBusId;  // as NVML wants it
  int major = 0;         // compute capability
  int minor = 0;
  int nMultiprocessors = 0;
  double clockHz = 0.0;
  std::size_t mostSharedBytes = 0;  // of a block, after opting in
};

/// Looks at the device, makes it current and runs a first kernel. Fills in `facts` where all is
/// well; false with one sentence for people in `reason` otherwise. `nvml` (which may be nullptr)
/// makes some of the sentences better.
bool checkDevice(int device, std::uint64_t leastFreeBytes, const Nvml* nvml, DeviceFacts& facts,
                 std::string& reason);

}  // namespace longhand::kernels::cuda
