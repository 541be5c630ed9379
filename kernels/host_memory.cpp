#include "kernels/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <fstream>
#include <new>
#include <string>

#include "kernels/memory_limits.h"

namespace longhand::kernels {
namespace {

constexpr std::size_t kAlignmentBytes = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;

// Mapped memory starts on a huge page, so that the kernel can use them from the first byte on.
std::byte* mapAligned(std::size_t bytes) {
  const std::size_t reservedBytes = bytes + kHugePageBytes;
  void* reserved =
      mmap(nullptr, reservedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  std::byte* const start = static_cast<std::byte*>(reserved);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(start) % kHugePageBytes;
  const std::size_t before = misaligned == 0 ? 0 : kHugePageBytes - misaligned;
  const std::size_t pageBytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t keptBytes = (bytes + pageBytes - 1) / pageBytes * pageBytes;
  if (before > 0) munmap(start, before);
  if (before + keptBytes < reservedBytes) {
    munmap(start + before + keptBytes, reservedBytes - before - keptBytes);
  }
  madvise(start + before, keptBytes, MADV_HUGEPAGE);  // a wish: no harm when refused
  return start + before;
}

}  // namespace

DeviceMemoryInfo hostMemoryInfo() {
  DeviceMemoryInfo info;
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  std::uint64_t kibibytes = 0;
  std::string unit;
  while (meminfo >> key >> kibibytes && std::getline(meminfo, unit)) {
    if (key == "MemTotal:") info.totalBytes = kibibytes * 1024;
    if (key == "MemAvailable:") {
      info.freeBytes = kibibytes * 1024;
      break;
    }
  }
  std::ifstream statm("/proc/self/statm");
  std::uint64_t sizePages = 0;
  std::uint64_t residentPages = 0;
  if (statm >> sizePages >> residentPages) {
    info.processBytes = residentPages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  }
  if (info.totalBytes == 0) return info;
  const std::uint64_t mappedBytes = sizePages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  for (const MemoryLimit& limit :
       {cgroupMemoryLimit("/proc/self/cgroup", "/sys/fs/cgroup"), addressSpaceLimit(mappedBytes)}) {
    info.totalBytes = std::min(info.totalBytes, limit.totalBytes);
    info.freeBytes = std::min(info.freeBytes, limit.freeBytes);
  }
  return info;
}

std::byte* allocateHostMemory(std::size_t bytes) {
  assert(bytes > 0);
  if (bytes < kHugePageBytes) {
    return static_cast<std::byte*>(
        ::operator new (bytes, std::align_val_t{kAlignmentBytes}, std::nothrow));
  }
  // Linux lets a process map more than there is and kills it when it uses it.
  const std::uint64_t freeBytes = hostMemoryInfo().freeBytes;
  if (freeBytes != 0 && bytes > freeBytes) return nullptr;
  return mapAligned(bytes);
}

void releaseHostMemory(std::byte* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  if (bytes < kHugePageBytes) {
    ::operator delete (memory, std::align_val_t{kAlignmentBytes});
  } else {
    munmap(memory, bytes);
  }
}

}  // namespace longhand::kernels
