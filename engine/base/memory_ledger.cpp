#include "engine/base/memory_ledger.h"

#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "engine/base/device_fault.h"

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

/// "20.24 GiB", "512 MiB": rounded up or down, so that what is needed never looks like what is
/// free.
std::string sizeText(std::uint64_t bytes, bool roundsUp) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
  const bool isInGiB = bytes >= 1024 * kMiB;
  // Of a MiB, or of a hundredth of a GiB.
  const double units =
      static_cast<double>(bytes) / static_cast<double>(kMiB) * (isInGiB ? 100.0 / 1024.0 : 1.0);
  const auto whole = static_cast<std::uint64_t>(roundsUp ? std::ceil(units) : std::floor(units));
  if (!isInGiB) return std::to_string(whole) + " MiB";
  const std::string hundredths = std::to_string(whole % 100);
  return std::to_string(whole / 100) + (hundredths.size() == 1 ? ".0" : ".") + hundredths + " GiB";
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

Error outOfMemory(std::uint64_t neededBytes, std::uint64_t freeBytes) {
  return {ErrorCode::kOutOfMemory,
          "Not enough memory: " + sizeText(neededBytes, true) + " are needed and " +
              sizeText(freeBytes, false) + " are free.",
          "Choose a shorter context or a preset with fewer bits."};
}

void throwNoRoom(kernels::Backend& backend, std::uint64_t bytes) {
  requireNoFault(backend);
  throw outOfMemory(bytes, backend.memoryInfo().freeBytes);
}

BackendBuffer::BackendBuffer(kernels::Backend& backend, MemoryLedger& ledger,
                             MemoryCategory category, std::size_t bytes)
    : backend_(&backend), ledger_(&ledger), category_(category), bytes_(bytes) {
  if (bytes == 0) return;
  data_ = backend.allocate(bytes);
  if (data_ == nullptr) throwNoRoom(backend, bytes);
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

void requireFreeMemory(const kernels::Backend& backend, std::uint64_t bytes) {
  if (!backend.usesHostMemory()) return;
  const kernels::DeviceMemoryInfo info = backend.memoryInfo();
  if (info.totalBytes != 0 && info.freeBytes < bytes) {
    throw outOfMemory(bytes, info.freeBytes);
  }
}

void zeroMemory(kernels::Backend& backend, std::byte* memory, std::uint64_t bytes) {
  static constexpr std::byte kZeros[1U << 16U] = {};
  for (std::uint64_t done = 0; done < bytes; done += sizeof(kZeros)) {
    backend.upload(memory + done, kZeros, std::min<std::uint64_t>(sizeof(kZeros), bytes - done));
  }
}

}  // namespace longhand::engine
