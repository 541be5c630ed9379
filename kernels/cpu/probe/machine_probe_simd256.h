#pragma once
// What the AVX2 files of machine_probe.h share, for one translation unit only.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace longhand::kernels {
namespace {

struct Probe {
  using Words = __m256i;
  static Words zeroWords() { return _mm256_setzero_si256(); }
  static Words loadWords(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Words either(Words a, Words b) { return _mm256_or_si256(a, b); }
  static std::uint64_t reduce(Words v) {
    return static_cast<std::uint64_t>(_mm256_extract_epi64(v, 0) | _mm256_extract_epi64(v, 1) |
                                      _mm256_extract_epi64(v, 2) | _mm256_extract_epi64(v, 3));
  }
};

struct FloatStep {
  using Sum = __m256;
  static constexpr std::int64_t kMultiplyAdds = 8;
  static Sum zero() { return _mm256_setzero_ps(); }
  static __m256 operand() { return _mm256_set1_ps(0.5F); }
  static Sum add(Sum sum, __m256 x) { return _mm256_fmadd_ps(x, x, sum); }
};

}  // namespace
}  // namespace longhand::kernels
