#pragma once
// Main memory as the CPU backends hand it out. Any thread may call.

#include <cstddef>

#include "kernels/backend.h"

namespace longhand::kernels {

/// MemTotal and MemAvailable of /proc/meminfo, or less where memory_limits.h says so, and the
/// resident set of this process; zeros where /proc cannot be read.
DeviceMemoryInfo hostMemoryInfo();

/// `bytes` (> 0) aligned to at least 64 bytes, contents undefined; nullptr when it is more than the
/// system has available. 2 MiB and more are mapped: such memory becomes resident only where it is
/// touched, in huge pages where the system grants them, and goes back to the system on release.
std::byte* allocateHostMemory(std::size_t bytes);
/// Takes back what allocateHostMemory gave for the same size; nullptr is ignored.
void releaseHostMemory(std::byte* memory, std::size_t bytes) noexcept;

}  // namespace longhand::kernels
