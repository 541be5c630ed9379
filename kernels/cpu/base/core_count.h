#pragma once
// How many threads this process should compute with.

namespace longhand::kernels {

/// Physical cores in the process's affinity mask (two hardware threads of a core share its
/// arithmetic units), at most what a cgroup's CPU quota pays for, rounded up; at least 1.
int usableCoreCount();

}  // namespace longhand::kernels
