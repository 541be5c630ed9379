#pragma once
// Pages from exact tokens and back. Results equal kernels/quantizer.h bit for bit.

#include "kernels/cuda/pages/span_list.h"
#include "kernels/cuda/warp/launch_queue.h"
#include "kernels/kv_types.h"

namespace longhand::kernels::cuda {

/// `source` holds format.groupSize tokens; `page` has room for the format, 64-byte aligned.
void launchPackPage(const AttentionShape& shape, const SpanList& source, const PageFormat& format,
                    QuantSolver solver, std::byte* page, const LaunchQueue& queue);

void launchUnpackPage(const AttentionShape& shape, const PageRef& page,
                      const ExactSpan& destination, const LaunchQueue& queue);

}  // namespace longhand::kernels::cuda
