#pragma once
// Products of more than a few tokens: tiles of the weight become halves in scratch, the tokens too,
// and tensor cores multiply them with sums in float.
//
// Scratch is one block of device memory, taken when the backend starts: three quarters of it for a
// tile of the weight, one for the tokens. Whatever does not fit is done in several tiles. So it is
// bounded, and counted in memoryInfo() before anything is planned.
//
// Errors: an input and a weight round to halves once each (F16 weights and inputs not at all), so a
// product is off by at most (2^-10 + 2^-22) |w x|, and 2^-25 (|w| + |x|) where a number is
// subnormal as a half. Inputs beyond 65504 count as 65504.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>

#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/device/own_memory.h"
#include "kernels/cuda/weights/cublas.h"
#include "kernels/types.h"

namespace longhand::kernels::cuda {

struct TiledMatmulOptions {
  std::size_t scratchBytes = kMatmulScratchBytes;  // of tiles
  std::size_t workspaceBytes = kCublasBytes;       // of cuBLAS
  bool usesCublas = true;
};

/// One stream, one thread at a time.
class TiledMatmul {
 public:
  /// False when the device has no room for the scratch.
  bool start(const TiledMatmulOptions& options, cudaStream_t stream);

  /// Bytes of device memory it holds.
  std::size_t bytes() const { return scratchBytes_ + workspaceBytes_; }
  /// Its scratch, free for others on its stream between two products.
  std::span<std::byte> scratch() const { return {scratch_.get(), scratchBytes_}; }
  bool usesCublas() const { return cublas_ != nullptr; }
  Cublas* cublas() const { return cublas_.get(); }  // or nullptr
  /// False for rows so long that a tile holds none of them.
  bool canMultiply(const WeightView& weight) const;

  /// output = input * weight^T (+ output with `accumulate`), for canMultiply(weight).
  void multiply(const MatrixView& input,   // [n, weight.cols]
                const WeightView& weight,  // [outputs, inputs]
                const MatrixView& output,  // [n, weight.rows]
                bool accumulate);

 private:
  std::byte* inputScratch() const { return scratch_.get() + weightBytes(); }
  std::size_t weightBytes() const { return scratchBytes_ / 4 * 3 / 256 * 256; }
  std::size_t inputBytes() const { return scratchBytes_ - weightBytes(); }

  cudaStream_t stream_ = nullptr;
  std::size_t scratchBytes_ = 0;
  std::size_t workspaceBytes_ = 0;
  DeviceMemory scratch_;    // a tile of the weight, then the tokens
  DeviceMemory workspace_;  // cuBLAS's
  std::unique_ptr<Cublas> cublas_;
};

}  // namespace longhand::kernels::cuda
