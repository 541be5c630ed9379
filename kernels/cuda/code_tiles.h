#pragma once
// Codes of KV pages as halves in registers, in an order that tensor tiles can use as it is.
//
// A word holds 32/nbits codes; code 4 * s + j stands in byte j at bit s * nbits
// (kernels/page_layout.h). Two codes that are 16 bits apart become two halves with one AND-OR: bits
// below those of 1024.0 count in ones, so (code << k | 1024.0) is 1024 + code * 2^k exactly, and
// one fused multiply-add takes the rest away. So the pairs of a word are (4s, 4s + 2) and (4s + 1,
// 4s + 3): the operand of the other side is stored in the same order, see tileOrder().

#include <cstdint>
#include <cstring>

#include "kernels/cuda/portability.h"

namespace longhand::kernels::cuda {

__device__ __forceinline__ __half2 halvesOf(unsigned bits) {
  __half2 halves;
  memcpy(static_cast<void*>(&halves), &bits, sizeof bits);
  return halves;
}
__device__ __forceinline__ unsigned bitsOf(__half2 halves) {
  unsigned bits;
  memcpy(&bits, &halves, sizeof bits);
  return bits;
}

/// Where number i (channel or token) stands in an array that is multiplied with codes.
__device__ __forceinline__ int tileOrder(int i) {
  return (i & ~3) | ((i & 1) << 1) | ((i >> 1) & 1);
}

/// pairs[2 * s] = codes (4s, 4s + 2), pairs[2 * s + 1] = codes (4s + 1, 4s + 3), as halves.
template <int kNbits>
__device__ __forceinline__ void codesToHalves(std::uint32_t word, unsigned (&pairs)[16 / kNbits]) {
  constexpr unsigned kMagic = 0x64006400U;  // 1024.0 twice
  if constexpr (kNbits == 8) {
    const __half2 magic = halvesOf(kMagic);
    pairs[0] = bitsOf(__hsub2(halvesOf(__byte_perm(word, kMagic, 0x5250)), magic));
    pairs[1] = bitsOf(__hsub2(halvesOf(__byte_perm(word, kMagic, 0x5351)), magic));
  } else {
    constexpr unsigned kMask = (1U << kNbits) - 1U;
    const std::uint32_t shifted = word >> 8U;
#pragma unroll
    for (int s = 0; s < 8 / kNbits; ++s) {
      const unsigned mask = (kMask | kMask << 16U) << (s * kNbits);
      const float unit = 1.0F / static_cast<float>(1 << (s * kNbits));
      const __half2 factor = __float2half2_rn(unit);
      const __half2 offset = __float2half2_rn(-1024.0F * unit);
      pairs[2 * s] = bitsOf(__hfma2(halvesOf((word & mask) | kMagic), factor, offset));
      pairs[2 * s + 1] = bitsOf(__hfma2(halvesOf((shifted & mask) | kMagic), factor, offset));
    }
  }
}

/// x as two halves whose sum is within 2^-22 of it, for |x| < 65504 and not tiny.
struct SplitHalf {
  __half high;
  __half low;
};
__device__ __forceinline__ SplitHalf splitHalf(float x) {
  const __half high = __float2half_rn(x);
  return {high, __float2half_rn(x - __half2float(high))};
}

}  // namespace longhand::kernels::cuda
