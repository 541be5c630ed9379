#pragma once
// cp.async under emulation: the copy happens only when its group is waited for, so a forgotten wait
// reads poison. (A GPU may copy earlier; no program may rely on it.)

#include <cstring>
#include <vector>

#include "tests/cuda_on_cpu/block_engine.h"
#include "tests/cuda_on_cpu/sanitizer_hooks.h"

namespace longhand::cuda_on_cpu {

/// cp.async.ca/cg.shared.global: copies sourceBytes and fills up to `bytes` (4, 8 or 16) with
/// zeros.
LONGHAND_NO_TSAN inline void copyAsync(void* destination, const void* source, unsigned bytes,
                                       unsigned sourceBytes) {
  const BookkeepingScope scope;
  const auto isAligned = [bytes](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
  };
  if (!isAligned(destination) || !isAligned(source)) {
    current.engine->fail("cp.async of a misaligned address");
  }
  Fiber& self = *current.fiber;
  self.pendingCopies.push_back(
      {destination, source, sourceBytes, bytes - sourceBytes, self.copyGroup});
}

LONGHAND_NO_TSAN inline void commitCopies() { ++current.fiber->copyGroup; }

/// cp.async.wait_group: all but the newest `nPending` groups of this thread are done.
inline void waitCopies(unsigned nPending) {
  std::vector<PendingCopy> due;
  {
    const BookkeepingScope scope;
    Fiber& self = *current.fiber;
    std::vector<PendingCopy> later;
    for (const PendingCopy& copy : self.pendingCopies) {
      (copy.group + nPending < self.copyGroup ? due : later).push_back(copy);
    }
    self.pendingCopies = later;
  }
  for (const PendingCopy& copy : due) {
    if (copy.bytes > 0) std::memcpy(copy.destination, copy.source, copy.bytes);
    std::memset(static_cast<char*>(copy.destination) + copy.bytes, 0, copy.zeroBytes);
  }
}

}  // namespace longhand::cuda_on_cpu
