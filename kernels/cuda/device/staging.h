#pragma once
// Uploads by way of pinned memory: the device fetches one piece from there while the host fills the
// next, at the speed of the bus, and no upload waits for work that is queued.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cuda/device/device_buffer.h"

namespace longhand::kernels::cuda {

struct StagingOptions {
  int nBuffers = 3;
  std::size_t bufferBytes = std::size_t{16} << 20U;
};

/// One stream, one thread at a time.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { stop(); }

  /// Where the host has no memory to pin, uploads go without.
  void start(const StagingOptions& options, cudaStream_t stream);
  /// Waits for nothing: the stream must be done, or broken.
  void stop() noexcept;

  std::size_t pinnedBytes() const;
  /// The next buffer, for the caller to fill; waits until what was uploaded from it is done. Empty
  /// without pinned memory.
  std::span<std::byte> next();
  /// Queues the copy. The source may go when this returns, unless it lies in a buffer of next().
  cudaError_t upload(std::byte* destination, const std::byte* source, std::size_t bytes);

 private:
  struct Buffer {
    PinnedMemory memory;
    cudaEvent_t isDone = nullptr;
    std::size_t usedBytes = 0;  // of it, since it was taken
    bool isInFlight = false;
  };

  /// The buffer that `address` lies in, or nullptr.
  Buffer* bufferOf(const std::byte* address);
  void turn();
  cudaError_t queue(Buffer& buffer, std::byte* destination, const std::byte* source,
                    std::size_t bytes);

  cudaStream_t stream_ = nullptr;
  std::size_t bufferBytes_ = 0;
  std::vector<Buffer> buffers_;
  std::size_t current_ = 0;
};

}  // namespace longhand::kernels::cuda
