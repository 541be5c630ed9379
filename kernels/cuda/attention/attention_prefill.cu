// Attention for many queries, as when a prompt is read. Bound by tensor cores.
//
// A block has rows of queries and walks through the history, pages, spans and the chunk, in tiles:
// while its warps multiply one tile (prefill_warp.cuh), the next one comes into shared memory as
// codes and becomes halves there (prefill_tiles.cuh). Each warp keeps rows of its own with their
// softmax, so that blocks meet only at barriers between tiles. Where the rows are too few to fill
// the device, the history is split over several blocks, and a second launch merges their parts.

#include <algorithm>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/prefill_tiles.cuh"
#include "kernels/cuda/attention/prefill_warp.cuh"
#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/warp.cuh"

namespace longhand::kernels::cuda {
namespace {

/// How far a block is in its part of the history: pages, then spans, then the chunk up to what the
/// block's last row sees. All threads agree on it, so it waits in shared memory, where it costs no
/// registers, while a tile is multiplied.
struct WalkState {
  int nCommonTokens;  // of the chunk, that the block's first row sees
  int nChunkTokens;   // that its last row sees
  int page;           // of the next tile
  int endPage;
  int pageToken;  // where the next tile starts in its page
  int span;       // likewise, when no page is left
  int spanToken;
  int nExactTiles;  // still to come
  int firstToken;   // of the chunk, of the tile before the next one

  __device__ bool isDone() const { return page >= endPage && nExactTiles <= 0; }
};

/// Walks through a kv head's history tile by tile. Of several splits each block takes its share of
/// the pages, and of the exact tiles.
template <class Sizes>
struct HistoryWalk : WalkState {
  static constexpr int kHeadDim = Sizes::kHeadDim;
  static constexpr int kTileTokens = Sizes::kTileTokens;

  const AttentionJob& job;
  int kvHead;

  __device__ HistoryWalk(const AttentionJob& jobIn, int kvHeadIn, const WalkState& state)
      : WalkState(state), job(jobIn), kvHead(kvHeadIn) {}

  __device__ HistoryWalk(const PrefillJob& prefill, int kvHeadIn, int firstRow)
      : WalkState{}, job(prefill.attention), kvHead(kvHeadIn) {
    const int lastRow = min(firstRow + Sizes::kRows, prefill.nRows) - 1;
    const auto offset = static_cast<int>(job.chunkOffset);
    nCommonTokens = offset + firstRow / prefill.perKvHead + 1;
    nChunkTokens = offset + lastRow / prefill.perKvHead + 1;
    const auto split = static_cast<std::int64_t>(blockIdx.z);
    const auto nSplits = static_cast<std::int64_t>(gridDim.z);
    page = static_cast<int>(job.nPages * split / nSplits);
    endPage = static_cast<int>(job.nPages * (split + 1) / nSplits);
    int nTiles = 0;
    for (int i = 0; i < job.exact.nSpans; ++i) nTiles += ceilDivide(tokensOf(i), kTileTokens);
    int tile = static_cast<int>(nTiles * split / nSplits);
    nExactTiles = static_cast<int>(nTiles * (split + 1) / nSplits) - tile;
    while (tile > 0 && tile >= ceilDivide(tokensOf(span), kTileTokens)) {
      tile -= ceilDivide(tokensOf(span++), kTileTokens);
    }
    spanToken = tile * kTileTokens;
  }

  __device__ int tokensOf(int i) const {
    return i + 1 == job.exact.nSpans ? nChunkTokens : static_cast<int>(job.exact.spans[i].nTokens);
  }

  /// Starts to copy the next tile. There must be one.
  __device__ __forceinline__ TileFacts stageNext(int buffer, __half* keys, __half* values) {
    const TileFacts tile = page < endPage ? stagePage(keys, values) : stageSpan(keys, values);
    commitCopies();
    return tile.inBuffer(buffer);
  }

  __device__ __forceinline__ TileFacts stagePage(__half* keys, __half* values) {
    const PageRef ref = job.pages[page];
    const PageFormat& format = ref.format;
    const PageParts parts = pageParts(format, job.nKvHeads, kHeadDim);
    const int first = pageToken;
    const int nTokens = min(kTileTokens, ref.nTokens - first);
    const std::int64_t exactRow = std::int64_t{kvHead} * format.groupSize + first;
    switch (format.keyNbits) {
      case 8:
        stageKeys<8>(ref, parts, first, nTokens, keys);
        break;
      case 4:
        stageKeys<4>(ref, parts, first, nTokens, keys);
        break;
      case 2:
        stageKeys<2>(ref, parts, first, nTokens, keys);
        break;
      default:
        stageExact<kHeadDim, kTileTokens>(format.exactType, ref.data + parts.keyCodes, exactRow,
                                          nTokens, keys);
    }
    switch (format.valueNbits) {
      case 8:
        stageValues<8>(ref, parts, first, nTokens, values);
        break;
      case 4:
        stageValues<4>(ref, parts, first, nTokens, values);
        break;
      case 2:
        stageValues<2>(ref, parts, first, nTokens, values);
        break;
      default:
        stageExact<kHeadDim, kTileTokens>(format.exactType, ref.data + parts.valueCodes, exactRow,
                                          nTokens, values);
    }
    pageToken += kTileTokens;
    if (pageToken >= ref.nTokens) {
      pageToken = 0;
      ++page;
    }
    const bool hasMins = format.scheme == QuantScheme::kAsymmetric;
    return {nTokens, format.keyNbits, format.valueNbits, hasMins, false};
  }

  template <int kNbits>
  __device__ __forceinline__ void stageKeys(const PageRef& ref, const PageParts& parts, int first,
                                            int nTokens, __half* keys) const {
    stageCodes<kNbits, kTileTokens, kHeadDim>(
        keySource<kNbits>(ref, parts, kvHead, kHeadDim, first), nTokens, kHeadDim, keys);
  }
  template <int kNbits>
  __device__ __forceinline__ void stageValues(const PageRef& ref, const PageParts& parts, int first,
                                              int nTokens, __half* values) const {
    stageCodes<kNbits, kHeadDim, kTileTokens>(
        valueSource<kNbits>(ref, parts, kvHead, kHeadDim, first), kHeadDim, nTokens, values);
  }

  __device__ __forceinline__ TileFacts stageSpan(__half* keys, __half* values) {
    const ExactSpan& from = job.exact.spans[span];
    const bool isChunk = span + 1 == job.exact.nSpans;
    const int first = spanToken;
    const int nSpanTokens = tokensOf(span);
    const int nTokens = min(kTileTokens, nSpanTokens - first);
    const std::int64_t row = kvHead * from.tokenCapacity + first;
    stageExact<kHeadDim, kTileTokens>(from.type, from.keys, row, nTokens, keys);
    stageExact<kHeadDim, kTileTokens>(from.type, from.values, row, nTokens, values);
    --nExactTiles;
    firstToken = first;
    spanToken += kTileTokens;
    if (spanToken >= nSpanTokens) {
      spanToken = 0;
      ++span;
    }
    const bool isCut = isChunk && first + nTokens > nCommonTokens;
    return {nTokens, 16, 16, false, isCut};
  }

  /// After stageNext(), once the tile's numbers are wanted; a barrier must follow.
  __device__ __forceinline__ static void finish(const TileFacts& tile, __half* keys,
                                                __half* values) {
    waitCopies<0>();
    switch (tile.keyNbits()) {
      case 8:
        expandKeys<8>(tile, keys);
        break;
      case 4:
        expandKeys<4>(tile, keys);
        break;
      case 2:
        expandKeys<2>(tile, keys);
        break;
      default:
        break;
    }
    switch (tile.valueNbits()) {
      case 8:
        expandValues<8>(tile, values);
        break;
      case 4:
        expandValues<4>(tile, values);
        break;
      case 2:
        expandValues<2>(tile, values);
        break;
      default:
        break;
    }
  }
  template <int kNbits>
  __device__ __forceinline__ static void expandKeys(const TileFacts& tile, __half* keys) {
    expandCodes<kNbits, kTileTokens, kHeadDim>(tile.hasMins(), kHeadDim, keys);
  }
  template <int kNbits>
  __device__ __forceinline__ static void expandValues(const TileFacts& tile, __half* values) {
    expandCodes<kNbits, kHeadDim, kTileTokens>(tile.hasMins(), tile.nTokens(), values);
  }
};

/// A block: kRows rows of one kv head. Row i is query token i / perKvHead with the kv head's query
/// head i % perKvHead, so that all of them share the expanded tiles.
template <class Sizes>
struct PrefillBlock {
  static constexpr int kHeadDim = Sizes::kHeadDim;
  using Warp = PrefillWarp<Sizes>;

  const PrefillJob& job;
  __half* shared;
  int kvHead;
  int firstRow;

  __device__ __half* keysOf(int buffer) const {
    return shared + Sizes::kQueryHalves + buffer * Sizes::kBufferHalves;
  }
  __device__ __half* valuesOf(int buffer) const { return keysOf(buffer) + Sizes::kKeyHalves; }

  /// The first row of which this thread has outputs.
  __device__ int rowOfThread() const {
    return firstRow + Warp::rowOfWarp(static_cast<int>(threadIdx.x)) + Warp::lane() / 4;
  }
  /// Offset of row's head in a row of queries or output.
  __device__ std::int64_t offsetOf(int row, std::int64_t stride) const {
    const int head = kvHead * job.perKvHead + row % job.perKvHead;
    return row / job.perKvHead * stride + head * kHeadDim;
  }
  /// nullptr beyond the last row.
  __device__ const float* queryOf(int row) const {
    const MatrixView& queries = job.attention.queries;
    return row < job.nRows ? queries.data + offsetOf(row, queries.stride) : nullptr;
  }

  __device__ void shareQueries() const {
    for (int row = static_cast<int>(threadIdx.x) / kWarpSize; row < Sizes::kRows;
         row += Sizes::kWarps) {
      const float* const source = queryOf(firstRow + row);
      for (int c = Warp::lane(); c < Sizes::kQueryChannels; c += kWarpSize) {
        shared[row * Sizes::kQueryStride + c] =
            halfInRange(source != nullptr ? source[Sizes::kKeptChannels + c] : 0.0F);
      }
    }
  }
  __device__ void keepQueries(Warp& warp) const {
#pragma unroll
    for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const source = queryOf(rowOfThread() + m * 16 + half * 8);
#pragma unroll
        for (int c = 0; c < Sizes::kKeptChannels; c += 8) {
          const int channel = c + Warp::lane() % 4 * 2;
          warp.kept[c / 16][m][c / 8 % 2 * 2 + half] =
              source != nullptr ? packHalves(source[channel], source[channel + 1]) : 0U;
        }
      }
    }
  }

  /// While a tile is multiplied, the next one is on its way. One barrier a tile: it ends the use of
  /// one buffer, and the expansion in the other.
  __device__ void addAll(Warp& warp) const {
    SHARED(states, WalkState[2]);  // behind the tile of each buffer
    using Walk = HistoryWalk<Sizes>;
    const auto stage = [&](Walk& walk, int buffer) {
      const TileFacts tile = walk.stageNext(buffer, keysOf(buffer), valuesOf(buffer));
      if (threadIdx.x == 0) states[buffer] = walk;
      return tile;
    };
    Walk start(job, kvHead, firstRow);
    if (start.isDone()) return;
    TileFacts next = stage(start, 0);
#pragma unroll 1
    for (bool isLast = false; !isLast;) {
      const TileFacts tile = next.hidden();
      const int buffer = tile.buffer();
      Walk::finish(tile, keysOf(buffer), valuesOf(buffer));
      __syncthreads();
      Walk walk(job.attention, kvHead, states[buffer]);
      isLast = walk.isDone();
      if (!isLast) next = stage(walk, 1 - buffer);
      warp.addTile(tile, &states[buffer].firstToken, keysOf(buffer), valuesOf(buffer));
    }
  }

  __device__ void store(const Warp& warp) const {
    const bool isWhole = gridDim.z == 1;
    const std::int64_t partialRow = (std::int64_t{blockIdx.z} * gridDim.y + kvHead) * job.nRows;
#pragma unroll
    for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = warp.sumOf(m, half);
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        const int row = rowOfThread() + m * 16 + half * 8;
        if (row >= job.nRows) continue;
        const MatrixView& output = job.attention.output;
        float* const destination = isWhole ? output.data + offsetOf(row, output.stride)
                                           : job.partials + (partialRow + row) * (kHeadDim + 2);
        const float factor = isWhole ? 1.0F / sum : 1.0F;
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          const int channel = n * 8 + Warp::lane() % 4 * 2;
          destination[channel] = warp.output[m][n][2 * half] * factor;
          destination[channel + 1] = warp.output[m][n][2 * half + 1] * factor;
        }
        if (isWhole || Warp::lane() % 4 != 0) continue;
        destination[kHeadDim] = warp.largest[m][half];
        destination[kHeadDim + 1] = sum;
      }
    }
  }
};

/// x: rows in groups of kRows, the last first, since those see most of the chunk; y: kv heads; z:
/// splits of the history.
template <class Sizes>
__global__ void __launch_bounds__(kPrefillThreads, 2)
    prefillKernel(const __grid_constant__ PrefillJob job) {
  DYN_SHARED(__half, shared);
  const PrefillBlock<Sizes> block{job, shared, static_cast<int>(blockIdx.y),
                                  static_cast<int>(gridDim.x - 1 - blockIdx.x) * Sizes::kRows};
  PrefillWarp<Sizes> warp(job, shared, block.firstRow);
  block.shareQueries();
  block.keepQueries(warp);
  block.addAll(warp);
  block.store(warp);
}

constexpr int kMergeThreads = 128;

/// Joins what the splits left: one warp a query and head.
__global__ void __launch_bounds__(kMergeThreads)
    mergePrefillKernel(const __grid_constant__ PrefillJob job, int nSplits) {
  const AttentionJob& attention = job.attention;
  const int headDim = attention.headDim;
  const std::int64_t nRows = job.nRows;
  const std::int64_t index = (std::int64_t{blockIdx.x} * kMergeThreads + threadIdx.x) / kWarpSize;
  if (index >= nRows * attention.nKvHeads) return;  // a whole warp, and no barrier follows
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t splitFloats = nRows * attention.nKvHeads * (headDim + 2);
  const float* const partial = job.partials + index * (headDim + 2);
  float top = partial[headDim];
  for (int s = 1; s < nSplits; ++s) top = fmaxf(top, partial[s * splitFloats + headDim]);
  float total = 0.0F;
  for (int s = 0; s < nSplits; ++s) {
    const float* const part = partial + s * splitFloats;
    total += part[headDim + 1] * powerOfTwo(part[headDim] - top);
  }
  const std::int64_t row = index % nRows;
  const std::int64_t head = index / nRows * job.perKvHead + row % job.perKvHead;
  float* const destination =
      attention.output.data + row / job.perKvHead * attention.output.stride + head * headDim;
  for (int c = lane; c < headDim; c += kWarpSize) {
    float x = 0.0F;
    for (int s = 0; s < nSplits; ++s) {
      const float* const part = partial + s * splitFloats;
      x += part[c] * powerOfTwo(part[headDim] - top);
    }
    destination[c] = x / total;
  }
}

/// Splits of the history for a grid of `nBlocks`: one where these fill the device, else the fewest
/// that leave little of it idle.
int splitsFor(std::int64_t nBlocks, const AttentionJob& job, const PrefillWorkspace& workspace) {
  constexpr int kMostSplits = 64;
  constexpr std::int64_t kLeastTokens = 512;  // of a split: enough to be worth its partial
  constexpr double kGoodShare = 0.85;
  std::int64_t nTokens = job.nPagedTokens + job.chunkOffset + job.queries.rows;
  for (int i = 0; i + 1 < job.exact.nSpans; ++i) nTokens += job.exact.spans[i].nTokens;
  const std::int64_t partialFloats = job.queries.rows * job.nHeads * (job.headDim + 2);
  const auto most = static_cast<int>(std::min({std::int64_t{kMostSplits}, nTokens / kLeastTokens,
                                               workspace.nPartialFloats / partialFloats}));
  const std::int64_t atOnce = 2 * std::int64_t{workspace.nMultiprocessors};
  int best = 1;
  double bestShare = 0.0;  // of the device's time that its blocks use
  for (int splits = 1; splits <= most && bestShare < kGoodShare; ++splits) {
    const std::int64_t all = nBlocks * splits;
    const double share =
        static_cast<double>(all) / static_cast<double>(ceilDivide(all, atOnce) * atOnce);
    if (share <= bestShare) continue;
    best = splits;
    bestShare = share;
  }
  return best;
}

template <class Sizes>
void launchAs(const AttentionJob& attention, const PrefillWorkspace& workspace,
              const LaunchQueue& queue) {
  const auto kernel = prefillKernel<Sizes>;
  queue.allowShared(reinterpret_cast<const void*>(kernel), Sizes::kSharedBytes);
  constexpr float kLog2E = 1.44269504F;
  const int perKvHead = attention.nHeads / attention.nKvHeads;
  const auto nRows = static_cast<int>(attention.queries.rows) * perKvHead;
  const int nRowBlocks = ceilDivide(nRows, Sizes::kRows);
  const int nSplits =
      splitsFor(std::int64_t{nRowBlocks} * attention.nKvHeads, attention, workspace);
  const PrefillJob job{attention, workspace.partials, attention.scoreScale * kLog2E, perKvHead,
                       nRows};
  const dim3 grid(static_cast<unsigned>(nRowBlocks), static_cast<unsigned>(attention.nKvHeads),
                  static_cast<unsigned>(nSplits));
  launch(kernel, grid, kPrefillThreads, Sizes::kSharedBytes, queue, job);
  if (nSplits == 1) return;
  constexpr int kWarps = kMergeThreads / kWarpSize;
  const dim3 mergeGrid(static_cast<unsigned>(ceilDivide(nRows * attention.nKvHeads, kWarps)));
  launch(mergePrefillKernel, mergeGrid, kMergeThreads, 0, queue, job, nSplits);
}

template <int kHeadDim>
void launchSized(const AttentionJob& job, const PrefillWorkspace& workspace,
                 const LaunchQueue& queue) {
  if (workspace.hasLargeShared) {
    launchAs<PrefillSizes<kHeadDim, 2>>(job, workspace, queue);
  } else {
    launchAs<PrefillSizes<kHeadDim, 1>>(job, workspace, queue);
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

void launchPrefillAttention(const AttentionJob& job, const PrefillWorkspace& workspace,
                            const LaunchQueue& queue) {
  if (job.queries.rows == 0) return;
  switch (job.headDim) {
    case 64:
      return launchSized<64>(job, workspace, queue);
    case 80:
      return launchSized<80>(job, workspace, queue);
    case 96:
      return launchSized<96>(job, workspace, queue);
    default:
      return launchSized<128>(job, workspace, queue);
  }
}

}  // namespace longhand::kernels::cuda
