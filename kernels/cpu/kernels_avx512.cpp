// The CPU backend's inner loops for AVX-512. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/simd_avx512.h"
//
#include "kernels/cpu/simd_partial.h"
//
#include "kernels/cpu/expand_impl.h"
#include "kernels/cpu/matvec_impl.h"
#include "kernels/cpu/rms_norm_impl.h"
#include "kernels/cpu/rope_impl.h"
#include "kernels/cpu/silu_multiply_impl.h"
#include "kernels/cpu/tile_impl.h"

namespace longhand::kernels {

const CpuKernels& avx512Kernels() {
  static constexpr CpuKernels kKernels = {
      .name = "AVX-512",
      .matvecF32 = matvecPlain<FloatNumbers>,
      .matvecF16 = matvecPlain<HalfNumbers>,
      .matvecBf16 = matvecPlain<BfloatNumbers>,
      .lanes = Simd::kLanes,
      .arrangeNf4Input = arrangeNf4Input,
      .matvecNf4 = matvecNf4,
      .int8Matvec = nullptr,
      .expandF16 = expandPlain<HalfNumbers>,
      .expandBf16 = expandPlain<BfloatNumbers>,
      .expandNf4 = expandNf4,
      .expandInt8 = expandInt8,
      .multiplyTile = multiplyTile,
      .int8 = nullptr,
      .rmsNormRow = rmsNormRow,
      .ropeHead = ropeHead,
      .siluMultiplyRow = siluMultiplyRow,
  };
  return kKernels;
}

}  // namespace longhand::kernels
