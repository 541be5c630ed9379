#pragma once
// Softmax attention over pages and exact spans; shapes as in kernels/backend.h.

#include <cuda_runtime_api.h>

#include "kernels/cuda/span_list.h"
#include "kernels/kv_types.h"

namespace longhand::kernels::cuda {

/// One call of Backend::attend, by value for kernels.
struct AttentionJob {
  const PageRef* pages = nullptr;  // [nPages], device memory
  int nPages = 0;
  std::int64_t nPagedTokens = 0;
  SpanList exact;  // sink, residual, then the chunk with its valid tokens
  std::int64_t chunkOffset = 0;
  int nHeads = 0;
  int nKvHeads = 0;
  int headDim = 0;
  float scoreScale = 0.0F;
  MatrixView queries;  // [n, nHeads * headDim]
  MatrixView output;   // [n, nHeads * headDim]
};

/// Any head_dim up to 256, any number of rows, any device. One warp a query and head.
void launchPlainAttention(const AttentionJob& job, cudaStream_t stream);

}  // namespace longhand::kernels::cuda
