#pragma once
// The table of a set's kernels: what all sets fill in alike. Included last by kernels_<set>.cpp; it
// is evaluated by the compiler, so no code of it remains.

#include "kernels/cpu/weights/cpu_kernels.h"

namespace longhand::kernels {
namespace {

/// The integer kernels are nullptr where the set has none.
constexpr CpuKernels cpuKernelTable(const char* name, const Int8MatvecKernels* int8Matvec,
                                    const Int8Kernels* int8) {
  return {
      .name = name,
      .matvecF32 = matvecPlain<FloatNumbers>,
      .matvecF16 = matvecPlain<HalfNumbers>,
      .matvecBf16 = matvecPlain<BfloatNumbers>,
      .lanes = Simd::kLanes,
      .arrangeNf4Input = arrangeNf4Input,
      .matvecNf4 = matvecNf4,
      .int8Matvec = int8Matvec,
      .expandF16 = expandPlain<HalfNumbers>,
      .expandBf16 = expandPlain<BfloatNumbers>,
      .expandNf4 = expandNf4,
      .expandInt8 = expandInt8,
      .multiplyTile = multiplyTile,
      .int8 = int8,
      .rmsNormRow = rmsNormRow,
      .ropeHead = ropeHead,
      .siluMultiplyRow = siluMultiplyRow,
  };
}

}  // namespace
}  // namespace longhand::kernels
