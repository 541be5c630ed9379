#pragma once
// What int8_matvec_inl.h needs, with AVX-512 F, BW, DQ, VL and VNNI: vectors of 64 bytes, which
// are the codes of two NF4 blocks or of one int8 block. For one translation unit only: see
// cpu_kernels.h.

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "kernels/types.h"

namespace longhand::kernels {
namespace {

struct Int8MatvecSimd {
  static constexpr std::int64_t kChunkBlocks = 2;

  /// Weight rows that share the loads of the input, for kInt8MatvecRows at most.
  static constexpr int rowsFor(int /*nTokens*/) { return 2; }

  struct Codebook {
    __m512i bytes;  // 4 times the 16 bytes
  };
  static Codebook loadCodebook(const std::uint8_t* bytes) {
    return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)))};
  }

  /// The weight bytes of a chunk, from its high and its low nibbles.
  struct Weights {
    __m512i high;
    __m512i low;
  };
  static Weights loadWeights(const std::uint8_t* codes, const Codebook& codebook) {
    return lookUp(_mm512_loadu_si512(codes), codebook);
  }
  /// Of the chunk's first block only.
  static Weights loadFirstBlock(const std::uint8_t* codes, const Codebook& codebook) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
    return lookUp(_mm512_zextsi256_si512(half), codebook);
  }

  /// The scales of a chunk's blocks in the lanes of dot().
  static __m512 spread(const float* scales) {
    double pair = 0;
    __builtin_memcpy(&pair, scales, sizeof(pair));
    const __m512i index = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    return _mm512_permutexvar_ps(index, _mm512_castpd_ps(_mm512_castpd128_pd512(_mm_set_sd(pair))));
  }

  /// The weight bytes of an int8 block: code + 128.
  using Int8Weights = __m512i;
  static Int8Weights loadInt8Weights(const std::uint8_t* codes) {
    return _mm512_xor_si512(_mm512_loadu_si512(codes), _mm512_set1_epi8(-128));
  }

  /// A block's 64 numbers as bytes, which are one digit of integers.
  using Bytes = __m512i;

  /// The input as integers of one byte.
  struct OneByte {
    static constexpr int kDigits = 1;
    static constexpr std::int32_t kRadix = 1;
    static constexpr float kLargestNumber = 127.0F;

    static void round(const float* numbers, float inverseScale, Bytes (&digits)[kDigits]) {
      const __m512 factor = _mm512_set1_ps(inverseScale);
      __m512i bytes = _mm512_setzero_si512();
      for (int quarter = 0; quarter < 4; ++quarter) {
        const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(numbers + 16 * quarter), factor);
        const __m128i rounded = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(scaled));
        // The position is an immediate.
        if (quarter == 0) bytes = _mm512_inserti32x4(bytes, rounded, 0);
        if (quarter == 1) bytes = _mm512_inserti32x4(bytes, rounded, 1);
        if (quarter == 2) bytes = _mm512_inserti32x4(bytes, rounded, 2);
        if (quarter == 3) bytes = _mm512_inserti32x4(bytes, rounded, 3);
      }
      digits[0] = bytes;
    }
    /// The product of a chunk with `input`, its digits one after another. Lanes 0 to 7 add up to
    /// that of the first block, lanes 8 to 15 to that of the second.
    static __m512 dot(const Weights& weights, const std::int8_t* input) {
      return _mm512_cvtepi32_ps(addDot(_mm512_setzero_si512(), weights, input));
    }
    /// The product of an int8 block.
    static __m512 dotInt8(Int8Weights weights, const std::int8_t* input) {
      return _mm512_cvtepi32_ps(addDotInt8(_mm512_setzero_si512(), weights, input));
    }
  };

  /// Of two bytes.
  struct TwoBytes {
    static constexpr int kDigits = 2;
    static constexpr std::int32_t kRadix = 256;
    static constexpr float kLargestNumber = 32512.0F;

    static void round(const float* numbers, float inverseScale, Bytes (&digits)[kDigits]) {
      const __m512i first = roundShorts(numbers, inverseScale);
      const __m512i second = roundShorts(numbers + 32, inverseScale);
      const __m512i half = _mm512_set1_epi16(128);  // the low byte has a sign
      digits[0] = joinBytes(_mm512_srli_epi16(_mm512_add_epi16(first, half), 8),
                            _mm512_srli_epi16(_mm512_add_epi16(second, half), 8));
      digits[1] = joinBytes(first, second);
    }
    static __m512 dot(const Weights& weights, const std::int8_t* input) {
      const __m512i high = addDot(_mm512_setzero_si512(), weights, input);
      return _mm512_cvtepi32_ps(addDot(_mm512_slli_epi32(high, 8), weights, input + 128));
    }
    static __m512 dotInt8(Int8Weights weights, const std::int8_t* input) {
      const __m512i high = addDotInt8(_mm512_setzero_si512(), weights, input);
      return _mm512_cvtepi32_ps(addDotInt8(_mm512_slli_epi32(high, 8), weights, input + 64));
    }
  };

  /// One token is bound by memory, which leaves time for a second byte.
  template <int kTokens>
  using InputOf = std::conditional_t<kTokens == 1, TwoBytes, OneByte>;

  // The nested codebook's 256 floats, the lower and the upper 16 bits apart: permutations of
  // 16-bit numbers look up 32 codes in 4 steps, where a gather needs 32 loads.
  struct NestedCodebook {
    __m512i low[8];
    __m512i high[8];
  };
  static void loadNestedCodebook(const float* values, NestedCodebook& codebook) {
    for (int part = 0; part < 8; ++part) {
      const __m512i first = _mm512_loadu_si512(values + 32 * part);
      const __m512i second = _mm512_loadu_si512(values + 32 * part + 16);
      codebook.low[part] = joinShorts(first, second);
      codebook.high[part] = joinShorts(_mm512_srli_epi32(first, 16), _mm512_srli_epi32(second, 16));
    }
  }
  static constexpr std::int64_t kAbsmaxRun = 32;
  /// absmax of `count` (up to 32) blocks within one nested block; 32 floats are written.
  static void decodeAbsmax(const NestedCodebook& codebook, const std::uint8_t* codes,
                           std::int64_t count, float nestedAbsmax, float offset, float* absmax) {
    const __mmask32 valid = count >= 32 ? ~0U : (1U << count) - 1U;
    const __m512i natural = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(valid, codes));
    // Unpacking joins the 16-bit halves within 128-bit lanes; this makes the results come in order.
    const __m512i index =
        _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), natural);
    const __m512i low = lookUpNested(codebook.low, index);
    const __m512i high = lookUpNested(codebook.high, index);
    const __m512 scale = _mm512_set1_ps(nestedAbsmax);
    const __m512 offsets = _mm512_set1_ps(offset);
    const __m512 first = _mm512_castsi512_ps(_mm512_unpacklo_epi16(low, high));
    const __m512 second = _mm512_castsi512_ps(_mm512_unpackhi_epi16(low, high));
    _mm512_storeu_ps(absmax, _mm512_fmadd_ps(first, scale, offsets));
    _mm512_storeu_ps(absmax + 16, _mm512_fmadd_ps(second, scale, offsets));
  }

  /// Numbers 0, 2, ... to `even`, numbers 1, 3, ... to `odd`.
  static void storePairs(__m512i bytes, std::int8_t* even, std::int8_t* odd) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(even), _mm512_cvtepi16_epi8(bytes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(odd),
                        _mm512_cvtepi16_epi8(_mm512_srli_epi16(bytes, 8)));
  }
  static void store(__m512i bytes, std::int8_t* to) { _mm512_storeu_si512(to, bytes); }
  static std::int32_t sum(__m512i bytes) {
    const __m512i ones = _mm512_set1_epi8(1);
    return _mm512_reduce_add_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, bytes));
  }
  /// The largest magnitude of 64 numbers; NaN when one of them is NaN.
  static float largestMagnitude(const float* numbers) {
    __m512 largest = _mm512_setzero_ps();
    __mmask16 isNan = 0;
    for (int quarter = 0; quarter < 4; ++quarter) {
      const __m512 x = _mm512_loadu_ps(numbers + 16 * quarter);
      isNan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
      largest = _mm512_max_ps(largest, _mm512_abs_ps(x));
    }
    return isNan != 0 ? __builtin_nanf("") : _mm512_reduce_max_ps(largest);
  }

 private:
  static __m512i addDot(__m512i sum, const Weights& weights, const std::int8_t* input) {
    sum = _mm512_dpbusd_epi32(sum, weights.high, _mm512_loadu_si512(input));
    return _mm512_dpbusd_epi32(sum, weights.low, _mm512_loadu_si512(input + 64));
  }
  static __m512i addDotInt8(__m512i sum, Int8Weights weights, const std::int8_t* input) {
    return _mm512_dpbusd_epi32(sum, weights, _mm512_loadu_si512(input));
  }
  static __m512i roundShorts(const float* numbers, float inverseScale) {
    const __m512 factor = _mm512_set1_ps(inverseScale);
    const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(numbers), factor));
    const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(numbers + 16), factor));
    return joinShorts(first, second);
  }
  // The lower bytes of 64 16-bit numbers.
  static __m512i joinBytes(__m512i first, __m512i second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(first)),
                              _mm512_cvtepi16_epi8(second), 1);
  }
  static Weights lookUp(__m512i codes, const Codebook& codebook) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
    const __m512i low = _mm512_and_si512(codes, nibble);
    return {_mm512_shuffle_epi8(codebook.bytes, high), _mm512_shuffle_epi8(codebook.bytes, low)};
  }
  static __m512i joinShorts(__m512i first, __m512i second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(first)),
                              _mm512_cvtepi32_epi16(second), 1);
  }
  // A permutation of two vectors reads the lowest 6 bits; bits 6 and 7 choose among four.
  static __m512i lookUpNested(const __m512i* table, __m512i index) {
    const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
    const __mmask32 bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
    const __m512i lower =
        _mm512_mask_blend_epi16(bit6, _mm512_permutex2var_epi16(table[0], index, table[1]),
                                _mm512_permutex2var_epi16(table[2], index, table[3]));
    const __m512i upper =
        _mm512_mask_blend_epi16(bit6, _mm512_permutex2var_epi16(table[4], index, table[5]),
                                _mm512_permutex2var_epi16(table[6], index, table[7]));
    return _mm512_mask_blend_epi16(bit7, lower, upper);
  }
};

}  // namespace
}  // namespace longhand::kernels
