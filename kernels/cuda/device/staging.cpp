#include "kernels/cuda/device/staging.h"

#include <algorithm>
#include <cstring>

namespace longhand::kernels::cuda {
namespace {

constexpr std::size_t kAlignmentBytes = 64;  // of pieces in a buffer

}  // namespace

void Staging::start(const StagingOptions& options, cudaStream_t stream) {
  stream_ = stream;
  bufferBytes_ = options.bufferBytes;
  for (int i = 0; i < options.nBuffers; ++i) {
    Buffer buffer;
    buffer.memory = allocatePinned(bufferBytes_);
    if (buffer.memory == nullptr) break;
    if (cudaEventCreateWithFlags(&buffer.isDone, cudaEventDisableTiming) != cudaSuccess) {
      cudaGetLastError();
      break;
    }
    buffers_.push_back(std::move(buffer));
  }
  if (buffers_.size() < 2) stop();  // one alone would make the host wait for each piece
}

void Staging::stop() noexcept {
  for (const Buffer& buffer : buffers_) cudaEventDestroy(buffer.isDone);
  buffers_.clear();
  current_ = 0;
}

std::size_t Staging::pinnedBytes() const { return buffers_.size() * bufferBytes_; }

Staging::Buffer* Staging::bufferOf(const std::byte* address) {
  for (Buffer& buffer : buffers_) {
    const std::byte* const first = buffer.memory.get();
    if (address >= first && address < first + bufferBytes_) return &buffer;
  }
  return nullptr;
}

void Staging::turn() {
  current_ = (current_ + 1) % buffers_.size();
  Buffer& buffer = buffers_[current_];
  if (buffer.isInFlight) cudaEventSynchronize(buffer.isDone);  // a fault shows in the stream, too
  buffer.isInFlight = false;
  buffer.usedBytes = 0;
}

std::span<std::byte> Staging::next() {
  if (buffers_.empty()) return {};
  turn();
  Buffer& buffer = buffers_[current_];
  buffer.usedBytes = bufferBytes_;  // all of it is the caller's
  return {buffer.memory.get(), bufferBytes_};
}

cudaError_t Staging::queue(Buffer& buffer, std::byte* destination, const std::byte* source,
                           std::size_t bytes) {
  const cudaError_t error =
      cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, stream_);
  if (error != cudaSuccess) return error;
  buffer.isInFlight = true;
  return cudaEventRecord(buffer.isDone, stream_);
}

cudaError_t Staging::upload(std::byte* destination, const std::byte* source, std::size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (buffers_.empty()) {
    return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, stream_);
  }
  if (Buffer* const own = bufferOf(source)) return queue(*own, destination, source, bytes);
  while (bytes > 0) {
    if (buffers_[current_].usedBytes == bufferBytes_) turn();
    Buffer& buffer = buffers_[current_];
    const std::size_t count = std::min(bytes, bufferBytes_ - buffer.usedBytes);
    std::byte* const staged = buffer.memory.get() + buffer.usedBytes;
    std::memcpy(staged, source, count);
    const cudaError_t error = queue(buffer, destination, staged, count);
    if (error != cudaSuccess) return error;
    const std::size_t rounded = (count + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    buffer.usedBytes += std::min(rounded, bufferBytes_ - buffer.usedBytes);
    destination += count;
    source += count;
    bytes -= count;
  }
  return cudaSuccess;
}

}  // namespace longhand::kernels::cuda
