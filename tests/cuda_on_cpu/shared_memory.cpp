#include "tests/cuda_on_cpu/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "tests/cuda_on_cpu/options.h"
#include "tests/cuda_on_cpu/sanitizer_hooks.h"

namespace longhand::cuda_on_cpu {
namespace {

constexpr std::size_t kCapacityBytes = std::size_t{512} << 10U;
constexpr std::size_t kGapBytes = 128;
constexpr unsigned char kGapByte = 0xcd;

unsigned char* map() {
  void* const memory =
      mmap(nullptr, kCapacityBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  forbidAccess(memory, kCapacityBytes);
  return static_cast<unsigned char*>(memory);
}

void unmap(unsigned char*& memory) {
  if (memory == nullptr) return;
  allowAccess(memory, kCapacityBytes);
  munmap(memory, kCapacityBytes);
  memory = nullptr;
}

/// Poison, and behind it a gap that may not be touched.
LONGHAND_NO_TSAN void fillWithGap(unsigned char* memory, std::size_t bytes) {
  allowAccess(memory, bytes + kGapBytes);
  std::memset(memory, kSharedPoison, bytes);
  std::memset(memory + bytes, kGapByte, kGapBytes);
  forbidAccess(memory + bytes, kGapBytes);
}

}  // namespace

SharedMemory::~SharedMemory() {
  unmap(mapping_);
  unmap(dynamicMapping_);
}

LONGHAND_NO_TSAN void SharedMemory::reset(std::size_t dynamicBytes) {
#ifdef LONGHAND_EMULATION_TSAN
  // A fresh mapping has no history: the block before used other threads at the same addresses.
  unmap(mapping_);
  unmap(dynamicMapping_);
#endif
  arrays_.clear();
  usedBytes_ = staticBytes_ = 0;
  dynamic_ = nullptr;
  dynamicBytes_ = dynamicBytes;
  if (mapping_ != nullptr) forbidAccess(mapping_, kCapacityBytes);
  if (dynamicMapping_ != nullptr) forbidAccess(dynamicMapping_, kCapacityBytes);
  if (dynamicBytes == 0) return;
  if (dynamicMapping_ == nullptr) dynamicMapping_ = map();
  fillWithGap(dynamicMapping_, dynamicBytes);
  dynamic_ = dynamicMapping_;
}

LONGHAND_NO_TSAN void* SharedMemory::array(const char* site, std::size_t bytes) {
  for (const Array& each : arrays_) {
    if (each.site == site) return each.memory;
  }
  if (mapping_ == nullptr) mapping_ = map();
  const std::size_t start = (usedBytes_ + kGapBytes - 1) / kGapBytes * kGapBytes;
  if (start + bytes + kGapBytes > kCapacityBytes) return nullptr;
  usedBytes_ = start + bytes + kGapBytes;
  staticBytes_ += bytes;
  unsigned char* const memory = mapping_ + start;
  fillWithGap(memory, bytes);
  arrays_.push_back({site, memory, bytes});
  return memory;
}

LONGHAND_NO_TSAN std::string SharedMemory::overrun() const {
#ifndef LONGHAND_EMULATION_ASAN
  const auto isWritten = [](const unsigned char* gap) {
    return std::any_of(gap, gap + kGapBytes, [](unsigned char byte) { return byte != kGapByte; });
  };
  for (const Array& each : arrays_) {
    if (isWritten(each.memory + each.bytes)) {
      return "the block wrote past a shared array, declared at " + std::string(each.site);
    }
  }
  if (dynamic_ != nullptr && isWritten(dynamicMapping_ + dynamicBytes_)) {
    return "the block wrote past the dynamic shared memory";
  }
#endif
  return {};
}

}  // namespace longhand::cuda_on_cpu
