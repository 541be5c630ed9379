#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/portability.h"
#include "kernels/cuda/prefill_tiles.h"
#include "kernels/cuda/warp.h"

namespace longhand::kernels::cuda {
namespace {

constexpr int kWarps = kPrefillThreads / kWarpSize;
constexpr int kStepTokens = 32;  // that pass through the softmax at once

/// Sizes that a kernel is compiled for. A warp has 16 * kRowTiles query rows: with 32 it reads a
/// tile half as often from shared memory, which is what limits mma.sync on devices with fast tensor
/// cores; 16 leave room for two blocks where shared memory is small.
template <int kDim, int kTiles>
struct PrefillSizes {
  static constexpr int kHeadDim = kDim;
  static constexpr int kRowTiles = kTiles;
  static constexpr int kTileTokens = 32 * kRowTiles;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kWarps * kWarpRows;  // of a block
  static constexpr int kStride = kHeadDim + kTilePadding;
  static constexpr int kTransposedStride = kTileTokens + kTilePadding;
  // Shared memory, in halves.
  static constexpr int kQueryHalves = kRows * kStride;
  static constexpr int kKeyHalves = kTileTokens * kStride;
  static constexpr int kTransposedHalves = kHeadDim * kTransposedStride;
  static constexpr int kValueHalves =
      kKeyHalves > kTransposedHalves ? kKeyHalves : kTransposedHalves;
  static constexpr int kSharedBytes = 2 * (kQueryHalves + kKeyHalves + kValueHalves);
};

/// What a tile of history is, beside its numbers in shared memory.
struct TileFacts {
  int nTokens;
  int firstToken;  // of the chunk
  bool isChunk;    // each row sees only the tokens up to its own
  bool hasTransposedValues;
};

/// A warp's query rows: online softmax, outputs in registers. Lane l = 4 * g + q holds of each tile
/// of 16 rows the rows g and g + 8, and there columns 2 * q and the next of each 8.
template <class Sizes>
struct PrefillWarp {
  static constexpr int kHeadDim = Sizes::kHeadDim;
  static constexpr int kRowTiles = Sizes::kRowTiles;
  static constexpr int kScoreTiles = kStepTokens / 8;
  using Scores = float[kRowTiles][kScoreTiles][4];

  const __half* queries;        // [kWarpRows, kStride]
  const __half* keys;           // [kTileTokens, kStride]
  const __half* values;         // as TileFacts says
  float scoreFactor;            // scoreScale * log2(e)
  int firstRow;                 // of the warp, among the kv head's rows
  int nRows;                    // of the kv head
  int perKvHead;                // rows of a query token
  int chunkOffset;              // the chunk's token of row 0
  float largest[kRowTiles][2];  // scores in powers of 2
  float sum[kRowTiles][2];      // of this lane's columns
  float output[kRowTiles][kHeadDim / 8][4];

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }

  /// Tokens of a tile that a row of the warp sees; rows beyond the last see what the last does.
  __device__ __forceinline__ int visibleTokens(const TileFacts& tile, int row) const {
    if (!tile.isChunk) return tile.nTokens;
    const int token = chunkOffset + min(firstRow + row, nRows - 1) / perKvHead;
    return min(tile.nTokens, token + 1 - tile.firstToken);
  }

  __device__ void start() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[m][half] = -INFINITY;
        sum[m][half] = 0.0F;
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] = 0.0F;
      }
    }
  }

  __device__ __forceinline__ void addTile(const TileFacts& tile) {
    if (firstRow >= nRows) return;
    const int mostVisible = visibleTokens(tile, Sizes::kWarpRows - 1);
    const int leastVisible = visibleTokens(tile, 0);
#pragma unroll 1
    for (int first = 0; first < mostVisible; first += kStepTokens) {
      Scores scores = {};
      multiplyKeys(first, scores);
      if (first + kStepTokens > leastVisible) hideTokens(tile, first, scores);
      softmax(scores);
      if (tile.hasTransposedValues) {
        addValues<true>(first, scores);
      } else {
        addValues<false>(first, scores);
      }
    }
  }

  __device__ __forceinline__ void multiplyKeys(int first, Scores& scores) const {
    const int matrix = lane() / 8;  // whose row this lane passes to ldmatrix
    const int row = lane() % 8;
#pragma unroll
    for (int k = 0; k < kHeadDim; k += 16) {
      unsigned b[kScoreTiles / 2][4];
#pragma unroll
      for (int n = 0; n < kScoreTiles / 2; ++n) {
        loadTiles<false>(b[n], keys + (first + n * 16 + matrix / 2 * 8 + row) * Sizes::kStride + k +
                                   matrix % 2 * 8);
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        unsigned a[4];
        loadTiles<false>(
            a, queries + (m * 16 + matrix % 2 * 8 + row) * Sizes::kStride + k + matrix / 2 * 8);
#pragma unroll
        for (int n = 0; n < kScoreTiles; ++n) {
          const unsigned pair[2] = {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]};
          multiplyTile(scores[m][n], a, pair);
        }
      }
    }
  }

  __device__ __forceinline__ void hideTokens(const TileFacts& tile, int first,
                                             Scores& scores) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = first + lane() % 4 * 2;
        const int visible = visibleTokens(tile, m * 16 + half * 8 + lane() / 4);
#pragma unroll
        for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if (column + n * 8 + i >= visible) scores[m][n][2 * half + i] = -INFINITY;
          }
        }
      }
    }
  }

  /// Scores become probabilities relative to the largest score so far. Every row has seen a token
  /// by then: the chunk's first token is visible to all, and other tiles hide none.
  __device__ __forceinline__ void softmax(Scores& scores) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      float factors[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float top = -INFINITY;
#pragma unroll
        for (int n = 0; n < kScoreTiles; ++n) {
          top = fmaxf(top, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        }
        top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
        top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
        top = fmaxf(largest[m][half], top * scoreFactor);
        factors[half] = exp2f(largest[m][half] - top);  // 0 at first
        largest[m][half] = top;
        float total = 0.0F;
#pragma unroll
        for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[m][n][i] = exp2f(scores[m][n][i] * scoreFactor - top);
            total += scores[m][n][i];
          }
        }
        sum[m][half] = sum[m][half] * factors[half] + total;
      }
      if (!__any_sync(kAllLanes, factors[0] != 1.0F || factors[1] != 1.0F)) continue;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] *= factors[i / 2];
      }
    }
  }

  template <bool kTransposed>
  __device__ __forceinline__ void addValues(int first, const Scores& scores) {
    const int matrix = lane() / 8;
    const int row = lane() % 8;
#pragma unroll
    for (int k = 0; k < kStepTokens; k += 16) {
      unsigned a[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&tile)[4] = scores[m][k / 8 + i / 2];
          a[m][i] = wordOfHalves(__floats2half2_rn(tile[i % 2 * 2], tile[i % 2 * 2 + 1]));
        }
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n) {
        unsigned b[4];
        if constexpr (kTransposed) {
          loadTiles<false>(b, values + (n * 16 + matrix / 2 * 8 + row) * Sizes::kTransposedStride +
                                  first + k + matrix % 2 * 8);
        } else {
          loadTiles<true>(b, values + (first + k + matrix % 2 * 8 + row) * Sizes::kStride + n * 16 +
                                 matrix / 2 * 8);
        }
        const unsigned low[2] = {b[0], b[1]};
        const unsigned high[2] = {b[2], b[3]};
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          multiplyTile(output[m][2 * n], a[m], low);
          multiplyTile(output[m][2 * n + 1], a[m], high);
        }
      }
    }
  }
};

/// A block: kRows rows of one kv head. Row i is query token i / perKvHead with the kv head's query
/// head i % perKvHead, so that all of them share the expanded tiles.
template <class Sizes>
struct PrefillBlock {
  static constexpr int kHeadDim = Sizes::kHeadDim;
  static constexpr int kTileTokens = Sizes::kTileTokens;

  const AttentionJob& job;
  __half* shared;
  int kvHead;
  int perKvHead;
  std::int64_t firstRow;
  std::int64_t nRows;  // of the kv head

  __device__ __half* queries() const { return shared; }
  __device__ __half* keys() const { return shared + Sizes::kQueryHalves; }
  __device__ __half* values() const { return keys() + Sizes::kKeyHalves; }

  /// Offset of row's head in a row of queries or output.
  __device__ std::int64_t offsetOf(std::int64_t row, std::int64_t stride) const {
    const std::int64_t head = std::int64_t{kvHead} * perKvHead + row % perKvHead;
    return row / perKvHead * stride + head * kHeadDim;
  }
  __device__ void loadQueries() const {
    for (int row = static_cast<int>(threadIdx.x) / kWarpSize; row < Sizes::kRows; row += kWarps) {
      const bool isInside = firstRow + row < nRows;
      const float* const source =
          isInside ? job.queries.data + offsetOf(firstRow + row, job.queries.stride) : nullptr;
      for (int c = static_cast<int>(threadIdx.x) % kWarpSize; c < kHeadDim; c += kWarpSize) {
        queries()[row * Sizes::kStride + c] = halfInRange(isInside ? source[c] : 0.0F);
      }
    }
  }

  __device__ void prepare(PrefillWarp<Sizes>& warp, int index) const {
    constexpr float kLog2E = 1.44269504F;
    const std::int64_t warpRow = firstRow + index * Sizes::kWarpRows;
    warp.queries = queries() + index * Sizes::kWarpRows * Sizes::kStride;
    warp.keys = keys();
    warp.values = values();
    warp.scoreFactor = job.scoreScale * kLog2E;
    warp.firstRow = static_cast<int>(warpRow);
    warp.nRows = static_cast<int>(nRows);
    warp.perKvHead = perKvHead;
    warp.chunkOffset = static_cast<int>(job.chunkOffset);
    warp.start();
  }

  __device__ __forceinline__ void expandPageKeys(const PageRef& page, const PageParts& parts,
                                                 int first, int nTokens) const {
    switch (page.format.keyNbits) {
      case 8:
        return expandKeys<8, kHeadDim, kTileTokens>(page, parts, kvHead, first, keys());
      case 4:
        return expandKeys<4, kHeadDim, kTileTokens>(page, parts, kvHead, first, keys());
      case 2:
        return expandKeys<2, kHeadDim, kTileTokens>(page, parts, kvHead, first, keys());
      default:
        return copyExactTile<kHeadDim, kTileTokens>(
            page.format.exactType, page.data + parts.keyCodes,
            std::int64_t{kvHead} * page.format.groupSize + first, nTokens, keys());
    }
  }

  __device__ __forceinline__ void expandPageValues(const PageRef& page, const PageParts& parts,
                                                   int first, int nTokens) const {
    switch (page.format.valueNbits) {
      case 8:
        return expandValues<8, kHeadDim, kTileTokens>(page, parts, kvHead, first, nTokens,
                                                      values());
      case 4:
        return expandValues<4, kHeadDim, kTileTokens>(page, parts, kvHead, first, nTokens,
                                                      values());
      case 2:
        return expandValues<2, kHeadDim, kTileTokens>(page, parts, kvHead, first, nTokens,
                                                      values());
      default:
        return copyExactTile<kHeadDim, kTileTokens>(
            page.format.exactType, page.data + parts.valueCodes,
            std::int64_t{kvHead} * page.format.groupSize + first, nTokens, values());
    }
  }

  __device__ __forceinline__ static void finishTile() {
    commitCopies();
    waitCopies<0>();
    __syncthreads();
  }

  /// Pages, spans, then the chunk up to what the block's last row sees.
  __device__ void addAll(PrefillWarp<Sizes>& warp) const {
    PageRef next;
    if (job.nPages > 0) next = job.pages[0];
#pragma unroll 1
    for (int i = 0; i < job.nPages; ++i) {
      const PageRef page = next;
      if (i + 1 < job.nPages) next = job.pages[i + 1];
      const PageParts parts = pageParts(page.format, job.nKvHeads, kHeadDim);
#pragma unroll 1
      for (int first = 0; first < page.nTokens; first += kTileTokens) {
        const int nTokens = min(kTileTokens, page.nTokens - first);
        __syncthreads();  // the tile before has been used
        expandPageKeys(page, parts, first, nTokens);
        expandPageValues(page, parts, first, nTokens);
        finishTile();
        warp.addTile({nTokens, 0, false, page.format.valueNbits != 16});
      }
    }
    const std::int64_t lastRow = min(firstRow + Sizes::kRows, nRows) - 1;
    const int nChunkTokens = static_cast<int>(job.chunkOffset + lastRow / perKvHead + 1);
#pragma unroll 1
    for (int i = 0; i < job.exact.nSpans; ++i) {
      const ExactSpan& span = job.exact.spans[i];
      const bool isChunk = i + 1 == job.exact.nSpans;
      const int nSpanTokens = isChunk ? nChunkTokens : static_cast<int>(span.nTokens);
#pragma unroll 1
      for (int first = 0; first < nSpanTokens; first += kTileTokens) {
        const int nTokens = min(kTileTokens, nSpanTokens - first);
        const std::int64_t row = kvHead * span.tokenCapacity + first;
        __syncthreads();
        copyExactTile<kHeadDim, kTileTokens>(span.type, span.keys, row, nTokens, keys());
        copyExactTile<kHeadDim, kTileTokens>(span.type, span.values, row, nTokens, values());
        finishTile();
        warp.addTile({nTokens, first, isChunk, false});
      }
    }
  }

  __device__ void store(const PrefillWarp<Sizes>& warp, int index) const {
    const int lane = PrefillWarp<Sizes>::lane();
#pragma unroll
    for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = warp.sum[m][half];
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        const std::int64_t row = firstRow + index * Sizes::kWarpRows + m * 16 + half * 8 + lane / 4;
        if (row >= nRows) continue;
        float* const destination = job.output.data + offsetOf(row, job.output.stride);
        const float factor = 1.0F / sum;
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          destination[n * 8 + lane % 4 * 2] = warp.output[m][n][2 * half] * factor;
          destination[n * 8 + lane % 4 * 2 + 1] = warp.output[m][n][2 * half + 1] * factor;
        }
      }
    }
  }
};

/// x: rows in groups of kRows, the last first, since those see most of the chunk; y: kv heads.
template <class Sizes>
__global__ void __launch_bounds__(kPrefillThreads, 2)
    prefillKernel(const __grid_constant__ AttentionJob job) {
  DYN_SHARED(__half, shared);
  const int perKvHead = job.nHeads / job.nKvHeads;
  const std::int64_t firstRow = std::int64_t{gridDim.x - 1 - blockIdx.x} * Sizes::kRows;
  const PrefillBlock<Sizes> block{job,       shared,   static_cast<int>(blockIdx.y),
                                  perKvHead, firstRow, job.queries.rows * perKvHead};
  const int index = static_cast<int>(threadIdx.x) / kWarpSize;
  block.loadQueries();
  PrefillWarp<Sizes> warp;
  block.prepare(warp, index);
  block.addAll(warp);
  block.store(warp, index);
}

template <int kHeadDim, int kRowTiles>
void launchAs(const AttentionJob& job, const LaunchQueue& queue) {
  using Sizes = PrefillSizes<kHeadDim, kRowTiles>;
  const auto kernel = prefillKernel<Sizes>;
  queue.allowShared(reinterpret_cast<const void*>(kernel), Sizes::kSharedBytes);
  const std::int64_t nRows = job.queries.rows * (job.nHeads / job.nKvHeads);
  const dim3 grid(static_cast<unsigned>(ceilDivide<std::int64_t>(nRows, Sizes::kRows)),
                  static_cast<unsigned>(job.nKvHeads));
  launch(kernel, grid, kPrefillThreads, Sizes::kSharedBytes, queue, job);
}

template <int kHeadDim>
void launchSized(const AttentionJob& job, bool hasLargeShared, const LaunchQueue& queue) {
  if (hasLargeShared) {
    launchAs<kHeadDim, 2>(job, queue);
  } else {
    launchAs<kHeadDim, 1>(job, queue);
  }
}

bool isAligned(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

}  // namespace

bool canPrefill(const AttentionJob& job) {
  constexpr int kHeadDims[] = {64, 80, 96, 128};
  if (std::find(std::begin(kHeadDims), std::end(kHeadDims), job.headDim) == std::end(kHeadDims)) {
    return false;
  }
  return std::all_of(
      job.exact.spans, job.exact.spans + job.exact.nSpans,
      [](const ExactSpan& span) { return isAligned(span.keys) && isAligned(span.values); });
}

void launchPrefillAttention(const AttentionJob& job, bool hasLargeShared,
                            const LaunchQueue& queue) {
  if (job.queries.rows == 0) return;
  switch (job.headDim) {
    case 64:
      return launchSized<64>(job, hasLargeShared, queue);
    case 80:
      return launchSized<80>(job, hasLargeShared, queue);
    case 96:
      return launchSized<96>(job, hasLargeShared, queue);
    default:
      return launchSized<128>(job, hasLargeShared, queue);
  }
}

}  // namespace longhand::kernels::cuda
