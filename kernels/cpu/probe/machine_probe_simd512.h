#pragma once
// What the AVX-512 files of machine_probe.h share, for one translation unit only.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace longhand::kernels {
namespace {

struct Probe {
  using Words = __m512i;
  static Words zeroWords() { return _mm512_setzero_si512(); }
  static Words loadWords(const std::byte* p) { return _mm512_loadu_si512(p); }
  static Words either(Words a, Words b) { return _mm512_or_si512(a, b); }
  static std::uint64_t reduce(Words v) {
    return static_cast<std::uint64_t>(_mm512_reduce_or_epi64(v));
  }
};

struct FloatStep {
  using Sum = __m512;
  static constexpr std::int64_t kMultiplyAdds = 16;
  static Sum zero() { return _mm512_setzero_ps(); }
  static __m512 operand() { return _mm512_set1_ps(0.5F); }
  static Sum add(Sum sum, __m512 x) { return _mm512_fmadd_ps(x, x, sum); }
};

}  // namespace
}  // namespace longhand::kernels
