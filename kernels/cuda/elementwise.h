#pragma once
// The operations on rows of floats: embedding, norm, RoPE, SiLU, argmax. Shapes and formulas as in
// kernels/backend.h; pointers are device addresses; everything is queued on the stream, errors show
// in cudaGetLastError().

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/types.h"

namespace longhand::kernels::cuda {

/// `ids` lie in device memory.
void launchEmbed(const WeightView& table, const std::int32_t* ids,  // [output.rows]
                 const MatrixView& output, cudaStream_t stream);

void launchRmsNorm(const MatrixView& input, const float* weight, float epsilon,
                   const MatrixView& output, cudaStream_t stream);

void launchRope(const MatrixView& heads, std::int64_t headDim, const float* cosSin,
                cudaStream_t stream);

void launchSiluMultiply(const MatrixView& gate, const MatrixView& up, cudaStream_t stream);

/// Writes the index of the largest logit, or -1 where any is NaN, to *result.
void launchArgmax(const float* logits, std::int64_t count, std::int32_t* result,
                  cudaStream_t stream);

}  // namespace longhand::kernels::cuda
