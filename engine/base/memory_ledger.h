#pragma once
// Counts what the backend has really allocated, by category. The gauges of the window show it.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/base/error.h"
#include "kernels/backend.h"

namespace longhand::engine {

enum class MemoryCategory : std::uint8_t { kWeights, kKvCodes, kKvScales, kKvExact, kWorkspace };
inline constexpr std::size_t kMemoryCategoryCount = 5;

/// Bytes by category. kKvExact is the sink and the residual, and pages of 16 bits.
struct MemoryUse {
  std::array<std::uint64_t, kMemoryCategoryCount> bytes{};

  std::uint64_t& operator[](MemoryCategory c) { return bytes[static_cast<std::size_t>(c)]; }
  std::uint64_t operator[](MemoryCategory c) const { return bytes[static_cast<std::size_t>(c)]; }
  std::uint64_t total() const;
};

/// Thread-safe counters; one for each loaded model. Outlives everything that counts in it.
class MemoryLedger {
 public:
  void add(MemoryCategory category, std::uint64_t bytes) noexcept;
  void subtract(MemoryCategory category, std::uint64_t bytes) noexcept;
  MemoryUse use() const;            // now
  MemoryUse peak() const;           // highest value each category has had
  std::uint64_t peakTotal() const;  // highest sum of all categories
  void resetPeak() noexcept;

 private:
  std::array<std::atomic<std::uint64_t>, kMemoryCategoryCount> now_{};
  std::array<std::atomic<std::uint64_t>, kMemoryCategoryCount> peak_{};
  std::atomic<std::uint64_t> total_{0};
  std::atomic<std::uint64_t> peakTotal_{0};
};

/// An Error kOutOfMemory that says what is needed and what is free.
Error outOfMemory(std::uint64_t neededBytes, std::uint64_t freeBytes);
/// What it means that a backend did not allocate `bytes`: kOutOfMemory, or kDevice where the device
/// is broken.
[[noreturn]] void throwNoRoom(kernels::Backend& backend, std::uint64_t bytes);

/// Backend memory that counts itself and frees itself. Movable, not copyable.
class BackendBuffer {
 public:
  BackendBuffer() = default;
  /// Throws as throwNoRoom() when the device has no room.
  BackendBuffer(kernels::Backend& backend, MemoryLedger& ledger, MemoryCategory category,
                std::size_t bytes);
  BackendBuffer(BackendBuffer&& other) noexcept;
  BackendBuffer& operator=(BackendBuffer&& other) noexcept;
  ~BackendBuffer();

  std::byte* data() const { return data_; }
  float* floats() const { return static_cast<float*>(static_cast<void*>(data_)); }
  std::size_t sizeBytes() const { return bytes_; }

 private:
  void free() noexcept;

  kernels::Backend* backend_ = nullptr;
  MemoryLedger* ledger_ = nullptr;
  MemoryCategory category_ = MemoryCategory::kWorkspace;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Throws Error kOutOfMemory when a CPU has no `bytes` free: Linux grants more than it has, and
/// kills the process later. Devices refuse by themselves, so there it does nothing.
void requireFreeMemory(const kernels::Backend& backend, std::uint64_t bytes);

/// Overwrites backend memory with zeros.
void zeroMemory(kernels::Backend& backend, std::byte* memory, std::uint64_t bytes);

}  // namespace longhand::engine
