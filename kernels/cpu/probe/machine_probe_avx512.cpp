// The loops of machine_probe.h with AVX-512. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/probe/machine_probe_simd512.h"
//
#include "kernels/cpu/probe/machine_probe_inl.h"

namespace longhand::kernels {
namespace {

/// Pairs of products in 16 bits, pairs of those in 32 bits.
struct ByteStep {
  using Sum = __m512i;
  static constexpr std::int64_t kMultiplyAdds = 64;
  static Sum zero() { return _mm512_setzero_si512(); }
  static __m512i operand() { return _mm512_set1_epi8(1); }
  static Sum add(Sum sum, __m512i x) {
    // The sum as a factor: else the compiler would multiply only once.
    const __m512i products = _mm512_maddubs_epi16(x, sum);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(products, x));
  }
};

}  // namespace

const ProbeKernels kAvx512Probe = {readAll, multiplyAdd<FloatStep>, multiplyAdd<ByteStep>};

}  // namespace longhand::kernels
