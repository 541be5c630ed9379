#pragma once
// Codes of KV pages and what they are multiplied with, as operands of tensor tiles of bytes.
//
// A word holds 32/nbits codes; code 4 * s + j stands in byte j at bit s * nbits
// (kernels/page_layout.h). So a shift and a mask make four neighbouring codes the four bytes that a
// lane passes to multiplyByteTile: a "chunk". 8 bits need neither.
//
// The other side is a float times a power of two, rounded to an integer of 32 bits, whose four
// bytes ("digits", -128 to 127) are columns of the product. Sums of bytes are exact, so all that is
// lost is that integer's rounding: 2^-30 of the largest number of the same page.

#include <cstdint>

#include "kernels/cuda/warp/half_pairs.cuh"
#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/warp.cuh"

namespace longhand::kernels::cuda {

/// Chunks of a word of codes.
template <int kNbits>
inline constexpr int kChunksPerWord = 8 / kNbits;

/// chunks[s] = codes 4s, ..., 4s + 3 of a word as bytes.
template <int kNbits>
__device__ __forceinline__ void codesToBytes(std::uint32_t word,
                                             unsigned (&chunks)[kChunksPerWord<kNbits>]) {
  constexpr unsigned kMask = kNbits == 8 ? 0xffffffffU : 0x01010101U * ((1U << kNbits) - 1U);
#pragma unroll
  for (int s = 0; s < kChunksPerWord<kNbits>; ++s) chunks[s] = word >> (s * kNbits) & kMask;
}

/// Where a chunk stands in a row that is multiplied with words of codes: lane q of four multiplies
/// words q, q + 4, ..., whose chunks lie side by side, from laneChunks * q on.
template <int kNbits>
__device__ __forceinline__ int chunkPlace(int chunk, int laneChunks) {
  constexpr int kChunks = kChunksPerWord<kNbits>;
  const int word = chunk / kChunks;
  return word % 4 * laneChunks + word / 4 * kChunks + chunk % kChunks;
}

/// A power of two that takes numbers of up to some size to integers of 32 bits, and its inverse.
struct FixedPoint {
  float unit;
  float factor;
};

/// For magnitudes of up to `top`: they become less than 2^30.
__device__ __forceinline__ FixedPoint fixedPointFor(float top) {
  constexpr unsigned kMantissaBits = 23;
  constexpr unsigned kBias = 127;
  constexpr unsigned kBits = 29;  // top becomes 2^29 to 2^30
  constexpr unsigned kLeast = kBits + 1;
  const unsigned biased = __float_as_uint(top) >> kMantissaBits;
  const unsigned exponent = biased > kLeast ? biased : kLeast;
  return {__uint_as_float((2 * kBias + kBits - exponent) << kMantissaBits),
          __uint_as_float((exponent - kBits) << kMantissaBits)};
}

/// digits[d] = digit d of four numbers that belong to one chunk, lowest first.
__device__ __forceinline__ void numbersToDigits(const float (&numbers)[4], float unit,
                                                unsigned (&digits)[4]) {
  constexpr unsigned kMiddles = 0x00808080U;
  unsigned x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = (static_cast<unsigned>(__float2int_rn(numbers[i] * unit)) + kMiddles) ^ kMiddles;
  }
  const unsigned low01 = __byte_perm(x[0], x[1], 0x5140);
  const unsigned low23 = __byte_perm(x[2], x[3], 0x5140);
  const unsigned high01 = __byte_perm(x[0], x[1], 0x7362);
  const unsigned high23 = __byte_perm(x[2], x[3], 0x7362);
  digits[0] = __byte_perm(low01, low23, 0x5410);
  digits[1] = __byte_perm(low01, low23, 0x7632);
  digits[2] = __byte_perm(high01, high23, 0x5410);
  digits[3] = __byte_perm(high01, high23, 0x7632);
}

/// What the third and fourth digit count more than the first and second.
inline constexpr float kUpperDigits = 65536.0F;

/// Sums of two neighbouring digits as one integer: it fits up to 256 codes of 8 bits.
__device__ __forceinline__ int joinDigits(int lower, int upper) { return lower + 256 * upper; }

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
