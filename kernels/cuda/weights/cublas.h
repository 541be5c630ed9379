#pragma once
// cuBLAS as far as this backend needs it, loaded at run time: nothing of it is linked.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "kernels/cuda/weights/half_gemm.h"

namespace longhand::kernels::cuda {

/// cuBLAS, loaded at run time; one thread at a time.
class Cublas {
 public:
  /// nullptr where no cuBLAS of CUDA 12 or 13 is installed or none starts. `workspace` is device
  /// memory of the caller's, 256-byte aligned, so that cuBLAS takes none of its own behind the
  /// plan's back. Stream and workspace must outlive it: its end waits for the device.
  static std::unique_ptr<Cublas> load(cudaStream_t stream, void* workspace,
                                      std::size_t workspaceBytes);
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas();

  /// Queues the product; false when cuBLAS refuses it.
  bool multiply(const HalfProduct& product);

 private:
  struct Functions;
  Cublas();
  bool start(const char* file, cudaStream_t stream, void* workspace, std::size_t workspaceBytes);

  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;  // cublasHandle_t
};

}  // namespace longhand::kernels::cuda
