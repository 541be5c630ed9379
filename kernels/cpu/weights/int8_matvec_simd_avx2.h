#pragma once
// What int8_matvec_inl.h needs, with AVX2 and, where the compiler may use it, AVX-VNNI: vectors of
// 32 bytes, which are the codes of one NF4 block or half of an int8 block. For one translation unit
// only: see cpu_kernels.h. Members mean what they mean in int8_matvec_simd_avx512_vnni.h.

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "kernels/types.h"

namespace longhand::kernels {
namespace {

struct Int8MatvecSimd {
  static constexpr std::int64_t kChunkBlocks = 1;
  /// 16 registers: more sums than 6 would leave too few for the rest.
  static constexpr int rowsFor(int nTokens) { return nTokens == 2 || nTokens == 3 ? 2 : 1; }

  struct Codebook {
    __m256i bytes;  // twice the 16 bytes
  };
  static Codebook loadCodebook(const std::uint8_t* bytes) {
    return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)))};
  }

  struct Weights {
    __m256i high;
    __m256i low;
  };
  static Weights loadWeights(const std::uint8_t* codes, const Codebook& codebook) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i pairs = loadBytes(codes);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), nibble);
    const __m256i low = _mm256_and_si256(pairs, nibble);
    return {_mm256_shuffle_epi8(codebook.bytes, high), _mm256_shuffle_epi8(codebook.bytes, low)};
  }
  static Weights loadFirstBlock(const std::uint8_t* codes, const Codebook& codebook) {
    return loadWeights(codes, codebook);
  }
  static __m256 spread(const float* scales) { return _mm256_broadcast_ss(scales); }

  using Int8Weights = Weights;  // of the block's first and second half
  static Int8Weights loadInt8Weights(const std::uint8_t* codes) {
    const __m256i flip = _mm256_set1_epi8(-128);
    return {_mm256_xor_si256(loadBytes(codes), flip),
            _mm256_xor_si256(loadBytes(codes + 32), flip)};
  }

  struct Bytes {
    __m256i first;  // numbers 0 to 31
    __m256i second;
  };

#ifdef __AVXVNNI__
  struct OneByte {
    static constexpr int kDigits = 1;
    static constexpr std::int32_t kRadix = 1;
    static constexpr float kLargestNumber = 127.0F;

    static void round(const float* numbers, float inverseScale, Bytes (&digits)[kDigits]) {
      digits[0] = {joinBytes(roundShorts(numbers, inverseScale)),
                   joinBytes(roundShorts(numbers + 32, inverseScale))};
    }
    static __m256 dot(const Weights& weights, const std::int8_t* input) {
      return _mm256_cvtepi32_ps(addDot(_mm256_setzero_si256(), weights, input));
    }
    static __m256 dotInt8(const Int8Weights& weights, const std::int8_t* input) {
      return dot(weights, input);
    }
  };
  struct TwoBytes {
    static constexpr int kDigits = 2;
    static constexpr std::int32_t kRadix = 256;
    static constexpr float kLargestNumber = 32512.0F;

    static void round(const float* numbers, float inverseScale, Bytes (&digits)[kDigits]) {
      split<8>(roundShorts(numbers, inverseScale), digits[0].first, digits[1].first);
      split<8>(roundShorts(numbers + 32, inverseScale), digits[0].second, digits[1].second);
    }
    static __m256 dot(const Weights& weights, const std::int8_t* input) {
      const __m256i high = addDot(_mm256_setzero_si256(), weights, input);
      return _mm256_cvtepi32_ps(addDot(_mm256_slli_epi32(high, 8), weights, input + 64));
    }
    static __m256 dotInt8(const Int8Weights& weights, const std::int8_t* input) {
      return dot(weights, input);
    }
  };
  template <int kTokens>
  using InputOf = std::conditional_t<kTokens == 1, TwoBytes, OneByte>;
#else
  // maddubs multiplies unsigned with signed bytes and adds pairs up in 16 bits. Digits of at most
  // 32 leave room for the sum of two pairs: 4 * 255 * 32 = 32,640.
  struct TwoDigits {
    static constexpr int kDigits = 2;
    static constexpr std::int32_t kRadix = 64;
    static constexpr float kLargestNumber = 2048.0F;

    static void round(const float* numbers, float inverseScale, Bytes (&digits)[kDigits]) {
      split<6>(roundShorts(numbers, inverseScale), digits[0].first, digits[1].first);
      split<6>(roundShorts(numbers + 32, inverseScale), digits[0].second, digits[1].second);
    }
    static __m256 dot(const Weights& weights, const std::int8_t* input) {
      const __m256i high = _mm256_madd_epi16(dotShorts(weights, input), _mm256_set1_epi16(kRadix));
      const __m256i low = _mm256_madd_epi16(dotShorts(weights, input + 64), _mm256_set1_epi16(1));
      return _mm256_cvtepi32_ps(_mm256_add_epi32(high, low));
    }
    static __m256 dotInt8(const Int8Weights& weights, const std::int8_t* input) {
      return dot(weights, input);
    }
  };
  template <int kTokens>
  using InputOf = TwoDigits;
#endif

  struct NestedCodebook {
    const float* values;  // [256]
  };
  static void loadNestedCodebook(const float* values, NestedCodebook& codebook) {
    codebook.values = values;
  }
  static constexpr std::int64_t kAbsmaxRun = 8;
  static void decodeAbsmax(const NestedCodebook& codebook, const std::uint8_t* codes,
                           std::int64_t count, float nestedAbsmax, float offset, float* absmax) {
    const float* const v = codebook.values;
    __m256 numbers;
    if (count >= kAbsmaxRun) {  // put together in registers: small stores cannot feed a wide load
      numbers = _mm256_setr_ps(v[codes[0]], v[codes[1]], v[codes[2]], v[codes[3]], v[codes[4]],
                               v[codes[5]], v[codes[6]], v[codes[7]]);
    } else {
      float buffer[kAbsmaxRun] = {};
      for (std::int64_t i = 0; i < count; ++i) buffer[i] = v[codes[i]];
      numbers = _mm256_loadu_ps(buffer);
    }
    _mm256_storeu_ps(
        absmax, _mm256_fmadd_ps(numbers, _mm256_set1_ps(nestedAbsmax), _mm256_set1_ps(offset)));
  }

  static void storePairs(const Bytes& bytes, std::int8_t* even, std::int8_t* odd) {
    const __m256i lowByte = _mm256_set1_epi16(255);
    storeBytes(even, packShorts(_mm256_and_si256(bytes.first, lowByte),
                                _mm256_and_si256(bytes.second, lowByte)));
    storeBytes(odd,
               packShorts(_mm256_srli_epi16(bytes.first, 8), _mm256_srli_epi16(bytes.second, 8)));
  }
  static void store(const Bytes& bytes, std::int8_t* to) {
    storeBytes(to, bytes.first);
    storeBytes(to + 32, bytes.second);
  }
  static std::int32_t sum(const Bytes& bytes) {
    const __m256i ones = _mm256_set1_epi8(1);
    const __m256i sums =
        _mm256_madd_epi16(dotShorts({ones, ones}, bytes.first, bytes.second), _mm256_set1_epi16(1));
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
  }
  static float largestMagnitude(const float* numbers) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    __m256 largest = _mm256_setzero_ps();
    __m256 isNan = _mm256_setzero_ps();
    for (int i = 0; i < 64; i += 8) {
      const __m256 x = _mm256_loadu_ps(numbers + i);
      isNan = _mm256_or_ps(isNan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
      largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, x));
    }
    if (_mm256_movemask_ps(isNan) != 0) return __builtin_nanf("");
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }

 private:
  static __m256i loadBytes(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static void storeBytes(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
#ifdef __AVXVNNI__
  static __m256i addDot(__m256i sum, const Weights& weights, const std::int8_t* input) {
    sum = _mm256_dpbusd_avx_epi32(sum, weights.high, loadBytes(input));
    return _mm256_dpbusd_avx_epi32(sum, weights.low, loadBytes(input + 32));
  }
#endif
  static __m256i dotShorts(const Weights& weights, const std::int8_t* input) {
    return dotShorts(weights, loadBytes(input), loadBytes(input + 32));
  }
  static __m256i dotShorts(const Weights& weights, __m256i first, __m256i second) {
    return _mm256_add_epi16(_mm256_maddubs_epi16(weights.high, first),
                            _mm256_maddubs_epi16(weights.low, second));
  }
  // Puts the parts back in order.
  static __m256i packShorts(__m256i first, __m256i second) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xd8);
  }
  // Packing works within 128-bit lanes: numbers 0 to 3, 8 to 11, 4 to 7, 12 to 15, and so on.
  struct Shorts {
    __m256i first;
    __m256i second;
  };
  static Shorts roundShorts(const float* numbers, float factor) {  // 32 of them
    const auto eight = [&](int i) {
      return _mm256_cvtps_epi32(
          _mm256_mul_ps(_mm256_loadu_ps(numbers + 8 * i), _mm256_set1_ps(factor)));
    };
    return {_mm256_packs_epi32(eight(0), eight(1)), _mm256_packs_epi32(eight(2), eight(3))};
  }
  static __m256i joinBytes(const Shorts& shorts) {
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(shorts.first, shorts.second),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  // shorts = 2^kBits * high + low, where low has a sign.
  template <int kBits>
  static void split(const Shorts& shorts, __m256i& high, __m256i& low) {
    const __m256i half = _mm256_set1_epi16(1 << (kBits - 1));
    const auto highOf = [&](__m256i v) {
      return _mm256_srai_epi16(_mm256_add_epi16(v, half), kBits);
    };
    const auto lowOf = [&](__m256i v) {
      return _mm256_sub_epi16(v, _mm256_slli_epi16(highOf(v), kBits));
    };
    high = joinBytes({highOf(shorts.first), highOf(shorts.second)});
    low = joinBytes({lowOf(shorts.first), lowOf(shorts.second)});
  }
};

}  // namespace
}  // namespace longhand::kernels
