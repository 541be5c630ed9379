#include "kernels/cpu/base/cpu_path.h"

#ifdef LONGHAND_X86_KERNELS
#include <cpuid.h>
#endif

namespace longhand::kernels {

#ifdef LONGHAND_X86_KERNELS

namespace {

// clang 14's __builtin_cpu_supports does not know this name.
bool hasF16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// GCC 12's __builtin_cpu_supports does not know this name.
bool hasAvxVnni() {
  constexpr unsigned kAvxVnniBit = 1U << 4U;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnniBit) != 0;
}

bool hasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

// __builtin_cpu_supports also asks whether the system saves the registers.
bool isSupported(CpuPath path) {
  const bool hasAvx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && hasF16c();
  switch (path) {
    case CpuPath::kAuto:
    case CpuPath::kPortable:
      return true;
    case CpuPath::kAvx2:
      return hasAvx2;
    case CpuPath::kAvxVnni:
      return hasAvx2 && hasAvxVnni();
    case CpuPath::kAvx512:
      return hasAvx2 && hasAvx512();
    case CpuPath::kAvx512Vnni:
      return hasAvx2 && hasAvx512() && __builtin_cpu_supports("avx512vnni");
    case CpuPath::kAvx512Bf16:
      return isSupported(CpuPath::kAvx512Vnni) && __builtin_cpu_supports("avx512bf16");
  }
  return false;
}

#else

bool isSupported(CpuPath path) { return path == CpuPath::kAuto || path == CpuPath::kPortable; }

#endif

CpuPath resolvePath(CpuPath wanted) {
  const bool mayBeBf16 = wanted == CpuPath::kAuto || wanted == CpuPath::kAvx512Bf16;
  if (mayBeBf16 && isSupported(CpuPath::kAvx512Bf16)) return CpuPath::kAvx512Bf16;
  const bool mayBeVnni = mayBeBf16 || wanted == CpuPath::kAvx512Vnni;
  if (mayBeVnni && isSupported(CpuPath::kAvx512Vnni)) return CpuPath::kAvx512Vnni;
  const bool mayBeAvx512 = mayBeVnni || wanted == CpuPath::kAvx512;
  if (mayBeAvx512 && isSupported(CpuPath::kAvx512)) return CpuPath::kAvx512;
  const bool mayBeAvxVnni = mayBeAvx512 || wanted == CpuPath::kAvxVnni;
  if (mayBeAvxVnni && isSupported(CpuPath::kAvxVnni)) return CpuPath::kAvxVnni;
  const bool mayBeAvx2 = mayBeAvxVnni || wanted == CpuPath::kAvx2;
  if (mayBeAvx2 && isSupported(CpuPath::kAvx2)) return CpuPath::kAvx2;
  return CpuPath::kPortable;
}

}  // namespace longhand::kernels
