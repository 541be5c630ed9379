// Pages from exact tokens and back: a block brings its channels of all tokens to shared memory,
// finds the scales of its groups (group_solver.cuh) and writes codes as whole words. What comes out
// equals the CPU's page bit for bit, so nothing here may be fused or reordered.

#include "kernels/cuda/pages/group_solver.cuh"
#include "kernels/cuda/pages/kv_device.cuh"
#include "kernels/cuda/pages/pack_page.h"
#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/warp.cuh"

namespace longhand::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
/// Channels of a block: a multiple of every group size and of every word of codes.
constexpr int kChunk = 128;
/// Halves of a token in shared memory: an odd number of banks, so that neither a row nor a column
/// of numbers meets one bank twice.
constexpr int kTileStride = kChunk + 2;
constexpr int kMostTokens = 128;
constexpr int kMostScales = kMostTokens * (kChunk / 32);

/// What the blocks of one page share, by value.
struct PackJob {
  SpanList source;
  PageFormat format;
  QuantSolver solver;
  PageParts parts;
  std::byte* page;
  int nKvHeads;
  int headDim;
};

/// Where a page's token lies among the source spans: its row of numbers, [headDim].
struct SourceRow {
  DataType type;
  const std::byte* numbers;
  std::int64_t first;
};

__device__ __forceinline__ SourceRow sourceRow(const PackJob& job, bool isKey, int kvHead,
                                               int token) {
  int i = 0;
  while (token >= job.source.spans[i].nTokens) {
    token -= static_cast<int>(job.source.spans[i++].nTokens);
  }
  const ExactSpan& span = job.source.spans[i];
  return {span.type, isKey ? span.keys : span.values,
          (kvHead * span.tokenCapacity + token) * job.headDim};
}

__device__ __forceinline__ float roundForPacking(float value) {
  constexpr float kLargestHalf = 65504.0F;
  const float rounded = __half2float(__float2half_rn(value));
  return rounded > kLargestHalf ? kLargestHalf
                                : (rounded < -kLargestHalf ? -kLargestHalf : rounded);
}

/// The values of one group in shared memory.
struct TileGroup {
  const __half* values;
  int count;
  int step;  // from one value to the next
  __device__ int size() const { return count; }
  __device__ float operator[](int i) const { return __half2float(values[i * step]); }
};

/// kChunk channels of the keys or the values of one kv head: the numbers are read once, and the
/// block's shared memory holds them and their scales until the codes are written.
struct PackBlock {
  const PackJob& job;
  bool isKey;
  int kvHead;
  int firstChannel;
  int nChannels;
  __half* tile;        // [groupSize, kTileStride]
  GroupScale* scales;  // keys: [channel], values: [value group, token]

  __device__ int nbits() const { return isKey ? job.format.keyNbits : job.format.valueNbits; }
  __device__ int groupSize() const { return job.format.groupSize; }

  /// A 16-bit part: nothing to pack.
  __device__ void copyExactPart() const {
    std::byte* const part = job.page + (isKey ? job.parts.keyCodes : job.parts.valueCodes);
    forEachRow([&](int token, const SourceRow& row) {
      const std::int64_t first = (std::int64_t{kvHead} * groupSize() + token) * job.headDim;
      for (int c = lane(); c < nChannels; c += kWarpSize) {
        writeExact(job.format.exactType, part, first + firstChannel + c,
                   readExact(row.type, row.numbers, row.first + firstChannel + c));
      }
    });
  }

  __device__ void loadTile() const {
    forEachRow([&](int token, const SourceRow& row) {
      for (int c = lane(); c < nChannels; c += kWarpSize) {
        const float x = readExact(row.type, row.numbers, row.first + firstChannel + c);
        tile[token * kTileStride + c] = __float2half_rn(roundForPacking(x));
      }
    });
  }

  /// One thread a group.
  __device__ void solveGroups() const {
    const int nTokens = groupSize();
    const int perGroup = isKey ? 1 : job.parts.valueGroupSize;  // channels
    const int rowGroups = ceilDivide(nChannels, perGroup);
    for (int i = static_cast<int>(threadIdx.x); i < (isKey ? nChannels : rowGroups * nTokens);
         i += kThreads) {
      const int first = isKey ? i : i / nTokens * perGroup;  // channel of the tile
      const TileGroup values = isKey ? TileGroup{tile + i, nTokens, kTileStride}
                                     : TileGroup{tile + i % nTokens * kTileStride + first,
                                                 min(perGroup, nChannels - first), 1};
      const GroupScale group = solveGroup(values, nbits(), job.format.scheme, job.solver);
      scales[i] = group;
      const int index =
          isKey ? kvHead * job.headDim + firstChannel + i
                : (kvHead * job.parts.nValueGroups + firstChannel / perGroup) * nTokens + i;
      writeScale(index, group);
    }
  }

  __device__ void writeScale(int index, GroupScale group) const {
    const std::uint32_t scalePart = isKey ? job.parts.keyScales : job.parts.valueScales;
    const std::uint32_t minPart = isKey ? job.parts.keyMins : job.parts.valueMins;
    reinterpret_cast<__half*>(job.page + scalePart)[index] = __float2half_rn(group.scale);
    if (job.format.scheme == QuantScheme::kAsymmetric) {
      reinterpret_cast<__half*>(job.page + minPart)[index] = __float2half_rn(group.min);
    }
  }

  __device__ std::uint32_t codeAt(int token, int channel, GroupScale group) const {
    const float x = __half2float(tile[token * kTileStride + channel]);
    return static_cast<std::uint32_t>(codeOf(x, nbits(), job.format.scheme, group));
  }

  /// One thread a word of channels; neighbouring threads have neighbouring tokens.
  __device__ void writeKeyCodes() const {
    const int nTokens = groupSize();
    const int perWord = 32 / nbits();
    auto* const words = reinterpret_cast<std::uint32_t*>(job.page + job.parts.keyCodes) +
                        (kvHead * job.parts.keyWords + firstChannel / perWord) * nTokens;
    for (int i = static_cast<int>(threadIdx.x); i < ceilDivide(nChannels, perWord) * nTokens;
         i += kThreads) {
      const int first = i / nTokens * perWord;
      std::uint32_t word = 0;
      for (int c = 0; c < perWord && first + c < nChannels; ++c) {
        word |= codeAt(i % nTokens, first + c, scales[first + c]) << codeShift(nbits(), c);
      }
      words[i] = word;
    }
  }

  /// One thread a word of tokens; neighbouring threads have neighbouring channels.
  __device__ void writeValueCodes() const {
    const int nTokens = groupSize();
    const int perWord = 32 / nbits();
    auto* const words = reinterpret_cast<std::uint32_t*>(job.page + job.parts.valueCodes) +
                        kvHead * job.parts.valueWords * job.headDim + firstChannel;
    for (int i = static_cast<int>(threadIdx.x); i < nTokens / perWord * nChannels; i += kThreads) {
      const int channel = i % nChannels;
      const int first = i / nChannels * perWord;
      const GroupScale* const groups = scales + channel / job.parts.valueGroupSize * nTokens;
      std::uint32_t word = 0;
      for (int t = 0; t < perWord; ++t) {
        word |= codeAt(first + t, channel, groups[first + t]) << codeShift(nbits(), t);
      }
      words[i / nChannels * job.headDim + channel] = word;
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }

  /// Calls use(token, row) for each token, one warp a token.
  template <class Use>
  __device__ void forEachRow(const Use& use) const {
    for (int token = static_cast<int>(threadIdx.x) / kWarpSize; token < groupSize();
         token += kWarps) {
      use(token, sourceRow(job, isKey, kvHead, token));
    }
  }
};

/// x: kv heads, y: channels in groups of kChunk, z: keys, values.
__global__ void __launch_bounds__(kThreads) packKernel(const __grid_constant__ PackJob job) {
  SHARED(tile, __half[kMostTokens * kTileStride]);
  SHARED(scales, GroupScale[kMostScales]);
  const int firstChannel = static_cast<int>(blockIdx.y) * kChunk;
  const PackBlock block{job,
                        blockIdx.z == 0,
                        static_cast<int>(blockIdx.x),
                        firstChannel,
                        min(kChunk, job.headDim - firstChannel),
                        tile,
                        scales};
  if (block.nbits() == 16) {
    block.copyExactPart();
  } else {
    block.loadTile();
    __syncthreads();
    block.solveGroups();
    __syncthreads();
    if (block.isKey) {
      block.writeKeyCodes();
    } else {
      block.writeValueCodes();
    }
  }
}

/// x: numbers of one head, y: kv heads, z: keys or values.
__global__ void __launch_bounds__(kThreads)
    unpackKernel(PageRef page, PageParts parts, ExactSpan destination, int headDim) {
  constexpr float kLargestHalf = 65504.0F;
  const int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (index >= page.nTokens * headDim) return;
  const int kvHead = static_cast<int>(blockIdx.y);
  const int token = index / headDim;
  const int channel = index % headDim;
  const bool isKey = blockIdx.z == 0;
  float x = isKey ? readPageKey(page, parts, headDim, kvHead, token, channel)
                  : readPageValue(page, parts, headDim, kvHead, token, channel);
  if (destination.type == DataType::kF16) {
    x = x > kLargestHalf ? kLargestHalf : (x < -kLargestHalf ? -kLargestHalf : x);
  }
  writeExact(destination.type, isKey ? destination.keys : destination.values,
             (kvHead * destination.tokenCapacity + token) * headDim + channel, x);
}

unsigned blocksFor(std::int64_t threads) {
  return static_cast<unsigned>(ceilDivide<std::int64_t>(threads, kThreads));
}

}  // namespace

void launchPackPage(const AttentionShape& shape, const SpanList& source, const PageFormat& format,
                    QuantSolver solver, std::byte* page, const LaunchQueue& queue) {
  const int nKvHeads = static_cast<int>(shape.nKvHeads);
  const int headDim = static_cast<int>(shape.headDim);
  const PackJob job{source, format,   solver, pageParts(format, nKvHeads, headDim),
                    page,   nKvHeads, headDim};
  // Padding too, so that equal tokens give equal pages, byte for byte (session files, checksums).
  cudaMemsetAsync(page, 0, job.parts.totalBytes, queue.stream());
  const dim3 grid(static_cast<unsigned>(nKvHeads),
                  static_cast<unsigned>(ceilDivide(headDim, kChunk)), 2);
  launch(packKernel, grid, kThreads, 0, queue, job);
}

void launchUnpackPage(const AttentionShape& shape, const PageRef& page,
                      const ExactSpan& destination, const LaunchQueue& queue) {
  if (page.nTokens == 0) return;
  const int headDim = static_cast<int>(shape.headDim);
  const PageParts parts = pageParts(page.format, static_cast<int>(shape.nKvHeads), headDim);
  const dim3 grid(blocksFor(page.nTokens * shape.headDim), static_cast<unsigned>(shape.nKvHeads),
                  2);
  launch(unpackKernel, grid, kThreads, 0, queue, page, parts, destination, headDim);
}

}  // namespace longhand::kernels::cuda
