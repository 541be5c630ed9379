#pragma once
// How much memory the processor's caches hold.

#include <cstdint>

namespace longhand::kernels {

/// Bytes of all last-level caches (those that no other is behind) of the CPUs that this process may
/// use. 0: the system does not say.
std::int64_t lastLevelCacheBytes();

}  // namespace longhand::kernels
