#pragma once
// What a process may use of main memory where something smaller than the machine limits it:
// control groups (containers, systemd units) and RLIMIT_AS (ulimit -v). Any thread may call.

#include <cstdint>
#include <filesystem>

namespace longhand::kernels {

struct MemoryLimit {
  std::uint64_t totalBytes = UINT64_MAX;  // UINT64_MAX: no limit
  std::uint64_t freeBytes = UINT64_MAX;   // likewise

  bool operator==(const MemoryLimit&) const = default;
};

/// The tightest limit of the control groups that `procSelfCgroup` (/proc/self/cgroup) names and
/// their parents, of version 1 or 2, below `cgroupRoot` (/sys/fs/cgroup). Cached files count as
/// free, since the kernel gives them up first. See Documentation/admin-guide/cgroup-v2.rst and
/// cgroup-v1/memory.rst of Linux. What cannot be read limits nothing.
MemoryLimit cgroupMemoryLimit(const std::filesystem::path& procSelfCgroup,
                              const std::filesystem::path& cgroupRoot);

/// RLIMIT_AS less the address space in use, which counts what is mapped, touched or not.
MemoryLimit addressSpaceLimit(std::uint64_t mappedBytes);

}  // namespace longhand::kernels
