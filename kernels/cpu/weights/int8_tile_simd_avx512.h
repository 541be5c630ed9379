#pragma once
// Integer dot products with AVX-512 VNNI, for int8_tile_inl.h. Included after simd_<set>.h in one
// translation unit only: see cpu_kernels.h.

#include <immintrin.h>

#include <cstdint>

namespace longhand::kernels {
namespace {

struct Int8Simd {
  using Float = Simd::Float;
  using Words = Simd::Words;
  // Sums of 32 bits. Not __m512i, which GCC 12 takes for 64-bit numbers: it then copies each sum to
  // the stack after each step.
  using Sums = std::int32_t __attribute__((vector_size(64)));

  static constexpr std::int64_t kLanes = Simd::kLanes;
  // 3 x 4 integer sums, 3 x 4 float sums, 4 weights and an input take 29 of 32 registers. With 6
  // tokens the float sums lie in memory: 8 % slower.
  static constexpr int kRowVectors = 4;
  static constexpr int kTokens = 3;
  static constexpr bool kHasRoomForSums = true;

  /// The first `count` lanes, 0 to kLanes; the others are 0.
  static Float loadFirst(const float* p, std::int64_t count) {
    return _mm512_maskz_loadu_ps(firstLanes(count), p);
  }
  static void storeFirst(float* p, Float v, std::int64_t count) {
    _mm512_mask_storeu_ps(p, firstLanes(count), v);
  }

  static void storeWords(void* p, Words v) { _mm512_storeu_si512(p, v); }
  static Words broadcastWord(std::int32_t word) { return _mm512_set1_epi32(word); }
  static Sums broadcastSum(std::int32_t sum) { return toSums(_mm512_set1_epi32(sum)); }
  static Float toFloat(Sums v) { return _mm512_cvtepi32_ps(toWords(v)); }
  /// Weight bytes as dot() takes them: kBias more than the weight.
  using Weights = Words;
  static constexpr std::int32_t kBias = 128;
  static Weights loadWeights(const std::uint8_t* p) { return Simd::loadWords(p); }
  /// sums + for each lane the dot product of 4 weights with 4 signed bytes.
  static Sums dot(Sums sums, Weights weights, Words input) {
    return toSums(_mm512_dpbusd_epi32(toWords(sums), weights, input));
  }

  /// Sixteen bytes, to look up by lookUp().
  static Words loadTable(const std::uint8_t* p) {
    return _mm512_broadcast_i32x4(
        _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(p))));
  }
  static Words lookUpLow(Words table, Words codes) {
    return _mm512_shuffle_epi8(table, _mm512_and_si512(codes, _mm512_set1_epi8(15)));
  }
  static Words lookUpHigh(Words table, Words codes) {
    return lookUpLow(table, _mm512_srli_epi32(codes, 4));
  }

  /// For each lane, the bytes 0 and 2 of `first` and `second`, and the bytes 1 and 3.
  static void separate(Words first, Words second, Words& even, Words& odd) {
    const Words evenFirst =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
    const Words a = _mm512_shuffle_epi8(first, evenFirst);
    const Words b = _mm512_shuffle_epi8(second, evenFirst);
    even = _mm512_mask_blend_epi16(0xaaaaaaaaU, a, _mm512_slli_epi32(b, 16));
    odd = _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(a, 16), b);
  }
  /// 128 + each signed byte.
  static Words toUnsigned(Words signedBytes) {
    return _mm512_xor_si512(signedBytes, _mm512_set1_epi8(-128));
  }

  /// words[w] = 32-bit word w of each of 16 rows, in the order of the rows.
  static void loadTransposed(const std::uint8_t* const* rows, Words (&words)[8]) {
    // Quarter q of a vector holds 4 words of one row; rows 4 and 12 lie beside rows 0 and 8.
    const auto fourRows = [rows](int first, Words(&columns)[4]) {
      Words v[4];
      for (int i = 0; i < 4; ++i) v[i] = loadPair(rows[first + i], rows[first + 4 + i]);
      const Words low01 = _mm512_unpacklo_epi32(v[0], v[1]);
      const Words high01 = _mm512_unpackhi_epi32(v[0], v[1]);
      const Words low23 = _mm512_unpacklo_epi32(v[2], v[3]);
      const Words high23 = _mm512_unpackhi_epi32(v[2], v[3]);
      columns[0] = _mm512_unpacklo_epi64(low01, low23);
      columns[1] = _mm512_unpackhi_epi64(low01, low23);
      columns[2] = _mm512_unpacklo_epi64(high01, high23);
      columns[3] = _mm512_unpackhi_epi64(high01, high23);
    };
    Words firstRows[4];
    Words lastRows[4];
    fourRows(0, firstRows);
    fourRows(8, lastRows);
    for (int i = 0; i < 4; ++i) {
      words[i] = _mm512_shuffle_i64x2(firstRows[i], lastRows[i], 0x88);
      words[4 + i] = _mm512_shuffle_i64x2(firstRows[i], lastRows[i], 0xdd);
    }
  }

  /// 64 numbers as bytes in the order of int8_kernels.h; returns the sum of the bytes.
  static std::int32_t quantize(const float* numbers, float inverseScale, std::int8_t* bytes) {
    const Float inverse = Simd::broadcast(inverseScale);
    const auto sixteen = [&](int i) {
      return _mm512_cvtsepi32_epi8(
          _mm512_cvtps_epi32(Simd::multiply(Simd::load(numbers + 16 * i), inverse)));
    };
    const __m256i first =
        _mm256_inserti128_si256(_mm256_castsi128_si256(sixteen(0)), sixteen(1), 1);
    const __m256i last = _mm256_inserti128_si256(_mm256_castsi128_si256(sixteen(2)), sixteen(3), 1);
    const Words inOrder = _mm512_inserti64x4(_mm512_castsi256_si512(first), last, 1);
    const Words evenFirst =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    storeWords(bytes, _mm512_shuffle_epi8(inOrder, evenFirst));
    return _mm512_reduce_add_epi32(
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), inOrder));
  }

  /// The largest magnitude of 64 numbers; a NaN counts as larger than infinity.
  static float largestMagnitude(const float* numbers) {
    const auto magnitudes = [numbers](int i) {
      return _mm512_and_si512(Simd::loadWords(numbers + 16 * i), _mm512_set1_epi32(0x7fffffff));
    };
    const Words largest = _mm512_max_epu32(_mm512_max_epu32(magnitudes(0), magnitudes(1)),
                                           _mm512_max_epu32(magnitudes(2), magnitudes(3)));
    const std::uint32_t bits = _mm512_reduce_max_epu32(largest);
    float result = 0;
    __builtin_memcpy(&result, &bits, sizeof(result));
    return result;
  }

 private:
  static Sums toSums(Words v) { return reinterpret_cast<Sums>(v); }
  static Words toWords(Sums v) { return reinterpret_cast<Words>(v); }
  static __mmask16 firstLanes(std::int64_t count) {
    return static_cast<__mmask16>((1U << static_cast<unsigned>(count)) - 1U);
  }
  static Words loadPair(const std::uint8_t* low, const std::uint8_t* high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(loadHalf(low)), loadHalf(high), 1);
  }
  static __m256i loadHalf(const std::uint8_t* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(static_cast<const void*>(p)));
  }
};

}  // namespace
}  // namespace longhand::kernels
