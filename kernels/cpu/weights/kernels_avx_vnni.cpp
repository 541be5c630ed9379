// What AVX-VNNI adds to the CPU backend's inner loops for AVX2. Compiled with flags of its own
// (CMakeLists.txt).

#include "kernels/cpu/simd/simd_avx2.h"
//
#include "kernels/cpu/simd/simd_partial.h"
//
#include "kernels/cpu/weights/int8_matvec_simd_avx2.h"
#include "kernels/cpu/weights/int8_tile_simd_avx2.h"
//
#include "kernels/cpu/weights/cpu_kernels.h"
#include "kernels/cpu/weights/int8_matvec_inl.h"
#include "kernels/cpu/weights/int8_tile_inl.h"

namespace longhand::kernels {

const Int8Kernels& avxVnniInt8Kernels() { return kInt8Kernels; }

const Int8MatvecKernels& avxVnniInt8MatvecKernels() {
  static constexpr Int8MatvecKernels kKernels = kInt8MatvecKernels;
  return kKernels;
}

}  // namespace longhand::kernels
