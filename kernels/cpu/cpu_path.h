#pragma once
// Which set of kernels a machine can run.

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/weights/cpu_kernels.h"

namespace longhand::kernels {

/// `wanted` or, where the machine lacks it, the best simpler one. Never kAuto.
CpuPath resolvePath(CpuPath wanted);

/// The kernels of a path that isSupported() and is not kAuto.
const CpuKernels& kernelsFor(CpuPath path);

}  // namespace longhand::kernels
