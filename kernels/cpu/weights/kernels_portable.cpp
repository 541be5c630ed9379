// The CPU backend's inner loops for portable. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/simd/simd_portable.h"
//
#include "kernels/cpu/simd/simd_partial.h"
//
#include "kernels/cpu/weights/expand_impl.h"
#include "kernels/cpu/weights/matvec_impl.h"
#include "kernels/cpu/weights/rms_norm_impl.h"
#include "kernels/cpu/weights/rope_impl.h"
#include "kernels/cpu/weights/silu_multiply_impl.h"
#include "kernels/cpu/weights/tile_impl.h"
//
#include "kernels/cpu/weights/kernel_table_impl.h"

namespace longhand::kernels {

const CpuKernels& portableKernels() {
  static constexpr CpuKernels kKernels = cpuKernelTable("portable", nullptr, nullptr);
  return kKernels;
}

}  // namespace longhand::kernels
