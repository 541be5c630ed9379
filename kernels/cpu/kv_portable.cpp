// The KV cache's inner loops: portable. Compiled with flags of its own (CMakeLists.txt).

#include "kernels/cpu/kv_simd_portable.h"
//
#include "kernels/cpu/kv_common_impl.h"
#include "kernels/cpu/kv_decode_impl.h"
#include "kernels/cpu/kv_expand_impl.h"
#include "kernels/cpu/kv_prefill_impl.h"
#include "kernels/cpu/kv_quantize_impl.h"

namespace longhand::kernels {

constinit const KvKernels kPortableKvKernels = {
    .name = "portable",
    .attendDirect = attendDirect,
    .attendExpanded = attendExpanded,
    .arrangeQueries = arrangeQueries,
    .floatKernels = nullptr,
    .expandedQueries = 256,
    .mergeRuns = mergeRuns,
    .expandKeys = expandKeys,
    .expandValues = expandValues,
    .roundToHalves = roundToHalves,
    .quantizeKeys = quantizeKeys,
    .quantizeValues = quantizeValues,
    .floatsToHalves = floatsToHalves,
    .halvesToFloats = halvesToFloats,
    .exp2InPlace = exp2InPlace,
};

}  // namespace longhand::kernels
