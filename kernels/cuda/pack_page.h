#pragma once
// Pages from exact tokens and back. Results equal kernels/quantizer.h bit for bit (hqq on a device:
// up to the last place of its powf).

#include <cuda_runtime_api.h>

#include "kernels/cuda/span_list.h"
#include "kernels/kv_types.h"

namespace longhand::kernels::cuda {

/// `source` holds format.groupSize tokens; `page` has room for the format, 64-byte aligned.
void launchPackPage(const AttentionShape& shape, const SpanList& source, const PageFormat& format,
                    QuantSolver solver, std::byte* page, cudaStream_t stream);

void launchUnpackPage(const AttentionShape& shape, const PageRef& page,
                      const ExactSpan& destination, cudaStream_t stream);

}  // namespace longhand::kernels::cuda
