#pragma once
// Vector type of the KV kernels for AVX-512 (F, BW, DQ, VL): sixteen lanes. For kv_avx512.cpp only.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace longhand::kernels {
namespace {

struct Simd {
  static constexpr int kLanes = 16;
  static constexpr int kMaxAccumulators = 16;
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmColumns = 4;

  using F = __m512;
  using U = __m512i;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F loadPartial(const float* p, std::int64_t n) {
    return _mm512_maskz_loadu_ps(laneMask(n), p);
  }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static F loadHalf(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F loadHalfPartial(const std::uint16_t* p, std::int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(laneMask(n), p));
  }
  static void storeHalf(std::uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static U loadWords(const std::byte* p) { return _mm512_loadu_si512(p); }
  static U loadWordsPartial(const std::byte* p, std::int64_t n) {
    return _mm512_maskz_loadu_epi32(laneMask(n), p);
  }
  static U maskBits(U v, std::uint32_t mask) {
    return _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(mask)));
  }
  template <int kShift>
  static U shiftRight(U v) {
    return _mm512_srli_epi32(v, kShift);
  }
  static F toFloat(U v) { return _mm512_cvtepi32_ps(v); }
  static void storeBytes(std::uint8_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  /// The second where one is NaN.
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F round(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F selectPositive(F condition, F a, F b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(condition, zero(), _CMP_GT_OQ), b, a);
  }
  static F keepFirst(F v, std::int64_t n, float other) {
    return _mm512_mask_blend_ps(laneMask(n), set(other), v);
  }
  /// v where counts > index, else -infinity.
  static F keepVisible(F v, const std::int32_t* counts, std::int32_t index) {
    const __mmask16 isVisible =
        _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(counts), _mm512_set1_epi32(index));
    return _mm512_mask_blend_ps(isVisible, set(-__builtin_huge_valf()), v);
  }
  static float reduceAdd(F v) { return _mm512_reduce_add_ps(v); }
  static float reduceMax(F v) { return _mm512_reduce_max_ps(v); }
  static float reduceMin(F v) { return _mm512_reduce_min_ps(v); }
  static void reduceAdd4(F a, F b, F c, F d, float* sums) {
    const __m256 all =
        _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
  /// v * 2^n for whole n in [-126, 127].
  static F scaleByPower(F v, F n) { return _mm512_scalef_ps(v, n); }

 private:
  static __mmask16 laneMask(std::int64_t n) {
    return static_cast<__mmask16>(n >= kLanes ? 0xffffU : n <= 0 ? 0U : (1U << n) - 1U);
  }
  static __m256 fold(F v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  }
};

}  // namespace
}  // namespace longhand::kernels
