#pragma once
// Single numbers of a weight on the device, exactly as kernels/nf4.h sees them: for the paths that
// any shape and alignment may take. Fast paths read whole vectors instead.

#include "kernels/cuda/warp/portability.cuh"
#include "kernels/types.h"

namespace longhand::kernels::cuda {

/// absmax of NF4 block `block`.
__device__ __forceinline__ float nf4Absmax(const WeightView& weight, std::int64_t block) {
  if (weight.absmax != nullptr) return weight.absmax[block];
  // Rounded twice, as the CPU does: a fused multiply-add would differ in the last bit.
  return __fadd_rn(__fmul_rn(weight.nestedCodebook[weight.absmaxCodes[block]],
                             weight.nestedAbsmax[block / kNf4NestedBlockSize]),
                   weight.nestedOffset);
}

/// Number `index` of the flattened matrix.
__device__ __forceinline__ float readWeight(const WeightView& weight, std::int64_t index) {
  switch (weight.type) {
    case DataType::kF32:
      return reinterpret_cast<const float*>(weight.data)[index];
    case DataType::kF16:
      return __half2float(reinterpret_cast<const __half*>(weight.data)[index]);
    case DataType::kBF16:
      return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(weight.data)[index]);
    case DataType::kInt8:
      return static_cast<float>(reinterpret_cast<const std::int8_t*>(weight.data)[index]) *
             weight.scales[index / kInt8BlockSize];
    case DataType::kNf4: {
      const unsigned pair = reinterpret_cast<const std::uint8_t*>(weight.data)[index / 2];
      const unsigned code = index % 2 == 0 ? pair >> 4U : pair & 15U;
      return weight.codebook[code] * nf4Absmax(weight, index / kNf4BlockSize);
    }
  }
  return 0.0F;
}

}  // namespace longhand::kernels::cuda
