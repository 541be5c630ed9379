#pragma once
// Several neighbouring floats at once: 16 bytes of a load or store where addresses allow.

#include <cstdint>

#include "kernels/cuda/warp/portability.cuh"
#include "kernels/types.h"

namespace longhand::kernels::cuda {

inline bool isAlignedTo16(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// True where every row can be read in whole vectors of 4.
inline bool hasVectorRows(const MatrixView& matrix) {
  return isAlignedTo16(matrix.data) && matrix.stride % 4 == 0 && matrix.cols % 4 == 0;
}

/// 4 floats of a 16-byte aligned address, or 1 of any.
template <int kCount>
struct Floats {
  static_assert(kCount == 1 || kCount == 4);
  float x[kCount];

  __device__ __forceinline__ static Floats load(const float* address) {
    if constexpr (kCount == 4) {
      const float4 four = *reinterpret_cast<const float4*>(address);
      return {{four.x, four.y, four.z, four.w}};
    } else {
      return {{*address}};
    }
  }
  __device__ __forceinline__ void store(float* address) const {
    if constexpr (kCount == 4) {
      *reinterpret_cast<float4*>(address) = make_float4(x[0], x[1], x[2], x[3]);
    } else {
      *address = x[0];
    }
  }
};

/// Columns [col, col + 4) of a row that no kernel writes meanwhile.
__device__ __forceinline__ float4 loadFour(const float* row, int col, bool isAligned) {
  if (isAligned) return __ldg(reinterpret_cast<const float4*>(row + col));
  return make_float4(__ldg(row + col), __ldg(row + col + 1), __ldg(row + col + 2),
                     __ldg(row + col + 3));
}

/// silu(gate) * up.
__device__ __forceinline__ float siluProduct(float gate, float up) {
  return gate / (1.0F + expf(-gate)) * up;
}

}  // namespace longhand::kernels::cuda
