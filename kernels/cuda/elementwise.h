#pragma once
// The operations on rows of floats: embedding, norm, RoPE, SiLU, argmax. Shapes and formulas as in
// kernels/backend.h; pointers are device addresses; everything is queued on the queue, errors show
// in cudaGetLastError().

#include <cstdint>
#include <span>

#include "kernels/cuda/warp/launch_queue.h"
#include "kernels/kv_types.h"
#include "kernels/types.h"

namespace longhand::kernels::cuda {

/// `ids` lie in device memory.
void launchEmbed(const WeightView& table, const std::int32_t* ids,  // [output.rows]
                 const MatrixView& output, const LaunchQueue& queue);

/// So few ids are arguments of the kernel: nothing is uploaded for a decode step.
inline constexpr std::int64_t kMostEmbedArguments = 8;
/// `ids` lie on the host, at most kMostEmbedArguments.
void launchEmbedFew(const WeightView& table, std::span<const std::int32_t> ids,
                    const MatrixView& output, const LaunchQueue& queue);

void launchRmsNorm(const MatrixView& input, const float* weight, float epsilon,
                   const MatrixView& output, const LaunchQueue& queue);

void launchRope(const MatrixView& heads, std::int64_t headDim, const float* cosSin,
                const LaunchQueue& queue);

/// rope() of queries and keys (which stay as they are), and both keys and values into the span.
void launchRopeAndStore(const AttentionShape& shape, const MatrixView& queries,
                        const MatrixView& keys, const MatrixView& values, const float* cosSin,
                        const ExactSpan& span, std::int64_t firstToken, const LaunchQueue& queue);

void launchSiluMultiply(const MatrixView& gate, const MatrixView& up, const LaunchQueue& queue);

/// Writes the index of the largest logit, or -1 where any is NaN, to *result.
void launchArgmax(const float* logits, std::int64_t count, std::int32_t* result,
                  const LaunchQueue& queue);

}  // namespace longhand::kernels::cuda
