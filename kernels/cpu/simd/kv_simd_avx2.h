#pragma once
// Vector type of the KV kernels for AVX2, FMA and F16C: eight lanes. For kv_avx2.cpp only.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace longhand::kernels {
namespace {

struct Simd {
  static constexpr int kLanes = 8;
  static constexpr int kMaxAccumulators = 8;
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmColumns = 2;

  using F = __m256;
  using U = __m256i;

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F loadPartial(const float* p, std::int64_t n) {
    return _mm256_maskload_ps(p, laneMask(n));
  }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static F loadHalf(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F loadHalfPartial(const std::uint16_t* p, std::int64_t n) {
    std::uint16_t buffer[kLanes] = {};
    for (std::int64_t i = 0; i < n; ++i) buffer[i] = p[i];
    return loadHalf(buffer);
  }
  static void storeHalf(std::uint16_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static U loadWords(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static U loadWordsPartial(const std::byte* p, std::int64_t n) {
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(p), laneMask(n));
  }
  static U maskBits(U v, std::uint32_t mask) {
    return _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(mask)));
  }
  template <int kShift>
  static U shiftRight(U v) {
    return _mm256_srli_epi32(v, kShift);
  }
  static F toFloat(U v) { return _mm256_cvtepi32_ps(v); }
  static void storeBytes(std::uint8_t* p, F v) {
    const __m256i words = _mm256_cvtps_epi32(v);
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(halves, halves));
  }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  /// The second where one is NaN.
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F abs(F a) { return _mm256_andnot_ps(set(-0.0F), a); }
  static F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F selectPositive(F condition, F a, F b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(condition, zero(), _CMP_GT_OQ));
  }
  static F keepFirst(F v, std::int64_t n, float other) {
    return _mm256_blendv_ps(set(other), v, _mm256_castsi256_ps(laneMask(n)));
  }
  /// v where counts > index, else -infinity.
  static F keepVisible(F v, const std::int32_t* counts, std::int32_t index) {
    const __m256i count = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(counts));
    const __m256i isVisible = _mm256_cmpgt_epi32(count, _mm256_set1_epi32(index));
    return _mm256_blendv_ps(set(-__builtin_huge_valf()), v, _mm256_castsi256_ps(isVisible));
  }
  static float reduceAdd(F v) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  static float reduceMax(F v) {
    __m128 top = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    return _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
  }
  static float reduceMin(F v) {
    __m128 low = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    low = _mm_min_ps(low, _mm_movehl_ps(low, low));
    return _mm_cvtss_f32(_mm_min_ss(low, _mm_movehdup_ps(low)));
  }
  static void reduceAdd4(F a, F b, F c, F d, float* sums) {
    const F all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
  /// v * 2^n for whole n in [-126, 127].
  static F scaleByPower(F v, F n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }

 private:
  static __m256i laneMask(std::int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace
}  // namespace longhand::kernels
