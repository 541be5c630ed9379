// The CPU backend's inner loops for portable. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/simd_portable.h"
//
#include "kernels/cpu/simd_partial.h"
//
#include "kernels/cpu/expand_impl.h"
#include "kernels/cpu/matvec_impl.h"
#include "kernels/cpu/rms_norm_impl.h"
#include "kernels/cpu/rope_impl.h"
#include "kernels/cpu/silu_multiply_impl.h"
#include "kernels/cpu/tile_impl.h"
//
#include "kernels/cpu/kernel_table_impl.h"

namespace longhand::kernels {

const CpuKernels& portableKernels() {
  static constexpr CpuKernels kKernels = cpuKernelTable("portable", nullptr, nullptr);
  return kKernels;
}

}  // namespace longhand::kernels
