// The CPU backend's inner loops for AVX2. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/simd/simd_avx2.h"
//
#include "kernels/cpu/simd/simd_partial.h"
//
#include "kernels/cpu/weights/int8_matvec_simd_avx2.h"
#include "kernels/cpu/weights/int8_tile_simd_avx2.h"
//
#include "kernels/cpu/weights/expand_inl.h"
#include "kernels/cpu/weights/int8_matvec_inl.h"
#include "kernels/cpu/weights/int8_tile_inl.h"
#include "kernels/cpu/weights/matvec_inl.h"
#include "kernels/cpu/weights/rms_norm_inl.h"
#include "kernels/cpu/weights/rope_inl.h"
#include "kernels/cpu/weights/silu_multiply_inl.h"
#include "kernels/cpu/weights/tile_inl.h"
//
#include "kernels/cpu/weights/kernel_table_inl.h"

namespace longhand::kernels {

const CpuKernels& avx2Kernels() {
  static constexpr CpuKernels kKernels = cpuKernelTable("AVX2", &kInt8MatvecKernels, &kInt8Kernels);
  return kKernels;
}

}  // namespace longhand::kernels
