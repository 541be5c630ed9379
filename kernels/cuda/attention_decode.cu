#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/decode_warp.h"
#include "kernels/cuda/last_block.h"
#include "kernels/cuda/portability.h"

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
template <int kHeadBlocks, int kQueryTiles>
struct DecodeBlock {
  using Sizes = DecodeSizes<kHeadBlocks, kQueryTiles>;
  using Warp = DecodeWarp<kHeadBlocks, kQueryTiles>;
  static constexpr int kThreads = Sizes::kWarps * kWarpSize;

  /// On a multiprocessor, for the compiler: as many as its registers hold without spilling.
  static constexpr int kBlocksAtOnce = kHeadBlocks * kQueryTiles > 4 ? 4 : kQueryTiles == 2 ? 6 : 3;

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
        nQueries(min(Sizes::kQueries,
                     static_cast<int>(jobIn.attention.queries.rows) * perKvHead - firstQuery)),
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
      const float unit = Warp::unitFor(warpMax(top));
      if (lane == 0) exactFactors()[i] = 1.0F / unit;
#pragma unroll
      for (int b = 0; b < kHeadBlocks; ++b) {
        const int c = 32 * b + lane;
        const SplitHalf parts = splitHalf(x[b] * unit);
        queryFloats()[i * Sizes::kChannels + c] = x[b];
        exactParts()[i * 2 * Sizes::kQueryStride + c] = parts.high;
        exactParts()[(i * 2 + 1) * Sizes::kQueryStride + c] = parts.low;
      }
    }
  }

  __device__ void prepare(Warp& warp, int index) const {
    unsigned char* const own =
        shared + Sizes::blockBytes(nQueries) + index * Sizes::warpBytes(nQueries);
    warp.headDim = job.attention.headDim;
    warp.nQueries = nQueries;
    warp.queries = queryFloats();
    warp.exactParts = exactParts();
    warp.exactFactors = exactFactors();
    warp.foldedParts = reinterpret_cast<__half*>(own);
    warp.scores = reinterpret_cast<float*>(own + Sizes::exactBytes(nQueries));
    warp.weights =
        reinterpret_cast<__half*>(own + Sizes::exactBytes(nQueries) + Sizes::scoreBytes(nQueries));
    warp.largest =
        reinterpret_cast<float*>(own + Sizes::exactBytes(nQueries) + Sizes::scoreBytes(nQueries) +
                                 Sizes::weightBytes(nQueries));
    warp.sum = warp.largest + nQueries;
    warp.start();
  }

  __device__ void addPage(Warp& warp, const PageRef& page) const {
    const int headDim = job.attention.headDim;
    const PageParts parts = pageParts(page.format, job.attention.nKvHeads, headDim);
    const int nTokens = page.nTokens;
    scorePage(warp, page, parts, nTokens);

    const int group = page.format.groupSize;
    const int stride = weightStride(group);
    const auto limitOf = [nTokens](int /*query*/) { return nTokens; };
    if (page.format.valueNbits == 16) {
      warp.template softmax<false>(nTokens, stride, 1, headDim, limitOf, [](int, int) {
        return GroupScale{1.0F, 0.0F};
      });
      const std::int64_t first = std::int64_t{kvHead} * group * headDim;
      addExact(warp, page.format.exactType, page.data + parts.valueCodes, first, nTokens, stride);
      return;
    }
    const bool hasMins = page.format.scheme == QuantScheme::kAsymmetric;
    const float middle = static_cast<float>(1 << (page.format.valueNbits - 1));
    const int firstScale = kvHead * parts.nValueGroups * group;
    const auto scaleOf = [&](int valueGroup, int token) {
      GroupScale scale = readScale(page.data, parts.valueScales, parts.valueMins, hasMins,
                                   firstScale + valueGroup * group + token);
      if (!hasMins) scale.min = -middle * scale.scale;
      return scale;
    };
    warp.template softmax<true>(nTokens, stride, parts.nValueGroups, parts.valueGroupSize, limitOf,
                                scaleOf);
    const auto* words = reinterpret_cast<const std::uint32_t*>(page.data + parts.valueCodes) +
                        kvHead * parts.valueWords * headDim;
    switch (page.format.valueNbits) {
      case 8:
        return warp.template addCodes<8>(words, parts.valueWords, parts.valueGroupSize, stride);
      case 4:
        return warp.template addCodes<4>(words, parts.valueWords, parts.valueGroupSize, stride);
      default:
        return warp.template addCodes<2>(words, parts.valueWords, parts.valueGroupSize, stride);
    }
  }

  /// Asks for the kv head's part of a page, so that it lies in L2 when its turn comes: the warp
  /// works on another page meanwhile, and memory answers after some 600 ns.
  __device__ void prefetch(const PageRef& page) const {
    const int headDim = job.attention.headDim;
    const PageFormat& format = page.format;
    const int group = format.groupSize;
    const PageParts parts = pageParts(format, job.attention.nKvHeads, headDim);
    const auto part = [&](std::uint32_t offset, int headBytes) {
      const std::byte* const first =
          page.data + offset + static_cast<std::int64_t>(kvHead) * headBytes;
      constexpr int kPrefetchBytes = 64;
      const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
      for (int at = lane * kPrefetchBytes; at < headBytes; at += kWarpSize * kPrefetchBytes) {
        prefetchToL2(first + at);
      }
    };
    const int exactBytes = group * headDim * (format.exactType == DataType::kF32 ? 4 : 2);
    const bool hasMins = format.scheme == QuantScheme::kAsymmetric;
    part(parts.keyCodes, format.keyNbits == 16 ? exactBytes : parts.keyWords * group * 4);
    part(parts.valueCodes, format.valueNbits == 16 ? exactBytes : parts.valueWords * headDim * 4);
    if (format.keyNbits != 16) {
      part(parts.keyScales, headDim * 2);
      if (hasMins) part(parts.keyMins, headDim * 2);
    }
    if (format.valueNbits != 16) {
      part(parts.valueScales, parts.nValueGroups * group * 2);
      if (hasMins) part(parts.valueMins, parts.nValueGroups * group * 2);
    }
  }

  __device__ void scorePage(Warp& warp, const PageRef& page, const PageParts& parts,
                            int nTokens) const {
    const int group = page.format.groupSize;
    if (page.format.keyNbits == 16) {
      const std::int64_t first = std::int64_t{kvHead} * group * job.attention.headDim;
      scoreExact(warp, page.format.exactType, page.data + parts.keyCodes, first, nTokens);
      return;
    }
    const typename Warp::Folded folded = warp.foldScales(page, parts, kvHead);
    const auto* words = reinterpret_cast<const std::uint32_t*>(page.data + parts.keyCodes) +
                        kvHead * parts.keyWords * group;
    switch (page.format.keyNbits) {
      case 8:
        return warp.template scoreCodes<8>(words, parts.keyWords, group, nTokens, folded);
      case 4:
        return warp.template scoreCodes<4>(words, parts.keyWords, group, nTokens, folded);
      default:
        return warp.template scoreCodes<2>(words, parts.keyWords, group, nTokens, folded);
    }
  }

  __device__ static void scoreExact(Warp& warp, DataType type, const std::byte* numbers,
                                    std::int64_t first, int nTokens) {
    if (type == DataType::kF16) {
      warp.scoreExact(reinterpret_cast<const __half*>(numbers) + first, nTokens);
    } else {
      warp.scoreExact(reinterpret_cast<const float*>(numbers) + first, nTokens);
    }
  }
  __device__ static void addExact(Warp& warp, DataType type, const std::byte* numbers,
                                  std::int64_t first, int nTokens, int stride) {
    if (type == DataType::kF16) {
      warp.addExact(reinterpret_cast<const __half*>(numbers) + first, nTokens, stride);
    } else {
      warp.addExact(reinterpret_cast<const float*>(numbers) + first, nTokens, stride);
    }
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
    const std::int64_t first = (kvHead * span.tokenCapacity + firstToken) * attention.headDim;
    scoreExact(warp, span.type, span.keys, first, nTokens);
    const bool isChunk = i + 1 == attention.exact.nSpans;
    const auto limitOf = [&](int query) {
      if (!isChunk) return nTokens;
      const std::int64_t visible =
          attention.chunkOffset + (firstQuery + query) / perKvHead + 1 - firstToken;
      return static_cast<int>(min(std::int64_t{nTokens}, max(std::int64_t{0}, visible)));
    };
    const int stride = weightStride(kDecodeExactTokens);
    warp.template softmax<false>(nTokens, stride, 1, attention.headDim, limitOf, [](int, int) {
      return GroupScale{1.0F, 0.0F};
    });
    addExact(warp, span.type, span.values, first, nTokens, stride);
  }

  /// Sums up the warps: [kWarps, nQueries, headDim] and maxima and sums behind it, in the place of
  /// the warps' own memory. The result goes to the output or to the split's partial.
  __device__ void mergeWarps(const Warp& warp, int index) const {
    const int headDim = job.attention.headDim;
    // A warp's maxima and sums first: the outputs take the place of all else.
    const int mine = min(warp.lane(), nQueries - 1);
    const float ownLargest = warp.largest[mine];
    const float ownSum = warp.sum[mine];
    __syncthreads();
    float* const outputs = reinterpret_cast<float*>(shared);
    float* const largest = outputs + Sizes::kWarps * nQueries * headDim;  // [kWarps, nQueries]
    float* const sums = largest + Sizes::kWarps * nQueries;               // likewise
    const float perUnit = 1.0F / warp.unit;
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
          const float(&tile)[4] = warp.output[b][m][n];
          row[channel] = (tile[0] + tile[1]) * perUnit;
          row[channel + 1] = (tile[2] + tile[3]) * perUnit;
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
      float top = -INFINITY;
      for (int w = 0; w < Sizes::kWarps; ++w) top = fmaxf(top, largest[w * nQueries + i]);
      const float reference = top == -INFINITY ? 0.0F : top;
      float total = 0.0F;
      for (int w = 0; w < Sizes::kWarps; ++w) {
        total += sums[w * nQueries + i] * exp2f(largest[w * nQueries + i] - reference);
      }
      float* const destination =
          isWhole ? rowOf(job.attention.output, i) : partialOf(blockIdx.x) + i * (headDim + 2);
      const float factor = isWhole ? 1.0F / total : 1.0F;
      for (int c = static_cast<int>(threadIdx.x); c < headDim; c += kThreads) {
        float x = 0.0F;
        for (int w = 0; w < Sizes::kWarps; ++w) {
          x += outputs[(w * nQueries + i) * headDim + c] *
               exp2f(largest[w * nQueries + i] - reference);
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
      float top = -INFINITY;
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

template <int kHeadBlocks, int kQueryTiles>
__global__ void __launch_bounds__(DecodeBlock<kHeadBlocks, kQueryTiles>::kThreads,
                                  DecodeBlock<kHeadBlocks, kQueryTiles>::kBlocksAtOnce)
    decodeKernel(const __grid_constant__ DecodeJob job) {
  using Block = DecodeBlock<kHeadBlocks, kQueryTiles>;
  DYN_SHARED(unsigned char, shared);
  const Block block(job, shared);
  block.loadQueries();
  __syncthreads();

  const int index = static_cast<int>(threadIdx.x) / kWarpSize;
  typename Block::Warp warp;
  block.prepare(warp, index);
  const int nUnits = job.attention.nPages + job.nExactUnits;
  const int step = static_cast<int>(gridDim.x) * Block::Sizes::kWarps;
#pragma unroll 1
  for (int unit = static_cast<int>(blockIdx.x) * Block::Sizes::kWarps + index; unit < nUnits;
       unit += step) {
    if (unit + step < job.attention.nPages) block.prefetch(job.attention.pages[unit + step]);
    if (unit < job.attention.nPages) {
      block.addPage(warp, job.attention.pages[unit]);
    } else {
      block.addExactUnit(warp, unit - job.attention.nPages);
    }
  }
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

template <int kHeadBlocks, int kQueryTiles>
void launchAs(const DecodeJob& job, const LaunchQueue& queue) {
  using Sizes = DecodeSizes<kHeadBlocks, kQueryTiles>;
  const AttentionJob& attention = job.attention;
  const int nQueries =
      static_cast<int>(attention.queries.rows) * (attention.nHeads / attention.nKvHeads);
  const int portions = ceilDivide(nQueries, Sizes::kQueries);
  const int shared = Sizes::totalBytes(std::min(nQueries, Sizes::kQueries));
  const auto kernel = decodeKernel<kHeadBlocks, kQueryTiles>;
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
  const bool isMany = attention.queries.rows * (attention.nHeads / attention.nKvHeads) > 4;
  if (attention.headDim <= 64) {
    return isMany ? launchAs<2, 2>(job, queue) : launchAs<2, 1>(job, queue);
  }
  if (attention.headDim <= 128) {
    return isMany ? launchAs<4, 2>(job, queue) : launchAs<4, 1>(job, queue);
  }
  launchAs<8, 1>(job, queue);
}

}  // namespace longhand::kernels::cuda
