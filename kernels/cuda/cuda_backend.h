#pragma once
// The CUDA backend: all operations on one NVIDIA device, queued on one stream.

#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cuda/device/staging.h"
#include "kernels/cuda/weights/tiled_matmul.h"

namespace longhand::kernels {

struct CudaOptions {
  int device = 0;
  /// A device with less free memory is not worth starting on.
  std::uint64_t leastFreeBytes = std::uint64_t{1} << 30U;
  cuda::TiledMatmulOptions matmul = {};
  cuda::StagingOptions staging = {};
  /// False: the operations of a step are launched one by one, as they come.
  bool usesStepGraphs = true;
};

/// nullptr where this machine cannot run it; `reason` is then one sentence for people. Never throws
/// for lack of a driver or a device. Creating the first takes the driver about 0.3 s and 300 MB of
/// the device's memory; they go with the last (cudaDeviceReset), and with them any fault, which
/// CUDA reports for ever otherwise.
std::unique_ptr<Backend> createCudaBackend(const CudaOptions& options, std::string& reason);

}  // namespace longhand::kernels
