#pragma once
// Integer dot products with AVX2 and, where the compiler may use it, AVX-VNNI, for
// int8_tile_inl.h. Included after simd_<set>.h in one translation unit only: see cpu_kernels.h.
// Members mean what they mean in int8_tile_simd_avx512.h.

#include <immintrin.h>

#include <cstdint>

namespace longhand::kernels {
namespace {

struct Int8Simd {
  using Float = Simd::Float;
  using Words = Simd::Words;
  using Sums = std::int32_t __attribute__((vector_size(32)));

  static constexpr std::int64_t kLanes = Simd::kLanes;
  static constexpr int kRowVectors = 2;
#ifdef __AVXVNNI__
  // 5 x 2 integer sums, 2 weights and an input take 13 of 16 registers; 10 sums keep two units busy
  // that take 5 cycles each (Intel).
  static constexpr int kTokens = 5;
#else
  static constexpr int kTokens = 4;  // each weight takes two registers
#endif
  static constexpr bool kHasRoomForSums = false;

  static Float loadFirst(const float* p, std::int64_t count) {
    return _mm256_maskload_ps(p, firstLanes(count));
  }
  static void storeFirst(float* p, Float v, std::int64_t count) {
    _mm256_maskstore_ps(p, firstLanes(count), v);
  }

  static void storeWords(void* p, Words v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
  static Words broadcastWord(std::int32_t word) { return _mm256_set1_epi32(word); }
  static Sums broadcastSum(std::int32_t sum) { return toSums(_mm256_set1_epi32(sum)); }
  static Float toFloat(Sums v) { return _mm256_cvtepi32_ps(toWords(v)); }
#ifdef __AVXVNNI__
  using Weights = Words;
  static constexpr std::int32_t kBias = 128;
  static Weights loadWeights(const std::uint8_t* p) { return Simd::loadWords(p); }
  static Sums dot(Sums sums, Weights weights, Words input) {
    return toSums(_mm256_dpbusd_avx_epi32(toWords(sums), weights, input));
  }
#else
  // maddubs adds pairs of products up in 16 bits. The weight gives its magnitude (at most 128) and
  // hands its sign to the input (at most 127), so that a pair is at most 2 * 128 * 127 = 32,512.
  struct Weights {
    Words bytes;
    Words magnitudes;
  };
  static constexpr std::int32_t kBias = 0;
  static Weights loadWeights(const std::uint8_t* p) {
    const Words bytes = toUnsigned(Simd::loadWords(p));  // its own inverse
    return {bytes, _mm256_abs_epi8(bytes)};
  }
  static Sums dot(Sums sums, const Weights& weights, Words input) {
    return addPairs(
        sums, _mm256_maddubs_epi16(weights.magnitudes, _mm256_sign_epi8(input, weights.bytes)));
  }
#endif

  static Words loadTable(const std::uint8_t* p) {
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(p))));
  }
  static Words lookUpLow(Words table, Words codes) {
    return _mm256_shuffle_epi8(table, _mm256_and_si256(codes, _mm256_set1_epi8(15)));
  }
  static Words lookUpHigh(Words table, Words codes) {
    return lookUpLow(table, _mm256_srli_epi32(codes, 4));
  }

  static void separate(Words first, Words second, Words& even, Words& odd) {
    const Words evenFirst = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
    const Words a = _mm256_shuffle_epi8(first, evenFirst);
    const Words b = _mm256_shuffle_epi8(second, evenFirst);
    even = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
    odd = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
  }
  static Words toUnsigned(Words signedBytes) {
    return _mm256_xor_si256(signedBytes, _mm256_set1_epi8(-128));
  }

  static void loadTransposed(const std::uint8_t* const* rows, Words (&words)[8]) {
    const auto fourRows = [rows](int first, Words(&columns)[4]) {
      const Words low01 =
          _mm256_unpacklo_epi32(Simd::loadWords(rows[first]), Simd::loadWords(rows[first + 1]));
      const Words high01 =
          _mm256_unpackhi_epi32(Simd::loadWords(rows[first]), Simd::loadWords(rows[first + 1]));
      const Words low23 =
          _mm256_unpacklo_epi32(Simd::loadWords(rows[first + 2]), Simd::loadWords(rows[first + 3]));
      const Words high23 =
          _mm256_unpackhi_epi32(Simd::loadWords(rows[first + 2]), Simd::loadWords(rows[first + 3]));
      columns[0] = _mm256_unpacklo_epi64(low01, low23);
      columns[1] = _mm256_unpackhi_epi64(low01, low23);
      columns[2] = _mm256_unpacklo_epi64(high01, high23);
      columns[3] = _mm256_unpackhi_epi64(high01, high23);
    };
    Words firstRows[4];
    Words lastRows[4];
    fourRows(0, firstRows);
    fourRows(4, lastRows);
    for (int i = 0; i < 4; ++i) {
      words[i] = _mm256_permute2x128_si256(firstRows[i], lastRows[i], 0x20);
      words[4 + i] = _mm256_permute2x128_si256(firstRows[i], lastRows[i], 0x31);
    }
  }

  static std::int32_t quantize(const float* numbers, float inverseScale, std::int8_t* bytes) {
    const Float inverse = Simd::broadcast(inverseScale);
    const auto eight = [&](int i) {
      return _mm256_cvtps_epi32(Simd::multiply(Simd::load(numbers + 8 * i), inverse));
    };
    const Words evenFirst = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    Sums sums = broadcastSum(0);
    for (int half = 0; half < 2; ++half) {
      const Words shorts01 = _mm256_packs_epi32(eight(4 * half), eight(4 * half + 1));
      const Words shorts23 = _mm256_packs_epi32(eight(4 * half + 2), eight(4 * half + 3));
      // The packs work within halves: put the fours 0 2 4 6, 1 3 5 7 in order.
      const Words inOrder = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(shorts01, shorts23),
                                                        _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
      storeWords(bytes + 32 * half, _mm256_shuffle_epi8(inOrder, evenFirst));
      sums = addPairs(sums, _mm256_maddubs_epi16(_mm256_set1_epi8(1), inOrder));
    }
    std::int32_t total = 0;
    for (int lane = 0; lane < kLanes; ++lane) total += sums[lane];
    return total;
  }

  static float largestMagnitude(const float* numbers) {
    Words largest = _mm256_setzero_si256();
    for (int i = 0; i < 8; ++i) {
      largest = _mm256_max_epu32(largest, _mm256_and_si256(Simd::loadWords(numbers + 8 * i),
                                                           _mm256_set1_epi32(0x7fffffff)));
    }
    __m128i four =
        _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(four));
  }

 private:
  /// sums + the sum of each lane's two 16-bit numbers.
  static Sums addPairs(Sums sums, Words shorts) {
    return toSums(_mm256_add_epi32(toWords(sums), _mm256_madd_epi16(shorts, _mm256_set1_epi16(1))));
  }
  static Sums toSums(Words v) { return reinterpret_cast<Sums>(v); }
  static Words toWords(Sums v) { return reinterpret_cast<Words>(v); }
  static __m256i firstLanes(std::int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace
}  // namespace longhand::kernels
