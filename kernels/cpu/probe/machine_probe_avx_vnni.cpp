// The loops of machine_probe.h with AVX-VNNI. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/probe/machine_probe_simd256.h"
//
#include "kernels/cpu/probe/machine_probe_inl.h"

namespace longhand::kernels {
namespace {

struct ByteStep {
  using Sum = __m256i;
  static constexpr std::int64_t kMultiplyAdds = 32;
  static Sum zero() { return _mm256_setzero_si256(); }
  static __m256i operand() { return _mm256_set1_epi8(1); }
  static Sum add(Sum sum, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, x, x); }
};

}  // namespace

const ProbeKernels kAvxVnniProbe = {readAll, multiplyAdd<FloatStep>, multiplyAdd<ByteStep>};

}  // namespace longhand::kernels
