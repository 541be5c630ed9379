// The CPU backend's inner loops for AVX-512. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/simd/simd_avx512.h"
//
#include "kernels/cpu/simd/simd_partial.h"
//
#include "kernels/cpu/weights/expand_inl.h"
#include "kernels/cpu/weights/matvec_inl.h"
#include "kernels/cpu/weights/rms_norm_inl.h"
#include "kernels/cpu/weights/rope_inl.h"
#include "kernels/cpu/weights/silu_multiply_inl.h"
#include "kernels/cpu/weights/tile_inl.h"
//
#include "kernels/cpu/weights/kernel_table_inl.h"

namespace longhand::kernels {

const CpuKernels& avx512Kernels() {
  static constexpr CpuKernels kKernels = cpuKernelTable("AVX-512", nullptr, nullptr);
  return kKernels;
}

}  // namespace longhand::kernels
