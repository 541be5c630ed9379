// The KV cache's inner loops: AVX2. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/simd/simd_avx2.h"
//
#include "kernels/cpu/kv/kv_common_inl.h"
#include "kernels/cpu/kv/kv_decode_inl.h"
#include "kernels/cpu/kv/kv_expand_inl.h"
#include "kernels/cpu/kv/kv_prefill_inl.h"
#include "kernels/cpu/kv/kv_quantize_inl.h"
//
#include "kernels/cpu/kv/kv_table_inl.h"

namespace longhand::kernels {

constinit const KvKernels kAvx2KvKernels = kvKernelTable("AVX2", attendDirect);

}  // namespace longhand::kernels
