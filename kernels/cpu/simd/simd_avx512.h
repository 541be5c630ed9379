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

  static Float zero() { return _mm512_setzero_ps(); }
  static Float broadcast(float x) { return _mm512_set1_ps(x); }
  static Float load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Float v) { _mm512_storeu_ps(p, v); }
  static Float multiplyAdd(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float subtract(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float divide(Float a, Float b) { return _mm512_div_ps(a, b); }
  // min and max give their second operand when one is NaN.
  static Float clamp(Float x, Float low, Float high) {
    return _mm512_min_ps(high, _mm512_max_ps(low, x));
  }
  static float sum(Float v) {
    const __m256 half = halves(v);
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  static void sum4(Float a, Float b, Float c, Float d, float* sums) {
    const __m256 pairs =
        _mm256_hadd_ps(_mm256_hadd_ps(halves(a), halves(b)), _mm256_hadd_ps(halves(c), halves(d)));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
  }
  static Float scaleByPowerOf2(Float x, Float n) { return _mm512_scalef_ps(x, n); }

  static Float loadHalf(const std::uint16_t* p) { return _mm512_cvtph_ps(loadShorts(p)); }
  static Float loadBfloat(const std::uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(loadShorts(p)), 16));
  }

  struct Codebook {
    Float values;
  };
  static Codebook loadCodebook(const float* values) { return {load(values)}; }
  static Words loadWords(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
  static Words shiftRight4(Words v) { return _mm512_srli_epi32(v, 4); }
  // A permutation reads the lowest 4 bits of each index: a code needs no mask.
  static Float lookUp(Codebook codebook, Words words) {
    return _mm512_permutexvar_ps(words, codebook.values);
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
  static __m256 halves(Float v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  }
  static __m256i loadShorts(const std::uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
};

}  // namespace
}  // namespace longhand::kernels
