#pragma once
// Vectors of sixteen floats with AVX-512 F, BW, DQ and VL. For one translation unit only: see
// cpu_kernels.h. Members mean what they mean in simd_portable.h.

#include <immintrin.h>

#include <cstdint>

namespace longhand::kernels {
namespace {

struct Simd {
  using Float = __m512;
  using Words = __m512i;

  static constexpr std::int64_t kLanes = 16;
  static constexpr int kTileTokens = 6;  // 6 x 4 sums and 4 weights of 32 registers
  static constexpr int kMaxAccumulators = 16;
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmColumns = 4;

  // --- Memory -----------------------------------------------------------------------------------

  static Float load(const float* p) { return _mm512_loadu_ps(p); }
  static Float loadPartial(const float* p, std::int64_t n) {
    return _mm512_maskz_loadu_ps(laneMask(n), p);
  }
  static void store(float* p, Float v) { _mm512_storeu_ps(p, v); }
  static Float loadHalf(const std::uint16_t* p) { return _mm512_cvtph_ps(loadShorts(p)); }
  static Float loadHalfPartial(const std::uint16_t* p, std::int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(laneMask(n), p));
  }
  static void storeHalf(std::uint16_t* p, Float v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static Float loadBfloat(const std::uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(loadShorts(p)), 16));
  }
  static Words loadWords(const void* p) { return _mm512_loadu_si512(p); }
  static Words loadWordsPartial(const void* p, std::int64_t n) {
    return _mm512_maskz_loadu_epi32(laneMask(n), p);
  }
  static void storeBytes(std::uint8_t* p, Float v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  }

  // --- Arithmetic -------------------------------------------------------------------------------

  static Float zero() { return _mm512_setzero_ps(); }
  static Float broadcast(float x) { return _mm512_set1_ps(x); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float subtract(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float divide(Float a, Float b) { return _mm512_div_ps(a, b); }
  static Float multiplyAdd(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
  static Float abs(Float a) { return _mm512_abs_ps(a); }
  static Float round(Float a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Float scaleByPowerOf2(Float x, Float n) { return _mm512_scalef_ps(x, n); }
  static Words maskBits(Words v, std::uint32_t mask) {
    return _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(mask)));
  }
  template <int kShift>
  static Words shiftRight(Words v) {
    return _mm512_srli_epi32(v, kShift);
  }
  static Float toFloat(Words v) { return _mm512_cvtepi32_ps(v); }

  // --- Choices ----------------------------------------------------------------------------------

  static Float selectPositive(Float condition, Float a, Float b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(condition, zero(), _CMP_GT_OQ), b, a);
  }
  static Float keepFirst(Float v, std::int64_t n, float other) {
    return _mm512_mask_blend_ps(laneMask(n), broadcast(other), v);
  }
  static Float keepVisible(Float v, const std::int32_t* counts, std::int32_t index) {
    const __mmask16 isVisible =
        _mm512_cmpgt_epi32_mask(loadWords(counts), _mm512_set1_epi32(index));
    return _mm512_mask_blend_ps(isVisible, broadcast(-__builtin_huge_valf()), v);
  }

  // --- Across lanes -----------------------------------------------------------------------------

  static float sum(Float v) {
    const __m256 half = fold(v);
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  static void sum4(Float a, Float b, Float c, Float d, float* sums) {
    const __m256 pairs =
        _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
  }
  static float largest(Float v) { return _mm512_reduce_max_ps(v); }
  static float smallest(Float v) { return _mm512_reduce_min_ps(v); }

  // --- NF4 --------------------------------------------------------------------------------------

  struct Codebook {
    Float values;
  };
  static Codebook loadCodebook(const float* values) { return {load(values)}; }
  using Codes = Words;
  static Codes loadCodes(const std::uint8_t* p) { return loadWords(p); }
  static Codes nextCodes(Codes codes) { return shiftRight<4>(codes); }
  // A permutation reads the lowest 4 bits of each index: a code needs no mask.
  static Float lookUp(Codebook codebook, Codes codes) {
    return _mm512_permutexvar_ps(codes, codebook.values);
  }
  static Float lookUpInOrder(Codebook codebook, const std::uint8_t* p) {
    long long bytes = 0;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    const __m512i firstHalfLow =
        _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                                 _mm512_castsi128_si512(_mm_cvtsi64_si128(bytes)));
    const __m512i highNibbleFirst =
        _mm512_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24, 4, 0, 12, 8, 20, 16, 28, 24);
    return lookUp(codebook, _mm512_srlv_epi32(firstHalfLow, highNibbleFirst));
  }
  static Float chunkScales(const float* absmax, std::int64_t chunk) {
    return _mm512_mask_blend_ps(0xff00U, broadcast(absmax[2 * chunk]),
                                broadcast(absmax[2 * chunk + 1]));
  }

 private:
  static __m256i loadShorts(const std::uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static __mmask16 laneMask(std::int64_t n) {
    return static_cast<__mmask16>(n >= kLanes ? 0xffffU : n <= 0 ? 0U : (1U << n) - 1U);
  }
  static __m256 fold(Float v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  }
};

}  // namespace
}  // namespace longhand::kernels
