#pragma once
// Vectors of eight floats with AVX2, FMA and F16C. For one translation unit only: see
// cpu_kernels.h. Members mean what they mean in simd_portable.h.

#include <immintrin.h>

#include <cstdint>

namespace longhand::kernels {
namespace {

struct Simd {
  using Float = __m256;
  using Words = __m256i;

  static constexpr std::int64_t kLanes = 8;
  static constexpr int kTileTokens = 3;  // 3 x 4 sums and 4 weights fill 16 registers

  static Float zero() { return _mm256_setzero_ps(); }
  static Float broadcast(float x) { return _mm256_set1_ps(x); }
  static Float load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Float v) { _mm256_storeu_ps(p, v); }
  static Float multiplyAdd(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float subtract(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float divide(Float a, Float b) { return _mm256_div_ps(a, b); }
  // min and max give their second operand when one is NaN.
  static Float clamp(Float x, Float low, Float high) {
    return _mm256_min_ps(high, _mm256_max_ps(low, x));
  }
  static float sum(Float v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static void sum4(Float a, Float b, Float c, Float d, float* sums) {
    const Float pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
  }
  static Float scaleByPowerOf2(Float x, Float n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }

  static Float loadHalf(const std::uint16_t* p) { return _mm256_cvtph_ps(loadShorts(p)); }
  static Float loadBfloat(const std::uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(loadShorts(p)), 16));
  }

  struct Codebook {
    Float low;   // of codes 0 to 7
    Float high;  // of codes 8 to 15
  };
  static Codebook loadCodebook(const float* values) { return {load(values), load(values + 8)}; }
  static Words loadWords(const std::uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Words shiftRight4(Words v) { return _mm256_srli_epi32(v, 4); }
  // A permutation reads the lowest 3 bits of each index; the blend chooses by the highest bit of
  // its mask, where bit 3 is moved to.
  static Float lookUp(Codebook codebook, Words words) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(codebook.low, words),
                            _mm256_permutevar8x32_ps(codebook.high, words),
                            _mm256_castsi256_ps(_mm256_slli_epi32(words, 28)));
  }
  static Float lookUpInOrder(Codebook codebook, const std::uint8_t* p) {
    int word = 0;
    __builtin_memcpy(&word, p, sizeof(word));
    const __m256i highNibbleFirst = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
    return lookUp(codebook, _mm256_srlv_epi32(_mm256_set1_epi32(word), highNibbleFirst));
  }
  static Float chunkScales(const float* absmax, std::int64_t chunk) {
    return broadcast(absmax[chunk]);
  }

 private:
  static __m128i loadShorts(const std::uint16_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
};

}  // namespace
}  // namespace longhand::kernels
