// Attention for few queries, as in a decode step: up to 32 of a kv head. Bound by memory, so codes
// are read from the pages once and multiplied as they are, never expanded.
//
// A page, or a run of exact tokens, is a unit, and a unit is the work of one warp: its scores, its
// softmax, its weighted sum of values (decode_warp.cuh; what differs between codes and exact
// numbers is in decode_codes.cuh and decode_exact.cuh). The units of a kv head are split over as
// many blocks as fill the device. The warps of a block join their sums in shared memory; the last
// block of a head to finish joins what all of them left in the workspace. So attention is one
// launch, whatever the length of the history.

#include <algorithm>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/decode_codes.cuh"
#include "kernels/cuda/attention/decode_exact.cuh"
#include "kernels/cuda/attention/decode_page.cuh"
#include "kernels/cuda/warp/last_block.cuh"
#include "kernels/cuda/warp/portability.cuh"

namespace longhand::kernels::cuda {
namespace {

constexpr int kMostHeadDim = 256;
constexpr float kLog2OfE = 1.4426950408889634F;

struct DecodeJob {
  AttentionJob attention;
  DecodeWorkspace workspace;
  int nExactUnits;
};

__host__ __device__ inline int exactUnitsOf(const ExactSpan& span) {
  return static_cast<int>(ceilDivide<std::int64_t>(span.nTokens, kDecodeExactTokens));
}

/// Floats of one block's part of the outputs: [nQueries, headDim + 2].
__host__ __device__ inline std::int64_t partialFloats(int nQueries, int headDim) {
  return std::int64_t{nQueries} * (headDim + 2);
}

/// x: splits of the units, y: kv heads, z: queries in portions of Sizes::kQueries.
template <int kHeadBlocks, int kQueries, bool kIsWhole>
struct DecodeBlock {
  using Sizes = DecodeSizes<kHeadBlocks, kQueries, kIsWhole>;
  using Warp = DecodeWarp<kHeadBlocks, kQueries, kIsWhole>;
  static constexpr int kQueryTiles = Sizes::kQueryTiles;
  static constexpr int kThreads = Sizes::kWarps * kWarpSize;

  /// On a multiprocessor, for the compiler: as many as its registers hold without spilling.
  static constexpr int kBlocksAtOnce = Sizes::kWarps == 2 ? 4 : kQueries == 1 ? 3 : 2;

  const DecodeJob& job;
  int kvHead;
  int perKvHead;   // queries of a row
  int firstQuery;  // of this block, of the rows * perKvHead of its kv head
  int nQueries;
  unsigned char* shared;

  __device__ DecodeBlock(const DecodeJob& jobIn, unsigned char* sharedIn)
      : job(jobIn),
        kvHead(static_cast<int>(blockIdx.y)),
        perKvHead(jobIn.attention.nHeads / jobIn.attention.nKvHeads),
        firstQuery(static_cast<int>(blockIdx.z) * Sizes::kQueries),
        nQueries(kQueries == 1 ? 1
                               : min(Sizes::kQueries,
                                     static_cast<int>(jobIn.attention.queries.rows) * perKvHead -
                                         firstQuery)),
        shared(sharedIn) {}

  /// Where query i of the block starts in a matrix of all heads.
  __device__ float* rowOf(const MatrixView& matrix, int i) const {
    const int query = firstQuery + i;
    const std::int64_t head = kvHead * perKvHead + query % perKvHead;
    return matrix.data + query / perKvHead * matrix.stride + head * job.attention.headDim;
  }
  __device__ __half* exactParts() const { return reinterpret_cast<__half*>(shared); }
  __device__ float* queryFloats() const {
    return reinterpret_cast<float*>(shared + Sizes::exactBytes(nQueries));
  }

  __device__ float* exactFactors() const { return queryFloats() + nQueries * Sizes::kChannels; }

  __device__ void loadQueries() const {
    constexpr float kOfHalves = 1.0F / 32768.0F;  // from 2^30 to 2^15
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    for (int i = static_cast<int>(threadIdx.x) / kWarpSize; i < nQueries; i += Sizes::kWarps) {
      const float* const row = rowOf(job.attention.queries, i);
      float x[kHeadBlocks];
      float top = 0.0F;
#pragma unroll
      for (int b = 0; b < kHeadBlocks; ++b) {
        const int c = 32 * b + lane;
        x[b] = c < job.attention.headDim ? row[c] * (job.attention.scoreScale * kLog2OfE) : 0.0F;
        top = fmaxf(top, fabsf(x[b]));
      }
      const FixedPoint fixed = fixedPointFor(warpMaxOfMagnitudes(top));
      if (lane == 0) exactFactors()[i] = fixed.factor / kOfHalves;
#pragma unroll
      for (int b = 0; b < kHeadBlocks; ++b) {
        const int c = 32 * b + lane;
        const SplitHalf parts = splitHalf(x[b] * (fixed.unit * kOfHalves));
        queryFloats()[i * Sizes::kChannels + c] = x[b];
        exactParts()[i * 2 * Sizes::kQueryStride + c] = parts.high;
        exactParts()[(i * 2 + 1) * Sizes::kQueryStride + c] = parts.low;
      }
    }
  }

  __device__ void prepare(Warp& warp, int index) const {
    unsigned char* const own =
        shared + Sizes::blockBytes(nQueries) + index * Sizes::warpBytes(nQueries);
    unsigned char* const operands = own + Sizes::scoreBytes(nQueries);
    warp.nHeadChannels = job.attention.headDim;
    warp.nBlockQueries = nQueries;
    warp.queries = queryFloats();
    warp.exactParts = exactParts();
    warp.exactFactors = exactFactors();
    warp.scores = reinterpret_cast<float*>(own);
    warp.digits = reinterpret_cast<unsigned*>(operands);
    warp.weights = reinterpret_cast<__half*>(operands);
    warp.states = reinterpret_cast<float*>(operands + Sizes::operandBytes(nQueries));
    warp.numbers = warp.states + nQueries * Sizes::kStateFloats;
    warp.start();
  }

  __device__ HeadParts* partsOf(int index) const {
    return reinterpret_cast<HeadParts*>(shared + Sizes::totalBytes(nQueries)) + index;
  }

  __device__ __forceinline__ static CodePage codesOf(const DecodePage& page, std::uint32_t codes,
                                                     std::uint32_t scales, std::uint32_t mins) {
    return {reinterpret_cast<const std::uint32_t*>(page.data + codes),
            reinterpret_cast<const __half*>(page.data + scales),
            reinterpret_cast<const __half*>(page.data + mins),
            page.format >> 24U != static_cast<unsigned>(QuantScheme::kAsymmetric), page.nTokens()};
  }

  __device__ __forceinline__ void scorePage(Warp& warp, const DecodePage& page,
                                            const HeadParts& parts) const {
    const CodePage keys = codesOf(page, parts.keys, parts.keyScales, parts.keyMins);
    const auto type = static_cast<DataType>(page.rest & 0xffU);
    const unsigned group = page.format >> 16U & 0xffU;
    switch (page.format & 0xffU) {
      case 16:
        scoreExact(warp, type, page.data + parts.keys, page.nTokens());
        break;
      case 8:
        scoreCodes<8>(warp, keys, group);
        break;
      case 4:
        scoreCodes<4>(warp, keys, group);
        break;
      default:
        scoreCodes<2>(warp, keys, group);
    }
  }

  __device__ __forceinline__ void addPage(Warp& warp, const DecodePage& page,
                                          const HeadParts& parts) const {
    const auto type = static_cast<DataType>(page.rest & 0xffU);
    const unsigned group = page.format >> 16U & 0xffU;
    const CodePage values = codesOf(page, parts.values, parts.valueScales, parts.valueMins);
    const auto limitOf = [&page](int /*query*/) { return page.nTokens(); };
    switch (page.format >> 8U & 0xffU) {
      case 16:
        addExact(warp, type, page.data + parts.values, page.nTokens(), static_cast<int>(group),
                 limitOf);
        break;
      case 8:
        addCodes<8>(warp, values, group);
        break;
      case 4:
        addCodes<4>(warp, values, group);
        break;
      default:
        addCodes<2>(warp, values, group);
    }
  }

  template <int kNbits>
  __device__ __forceinline__ static void scoreCodes(Warp& warp, const CodePage& page,
                                                    unsigned group) {
    DecodeCodes<Warp> codes{warp};
    switch (group) {
      case 32:
        return codes.template score<kNbits, 32>(page);
      case 64:
        return codes.template score<kNbits, 64>(page);
      default:
        return codes.template score<kNbits, 128>(page);
    }
  }
  template <int kNbits>
  __device__ __forceinline__ static void addCodes(Warp& warp, const CodePage& page,
                                                  unsigned group) {
    DecodeCodes<Warp> codes{warp};
    switch (group) {
      case 32:
        return codes.template add<kNbits, 32>(page);
      case 64:
        return codes.template add<kNbits, 64>(page);
      default:
        return codes.template add<kNbits, 128>(page);
    }
  }

  /// Asks for the kv head's part of a page, so that it lies in L2 when its turn comes: the warp
  /// works on another page meanwhile, and memory answers after some 600 ns.
  __device__ __forceinline__ void prefetch(const DecodePage& page, const HeadParts& parts) const {
    constexpr int kPrefetchBytes = 64;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const auto codes = [&](std::uint32_t offset, int headBytes) {
#pragma unroll 1
      for (int at = lane * kPrefetchBytes; at < headBytes; at += kWarpSize * kPrefetchBytes) {
        prefetchToL2(page.data + offset + at);
      }
    };
    codes(parts.keys, parts.keyBytes);
    codes(parts.values, parts.valueBytes);
    // A quarter of the warp for each of the other parts, of up to 512 bytes.
    const bool isKey = lane < 16;
    const std::uint32_t scales = isKey ? parts.keyScales : parts.valueScales;
    const std::uint32_t mins = isKey ? parts.keyMins : parts.valueMins;
    const int at = lane % 8 * kPrefetchBytes;
    if (at < (isKey ? parts.keyScaleBytes : parts.valueScaleBytes)) {
      prefetchToL2(page.data + (lane % 16 < 8 ? scales : mins) + at);
    }
  }

  /// `keys` of the kv head, from the unit's first token on.
  __device__ __forceinline__ static void scoreExact(Warp& warp, DataType type,
                                                    const std::byte* keys, int nTokens) {
    DecodeExact<Warp> exact{warp};
    if (type == DataType::kF16) {
      exact.score(reinterpret_cast<const __half*>(keys), nTokens);
    } else {
      exact.score(reinterpret_cast<const float*>(keys), nTokens);
    }
  }
  template <class LimitOf>
  __device__ __forceinline__ static void addExact(Warp& warp, DataType type,
                                                  const std::byte* values, int nTokens,
                                                  int capacity, const LimitOf& limitOf) {
    DecodeExact<Warp> exact{warp};
    __syncwarp();  // all scores are there, and the digits of the keys have been read
    exact.weigh(capacity, limitOf);
    __syncwarp();
    if (type == DataType::kF16) {
      exact.add(reinterpret_cast<const __half*>(values), nTokens, capacity);
    } else {
      exact.add(reinterpret_cast<const float*>(values), nTokens, capacity);
    }
    __syncwarp();
  }

  /// Exact unit `unit`, counted over all spans.
  __device__ void addExactUnit(Warp& warp, int unit) const {
    const AttentionJob& attention = job.attention;
    int i = 0;
    while (unit >= exactUnitsOf(attention.exact.spans[i])) {
      unit -= exactUnitsOf(attention.exact.spans[i++]);
    }
    const ExactSpan& span = attention.exact.spans[i];
    const std::int64_t firstToken = std::int64_t{unit} * kDecodeExactTokens;
    const int nTokens =
        static_cast<int>(min(std::int64_t{kDecodeExactTokens}, span.nTokens - firstToken));
    const std::int64_t first = (kvHead * span.tokenCapacity + firstToken) * attention.headDim *
                               (span.type == DataType::kF32 ? 4 : 2);
    scoreExact(warp, span.type, span.keys + first, nTokens);
    const bool isChunk = i + 1 == attention.exact.nSpans;
    const auto limitOf = [&](int query) {
      if (!isChunk) return nTokens;
      const std::int64_t visible =
          attention.chunkOffset + (firstQuery + query) / perKvHead + 1 - firstToken;
      return static_cast<int>(min(std::int64_t{nTokens}, max(std::int64_t{0}, visible)));
    };
    addExact(warp, span.type, span.values + first, nTokens, kDecodeExactTokens, limitOf);
  }

  /// Sums up the warps: [kWarps, nQueries, headDim] and maxima and sums behind it, in the place of
  /// the warps' own memory. The result goes to the output or to the split's partial.
  __device__ void mergeWarps(Warp& warp, int index) const {
    const int headDim = job.attention.headDim;
    // A warp's maxima and sums first: the outputs take the place of all else.
    const int mine = min(warp.lane(), nQueries - 1);
    float ownSum = 0.0F;
    warp.finish([&](int query, float sum) {
      if (query == mine) ownSum = sum;
    });
    const float ownLargest = warp.largest(mine);
    __syncthreads();
    float* const outputs = reinterpret_cast<float*>(shared);
    float* const largest = outputs + Sizes::kWarps * nQueries * headDim;  // [kWarps, nQueries]
    float* const sums = largest + Sizes::kWarps * nQueries;               // likewise
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
      const int query = 4 * n + warp.wordOfLane();
      if (query >= nQueries) continue;
      float* const row = outputs + (index * nQueries + query) * headDim;
#pragma unroll
      for (int b = 0; b < kHeadBlocks; ++b) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const int channel = 32 * b + 4 * warp.rowOfLane() + 2 * m;
          if (channel >= headDim) continue;
          row[channel] = warp.output[b][m][n][0];
          row[channel + 1] = warp.output[b][m][n][1];
        }
      }
    }
    if (warp.lane() < nQueries) {
      largest[index * nQueries + mine] = ownLargest;
      sums[index * nQueries + mine] = ownSum;
    }
    __syncthreads();

    const bool isWhole = gridDim.x == 1;
    for (int i = 0; i < nQueries; ++i) {
      float top = kNoScore;
      for (int w = 0; w < Sizes::kWarps; ++w) top = fmaxf(top, largest[w * nQueries + i]);
      float total = 0.0F;
      for (int w = 0; w < Sizes::kWarps; ++w) {
        total += sums[w * nQueries + i] * exp2f(largest[w * nQueries + i] - top);
      }
      float* const destination =
          isWhole ? rowOf(job.attention.output, i) : partialOf(blockIdx.x) + i * (headDim + 2);
      const float factor = isWhole ? 1.0F / total : 1.0F;
      for (int c = static_cast<int>(threadIdx.x); c < headDim; c += kThreads) {
        float x = 0.0F;
        for (int w = 0; w < Sizes::kWarps; ++w) {
          x += outputs[(w * nQueries + i) * headDim + c] * exp2f(largest[w * nQueries + i] - top);
        }
        destination[c] = x * factor;
      }
      if (!isWhole && threadIdx.x == 0) {
        destination[headDim] = top;
        destination[headDim + 1] = total;
      }
    }
  }

  /// [nQueries, headDim + 2]: outputs, maximum, sum.
  __device__ float* partialOf(unsigned split) const {
    const std::int64_t portion = std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y;
    return job.workspace.partials +
           (portion * gridDim.x + split) * partialFloats(Sizes::kQueries, job.attention.headDim);
  }

  /// The last block of a kv head and portion joins what all of them left.
  __device__ void mergeSplits() const {
    if (gridDim.x == 1) return;
    SHARED(isLast, bool);
    const int headDim = job.attention.headDim;
    unsigned* const counter = job.workspace.finished + blockIdx.z * gridDim.y + blockIdx.y;
    __syncthreads();
    if (threadIdx.x == 0) isLast = countBlock(counter) == gridDim.x - 1;
    __syncthreads();
    if (!isLast) return;
    for (int i = 0; i < nQueries; ++i) {
      float top = kNoScore;
      for (unsigned s = 0; s < gridDim.x; ++s) {
        top = fmaxf(top, partialOf(s)[i * (headDim + 2) + headDim]);
      }
      float* const row = rowOf(job.attention.output, i);
      for (int c = static_cast<int>(threadIdx.x); c < headDim; c += kThreads) {
        float total = 0.0F;
        float x = 0.0F;
        for (unsigned s = 0; s < gridDim.x; ++s) {
          const float* const partial = partialOf(s) + i * (headDim + 2);
          const float factor = exp2f(partial[headDim] - top);
          x += partial[c] * factor;
          total += partial[headDim + 1] * factor;
        }
        row[c] = x / total;
      }
    }
    if (threadIdx.x == 0) *counter = 0;  // for the next launch
  }
};

template <int kHeadBlocks, int kQueries, bool kIsWhole>
__global__ void __launch_bounds__(DecodeBlock<kHeadBlocks, kQueries, kIsWhole>::kThreads,
                                  DecodeBlock<kHeadBlocks, kQueries, kIsWhole>::kBlocksAtOnce)
    decodeKernel(const __grid_constant__ DecodeJob job) {
  using Block = DecodeBlock<kHeadBlocks, kQueries, kIsWhole>;
  DYN_SHARED(unsigned char, shared);
  const Block block(job, shared);
  block.loadQueries();
  __syncthreads();

  // The same in all lanes, which the compiler is to know: one register less in each.
  const int index = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpSize, 0);
  typename Block::Warp warp;
  block.prepare(warp, index);
  const AttentionJob& attention = job.attention;
  const int headDim = kIsWhole ? Block::Sizes::kChannels : attention.headDim;
  const int nUnits = attention.nPages + job.nExactUnits;
  const int step = static_cast<int>(gridDim.x) * Block::Sizes::kWarps;
  int unit = static_cast<int>(blockIdx.x) * Block::Sizes::kWarps + index;
  HeadParts* const parts = block.partsOf(index);  // of pages of the format `known`
  unsigned known = 0;
  DecodePage page;
  if (unit < attention.nPages) page = DecodePage::load(attention.pages + unit);
#pragma unroll 1
  for (; unit < attention.nPages; unit += step) {
    DecodePage next;
    if (unit + step < attention.nPages) next = DecodePage::load(attention.pages + unit + step);
    if (page.formatKey() != known) {
      known = page.formatKey();
      __syncwarp();
      if (warp.lane() == 0) {
        *parts = HeadParts::of(page.pageFormat(), attention.nKvHeads, block.kvHead, headDim);
      }
      __syncwarp();
    }
    block.scorePage(warp, page, *parts);
    if (next.formatKey() == known) block.prefetch(next, *parts);
    block.addPage(warp, page, *parts);
    page = next;
  }
#pragma unroll 1
  for (; unit < nUnits; unit += step) block.addExactUnit(warp, unit - attention.nPages);
  block.mergeWarps(warp, index);
  block.mergeSplits();
}

/// Splits of the units, of at most `most`: the fewest whose nParallel blocks each leave little of
/// the device idle. Blocks work equally long, so those behind the last full round of the nAtOnce
/// that it holds are alone with its memory, which a few blocks cannot keep busy.
int splitsFor(int nParallel, int nAtOnce, int most) {
  constexpr double kGoodShare = 0.95;
  int best = 1;
  double bestShare = 0.0;  // of the device's time that the blocks use
  for (int splits = 1; splits <= most && bestShare < kGoodShare; ++splits) {
    const int all = nParallel * splits;
    const double share =
        static_cast<double>(all) / static_cast<double>(ceilDivide(all, nAtOnce) * nAtOnce);
    if (share <= bestShare) continue;
    best = splits;
    bestShare = share;
  }
  return best;
}

template <int kHeadBlocks, int kQueries, bool kIsWhole>
void launchAs(const DecodeJob& job, const LaunchQueue& queue) {
  using Sizes = DecodeSizes<kHeadBlocks, kQueries, kIsWhole>;
  const AttentionJob& attention = job.attention;
  const int nQueries =
      static_cast<int>(attention.queries.rows) * (attention.nHeads / attention.nKvHeads);
  const int portions = ceilDivide(nQueries, Sizes::kQueries);
  const int shared = Sizes::totalBytes(std::min(nQueries, Sizes::kQueries)) +
                     Sizes::kWarps * static_cast<int>(sizeof(HeadParts));
  const auto kernel = decodeKernel<kHeadBlocks, kQueries, kIsWhole>;
  const int nAtOnce =
      job.workspace.nMultiprocessors * queue.blocksAtOnce(reinterpret_cast<const void*>(kernel),
                                                          Sizes::kWarps * kWarpSize,
                                                          static_cast<std::size_t>(shared));
  // Every block's first warp has a unit.
  const int nUnits = attention.nPages + job.nExactUnits;
  const std::int64_t room =
      job.workspace.nPartialFloats / partialFloats(Sizes::kQueries, attention.headDim);
  const int nParallel = attention.nKvHeads * portions;
  const int nSplits =
      splitsFor(nParallel, nAtOnce,
                std::min(static_cast<int>(room / nParallel), ceilDivide(nUnits, Sizes::kWarps)));
  const dim3 grid(static_cast<unsigned>(nSplits), static_cast<unsigned>(attention.nKvHeads),
                  static_cast<unsigned>(portions));
  launch(kernel, grid, Sizes::kWarps * kWarpSize, static_cast<std::size_t>(shared), queue, job);
}

bool isAligned(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

}  // namespace

bool canDecode(const AttentionJob& job) {
  const std::int64_t nQueries = job.queries.rows * (job.nHeads / job.nKvHeads);
  if (nQueries > kMostDecodeQueries || job.headDim % 8 != 0 || job.headDim > kMostHeadDim) {
    return false;
  }
  if (job.nKvHeads * nQueries > kMostDecodeCounters) return false;
  for (int i = 0; i < job.exact.nSpans; ++i) {
    const ExactSpan& span = job.exact.spans[i];
    if (!isAligned(span.keys) || !isAligned(span.values)) return false;
  }
  return true;
}

void launchDecodeAttention(const AttentionJob& attention, const DecodeWorkspace& workspace,
                           const LaunchQueue& queue) {
  if (attention.queries.rows == 0) return;
  DecodeJob job{attention, workspace, 0};
  ExactSpan& chunk = job.attention.exact.spans[attention.exact.nSpans - 1];
  chunk.nTokens = attention.chunkOffset + attention.queries.rows;
  for (int i = 0; i < attention.exact.nSpans; ++i) {
    job.nExactUnits += exactUnitsOf(job.attention.exact.spans[i]);
  }
  const std::int64_t nQueries = attention.queries.rows * (attention.nHeads / attention.nKvHeads);
  if (attention.headDim <= 64) {
    if (nQueries == 1) return launchAs<2, 1, false>(job, queue);
    return nQueries <= 4 ? launchAs<2, 4, false>(job, queue) : launchAs<2, 8, false>(job, queue);
  }
  if (attention.headDim == 128) {
    if (nQueries == 1) return launchAs<4, 1, true>(job, queue);
    return nQueries <= 4 ? launchAs<4, 4, true>(job, queue) : launchAs<4, 8, true>(job, queue);
  }
  // Other sizes are rare: 80, 96 and 256 have been seen.
  if (attention.headDim < 128) return launchAs<4, 4, false>(job, queue);
  launchAs<8, 4, false>(job, queue);
}

}  // namespace longhand::kernels::cuda
