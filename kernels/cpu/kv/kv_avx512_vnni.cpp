// The KV cache's inner loops: AVX-512 with VNNI (integer dot products). Compiled with flags of its
// own (CMakeLists.txt).

#include "kernels/cpu/simd/simd_avx512.h"
//
#include "kernels/cpu/kv/kv_common_inl.h"
#include "kernels/cpu/kv/kv_decode_inl.h"
#include "kernels/cpu/kv/kv_decode_vnni_inl.h"
#include "kernels/cpu/kv/kv_expand_inl.h"
#include "kernels/cpu/kv/kv_prefill_inl.h"
#include "kernels/cpu/kv/kv_quantize_inl.h"
//
#include "kernels/cpu/kv/kv_table_inl.h"

namespace longhand::kernels {

constinit const KvKernels kAvx512VnniKvKernels =
    kvKernelTable("AVX-512 VNNI", attendDirectByIntegers, true);

}  // namespace longhand::kernels
