#pragma once
// Rows of floats and of weights as halves for half_gemm.h: row-major, each row padded with zeros to
// `depth`, a multiple of kHalfRowMultiple. Numbers beyond the range of halves become +-65504; NaN
// stays. Everything is queued on the stream.

#include <cstdint>

#include "kernels/cuda/warp/launch_queue.h"
#include "kernels/types.h"

namespace longhand::kernels::cuda {

void launchRoundRows(const MatrixView& input, std::int64_t depth,
                     void* output,  // half [input.rows, depth], 16-byte aligned
                     const LaunchQueue& queue);

/// Rows [firstRow, firstRow + nRows) of a weight of any type, shape and alignment; fastest where
/// rows hold whole blocks of 64 and `weight.data` is 16-byte aligned.
void launchExpandWeight(const WeightView& weight, std::int64_t firstRow, std::int64_t nRows,
                        std::int64_t depth,
                        void* output,  // half [nRows, depth], 16-byte aligned
                        const LaunchQueue& queue);

}  // namespace longhand::kernels::cuda
