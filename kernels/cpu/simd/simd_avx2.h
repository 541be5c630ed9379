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
  static constexpr int kMaxAccumulators = 8;
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmColumns = 2;

  // --- Memory -----------------------------------------------------------------------------------

  static Float load(const float* p) { return _mm256_loadu_ps(p); }
  static Float loadPartial(const float* p, std::int64_t n) {
    return _mm256_maskload_ps(p, laneMask(n));
  }
  static void store(float* p, Float v) { _mm256_storeu_ps(p, v); }
  static Float loadHalf(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Float loadHalfPartial(const std::uint16_t* p, std::int64_t n) {
    std::uint16_t buffer[kLanes] = {};
    for (std::int64_t i = 0; i < n; ++i) buffer[i] = p[i];
    return loadHalf(buffer);
  }
  static void storeHalf(std::uint16_t* p, Float v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static Float loadBfloat(const std::uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(loadShorts(p)), 16));
  }
  static Words loadWords(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static Words loadWordsPartial(const void* p, std::int64_t n) {
    return _mm256_maskload_epi32(static_cast<const int*>(p), laneMask(n));
  }
  static void storeBytes(std::uint8_t* p, Float v) {
    const __m256i words = _mm256_cvtps_epi32(v);
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(halves, halves));
  }

  // --- Arithmetic -------------------------------------------------------------------------------

  static Float zero() { return _mm256_setzero_ps(); }
  static Float broadcast(float x) { return _mm256_set1_ps(x); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float subtract(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float divide(Float a, Float b) { return _mm256_div_ps(a, b); }
  static Float multiplyAdd(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static Float min(Float a, Float b) { return _mm256_min_ps(a, b); }
  static Float abs(Float a) { return _mm256_andnot_ps(broadcast(-0.0F), a); }
  static Float round(Float a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Float scaleByPowerOf2(Float x, Float n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  static Words maskBits(Words v, std::uint32_t mask) {
    return _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(mask)));
  }
  template <int kShift>
  static Words shiftRight(Words v) {
    return _mm256_srli_epi32(v, kShift);
  }
  static Float toFloat(Words v) { return _mm256_cvtepi32_ps(v); }

  // --- Choices ----------------------------------------------------------------------------------

  static Float selectPositive(Float condition, Float a, Float b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(condition, zero(), _CMP_GT_OQ));
  }
  static Float keepFirst(Float v, std::int64_t n, float other) {
    return _mm256_blendv_ps(broadcast(other), v, _mm256_castsi256_ps(laneMask(n)));
  }
  static Float keepVisible(Float v, const std::int32_t* counts, std::int32_t index) {
    const __m256i isVisible = _mm256_cmpgt_epi32(loadWords(counts), _mm256_set1_epi32(index));
    return _mm256_blendv_ps(broadcast(-__builtin_huge_valf()), v, _mm256_castsi256_ps(isVisible));
  }

  // --- Across lanes -----------------------------------------------------------------------------

  static float sum(Float v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static void sum4(Float a, Float b, Float c, Float d, float* sums) {
    const Float pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
  }
  static float largest(Float v) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }
  static float smallest(Float v) {
    __m128 half = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_min_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_min_ss(half, _mm_movehdup_ps(half)));
  }

  // --- NF4 --------------------------------------------------------------------------------------

  struct Codebook {
    Float low;   // of codes 0 to 7
    Float high;  // of codes 8 to 15
  };
  static Codebook loadCodebook(const float* values) { return {load(values), load(values + 8)}; }
  using Codes = Words;
  static Codes loadCodes(const std::uint8_t* p) { return loadWords(p); }
  static Codes nextCodes(Codes codes) { return shiftRight<4>(codes); }
  // A permutation reads the lowest 3 bits of each index; the blend chooses by the highest bit of
  // its mask, where bit 3 is moved to.
  static Float lookUp(Codebook codebook, Codes codes) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(codebook.low, codes),
                            _mm256_permutevar8x32_ps(codebook.high, codes),
                            _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
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
  static __m256i laneMask(std::int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace
}  // namespace longhand::kernels
