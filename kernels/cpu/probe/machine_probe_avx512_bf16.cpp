// The BF16 loop of machine_probe.h. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/probe/machine_probe_simd512.h"
//
#include "kernels/cpu/probe/machine_probe_inl.h"

namespace longhand::kernels {
namespace {

struct Bf16Step {
  using Sum = __m512;
  static constexpr std::int64_t kMultiplyAdds = 32;
  static Sum zero() { return _mm512_setzero_ps(); }
  static __m512bh operand() {
    return _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5F), _mm512_set1_ps(0.5F));
  }
  static Sum add(Sum sum, __m512bh x) { return _mm512_dpbf16_ps(sum, x, x); }
};

}  // namespace

std::int64_t multiplyAddBf16Avx512(std::int64_t nRounds) { return multiplyAdd<Bf16Step>(nRounds); }

}  // namespace longhand::kernels
