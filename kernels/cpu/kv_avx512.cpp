// The KV cache's inner loops: AVX-512. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/kv_simd_avx512.h"
//
#include "kernels/cpu/kv_common_impl.h"
#include "kernels/cpu/kv_decode_impl.h"
#include "kernels/cpu/kv_expand_impl.h"
#include "kernels/cpu/kv_prefill_impl.h"
#include "kernels/cpu/kv_quantize_impl.h"
//
#include "kernels/cpu/kv_table_impl.h"

namespace longhand::kernels {

constinit const KvKernels kAvx512KvKernels = kvKernelTable("AVX-512", attendDirect);

}  // namespace longhand::kernels
