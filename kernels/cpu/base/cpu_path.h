#pragma once
// Which set of kernels a machine can run.

#include <cstdint>

namespace longhand::kernels {

enum class CpuPath : std::uint8_t {
  kAuto,
  kPortable,
  kAvx2,
  kAvxVnni,
  kAvx512,
  kAvx512Vnni,
  kAvx512Bf16
};

/// True when this machine can run the path.
bool isSupported(CpuPath path);

/// `wanted` or, where the machine lacks it, the best simpler one. Never kAuto.
CpuPath resolvePath(CpuPath wanted);

}  // namespace longhand::kernels
