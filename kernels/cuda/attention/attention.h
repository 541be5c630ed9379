#pragma once
// Softmax attention over pages and exact spans; shapes as in kernels/backend.h.

#include "kernels/cuda/device/own_memory.h"
#include "kernels/cuda/pages/span_list.h"
#include "kernels/cuda/warp/launch_queue.h"
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

/// Where decode attention keeps what its blocks hand over; made once by the backend.
struct DecodeWorkspace {
  float* partials = nullptr;  // [nPartialFloats]
  std::int64_t nPartialFloats = 0;
  unsigned* finished = nullptr;  // [kMostDecodeCounters], 0 between launches
  int nMultiprocessors = 0;
};

/// Queries of a kv head (rows * nHeads / nKvHeads) up to which decode attention pays.
inline constexpr int kMostDecodeQueries = 32;

/// True for up to kMostDecodeQueries and a head_dim of 8, 16, ..., 256.
bool canDecode(const AttentionJob& job);

/// Reads codes straight from the pages, split over the device's blocks; one launch.
void launchDecodeAttention(const AttentionJob& job, const DecodeWorkspace& workspace,
                           const LaunchQueue& queue);

/// What prefill attention goes by; made once by the backend.
struct PrefillWorkspace {
  float* partials = nullptr;        // [nPartialFloats], 16-byte aligned; may be used between calls
  std::int64_t nPartialFloats = 0;  // 0: no history is split
  int nMultiprocessors = 0;
  bool hasLargeShared = false;  // two blocks of 90 KiB of shared memory on a multiprocessor
};

/// True for a head_dim of 64, 80, 96 or 128 and spans that are 16-byte aligned.
bool canPrefill(const AttentionJob& job);

/// Tiles of history, expanded in shared memory only, multiplied by tensor cores: queries, keys,
/// values and probabilities are halves, sums are float. A block needs 90 KiB of shared memory with
/// `hasLargeShared`, else 38. Where the rows are too few to fill the device, several blocks share
/// a history of 1024 tokens or more, and a second launch merges what they found.
///
/// Errors: queries, keys and values round once each (keys and values of codes: scale * code + min
/// in one rounding), so a score of D products is off by about 2^-11 * scoreScale * sqrt(sum q^2
/// k^2), and an output by another 2^-10 of the largest value. Numbers beyond 65504 count as 65504.
void launchPrefillAttention(const AttentionJob& job, const PrefillWorkspace& workspace,
                            const LaunchQueue& queue);

/// Multiply-adds of a launch of plain attention: about a tenth of a second of a slow device. Where
/// a card also draws the screen, the driver ends a kernel that runs for seconds.
inline constexpr double kMostPlainProducts = 1e10;

/// Any head_dim up to 256, any number of rows, any device. One warp a query and head; several
/// launches of up to `mostProducts`, or a row.
void launchPlainAttention(const AttentionJob& job, const LaunchQueue& queue,
                          double mostProducts = kMostPlainProducts);

}  // namespace longhand::kernels::cuda
