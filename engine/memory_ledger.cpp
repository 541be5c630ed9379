#include "engine/memory_ledger.h"

#include <numeric>
#include <utility>

#include "engine/error.h"

namespace longhand::engine {

std::uint64_t MemoryUse::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

namespace {

void raise(std::atomic<std::uint64_t>& peak, std::uint64_t now) noexcept {
  std::uint64_t highest = peak.load();
  while (highest < now && !peak.compare_exchange_weak(highest, now)) {
  }
}

}  // namespace

void MemoryLedger::add(MemoryCategory category, std::uint64_t bytes) noexcept {
  const auto index = static_cast<std::size_t>(category);
  raise(peak_[index], now_[index].fetch_add(bytes) + bytes);
  raise(peakTotal_, total_.fetch_add(bytes) + bytes);
}

void MemoryLedger::subtract(MemoryCategory category, std::uint64_t bytes) noexcept {
  now_[static_cast<std::size_t>(category)].fetch_sub(bytes);
  total_.fetch_sub(bytes);
}

std::uint64_t MemoryLedger::peakTotal() const { return peakTotal_.load(); }

MemoryUse MemoryLedger::use() const {
  MemoryUse result;
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) result.bytes[i] = now_[i].load();
  return result;
}

MemoryUse MemoryLedger::peak() const {
  MemoryUse result;
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) result.bytes[i] = peak_[i].load();
  return result;
}

void MemoryLedger::resetPeak() noexcept {
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) peak_[i].store(now_[i].load());
  peakTotal_.store(total_.load());
}

BackendBuffer::BackendBuffer(kernels::Backend& backend, MemoryLedger& ledger,
                             MemoryCategory category, std::size_t bytes)
    : backend_(&backend), ledger_(&ledger), category_(category), bytes_(bytes) {
  if (bytes == 0) return;
  data_ = backend.allocate(bytes);
  if (data_ == nullptr) {
    constexpr std::size_t kMiB = std::size_t{1} << 20U;
    throw Error(ErrorCode::kOutOfMemory,
                "Not enough memory: " + std::to_string(bytes / kMiB + 1) + " MiB are needed and " +
                    std::to_string(backend.memoryInfo().freeBytes / kMiB) + " MiB are free.",
                "Choose a shorter context or a preset with fewer bits.");
  }
  ledger.add(category, bytes);
}

BackendBuffer::BackendBuffer(BackendBuffer&& other) noexcept
    : backend_(other.backend_),
      ledger_(other.ledger_),
      category_(other.category_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

BackendBuffer& BackendBuffer::operator=(BackendBuffer&& other) noexcept {
  if (this == &other) return *this;
  free();
  backend_ = other.backend_;
  ledger_ = other.ledger_;
  category_ = other.category_;
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

BackendBuffer::~BackendBuffer() { free(); }

void BackendBuffer::free() noexcept {
  if (data_ == nullptr) return;
  backend_->release(data_, bytes_);
  ledger_->subtract(category_, bytes_);
  data_ = nullptr;
}

}  // namespace longhand::engine
