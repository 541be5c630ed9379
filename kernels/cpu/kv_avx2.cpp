// The KV cache's inner loops: AVX2. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/kv_simd_avx2.h"
//
#include "kernels/cpu/kv_common_impl.h"
#include "kernels/cpu/kv_decode_impl.h"
#include "kernels/cpu/kv_expand_impl.h"
#include "kernels/cpu/kv_prefill_impl.h"
#include "kernels/cpu/kv_quantize_impl.h"
//
#include "kernels/cpu/kv_table_impl.h"

namespace longhand::kernels {

constinit const KvKernels kAvx2KvKernels = kvKernelTable("AVX2", attendDirect);

}  // namespace longhand::kernels
