#pragma once
// What every backend shares whose memory is the host's: the slow twin and the CPU backend. Its
// operations run at once, so there is nothing to wait for.

#include <cstddef>
#include <cstring>
#include <string>

#include "kernels/backend.h"
#include "kernels/host_memory.h"

namespace longhand::kernels {

class HostBackend : public Backend {
 public:
  bool usesHostMemory() const final { return true; }
  DeviceMemoryInfo memoryInfo() const final { return hostMemoryInfo(); }

  std::byte* allocate(std::size_t bytes) override { return allocateHostMemory(bytes); }
  void release(std::byte* memory, std::size_t bytes) noexcept final {
    releaseHostMemory(memory, bytes);
  }
  void upload(std::byte* destination, const std::byte* hostSource, std::size_t bytes) final {
    copy(destination, hostSource, bytes);
  }
  void download(std::byte* hostDestination, const std::byte* source, std::size_t bytes) final {
    copy(hostDestination, source, bytes);
  }
  void copy(std::byte* destination, const std::byte* source, std::size_t bytes) final {
    if (bytes > 0) std::memmove(destination, source, bytes);
  }
  std::string synchronize() final { return {}; }
};

}  // namespace longhand::kernels
