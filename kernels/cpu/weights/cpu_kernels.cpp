#include "kernels/cpu/weights/cpu_kernels.h"

namespace longhand::kernels {

#ifdef LONGHAND_X86_KERNELS

const CpuKernels& kernelsFor(CpuPath path) {
  if (path == CpuPath::kAvx512Bf16) {  // BF16 serves attention; weights take VNNI
    static const CpuKernels kKernels = [] {
      CpuKernels kernels = avx512VnniKernels();
      kernels.name = "AVX-512 BF16";
      return kernels;
    }();
    return kKernels;
  }
  if (path == CpuPath::kAvx512Vnni) return avx512VnniKernels();
  if (path == CpuPath::kAvx512) return avx512Kernels();
  if (path == CpuPath::kAvxVnni) {
    static const CpuKernels kKernels = [] {
      CpuKernels kernels = avx2Kernels();
      kernels.name = "AVX-VNNI";
      kernels.int8 = &avxVnniInt8Kernels();
      kernels.int8Matvec = &avxVnniInt8MatvecKernels();
      return kernels;
    }();
    return kKernels;
  }
  if (path == CpuPath::kAvx2) return avx2Kernels();
  return portableKernels();
}

#else

const CpuKernels& kernelsFor(CpuPath) { return portableKernels(); }

#endif

}  // namespace longhand::kernels
