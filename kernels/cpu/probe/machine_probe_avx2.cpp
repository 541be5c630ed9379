// The loops of machine_probe.h with AVX2. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/probe/machine_probe_simd256.h"
//
#include "kernels/cpu/probe/machine_probe_inl.h"

namespace longhand::kernels {
namespace {

/// Pairs of products in 16 bits, pairs of those in 32 bits.
struct ByteStep {
  using Sum = __m256i;
  static constexpr std::int64_t kMultiplyAdds = 32;
  static Sum zero() { return _mm256_setzero_si256(); }
  static __m256i operand() { return _mm256_set1_epi8(1); }
  static Sum add(Sum sum, __m256i x) {
    // The sum as a factor: else the compiler would multiply only once.
    const __m256i products = _mm256_maddubs_epi16(x, sum);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(products, x));
  }
};

}  // namespace

const ProbeKernels kAvx2Probe = {readAll, multiplyAdd<FloatStep>, multiplyAdd<ByteStep>};

}  // namespace longhand::kernels
