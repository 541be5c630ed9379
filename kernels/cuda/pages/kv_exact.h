#pragma once
// Storing and moving exact tokens. Shapes as in kernels/backend.h; pointers are device addresses.

#include "kernels/cuda/warp/launch_queue.h"
#include "kernels/kv_types.h"

namespace longhand::kernels::cuda {

void launchStoreExact(const AttentionShape& shape, const MatrixView& keys, const MatrixView& values,
                      const ExactSpan& span, std::int64_t firstToken, const LaunchQueue& queue);

void launchCopyExact(const AttentionShape& shape, const ExactSpan& source, std::int64_t sourceFirst,
                     const ExactSpan& destination, std::int64_t destinationFirst,
                     std::int64_t count, const LaunchQueue& queue);

}  // namespace longhand::kernels::cuda
