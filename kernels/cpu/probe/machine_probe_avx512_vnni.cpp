// The loops of machine_probe.h with AVX-512 VNNI. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/probe/machine_probe_simd512.h"
//
#include "kernels/cpu/probe/machine_probe_inl.h"

namespace longhand::kernels {
namespace {

struct ByteStep {
  using Sum = __m512i;
  static constexpr std::int64_t kMultiplyAdds = 64;
  static Sum zero() { return _mm512_setzero_si512(); }
  static __m512i operand() { return _mm512_set1_epi8(1); }
  static Sum add(Sum sum, __m512i x) { return _mm512_dpbusd_epi32(sum, x, x); }
};

}  // namespace

const ProbeKernels kAvx512VnniProbe = {readAll, multiplyAdd<FloatStep>, multiplyAdd<ByteStep>};

}  // namespace longhand::kernels
