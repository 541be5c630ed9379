#pragma once
// What a warp of prefill attention does with a tile of history: two products on tensor cores with
// an online softmax between them (FlashAttention-2, Dao 2023: each warp has query rows of its own).

#include <cstdint>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/prefill_tiles.cuh"
#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/ptx.cuh"
#include "kernels/cuda/warp/warp.cuh"

namespace longhand::kernels::cuda {

/// Sizes that a kernel is compiled for. A warp has 16 * kRowTiles query rows. With 32 it reads a
/// tile half as often from shared memory, which is what limits mma.sync on devices with fast tensor
/// cores; 16 leave room for two blocks where shared memory is small. As many of the queries'
/// channels as registers hold stay there, since a warp needs them for every tile.
template <int kDim, int kTiles>
struct PrefillSizes {
  static constexpr int kHeadDim = kDim;
  static constexpr int kRowTiles = kTiles;
  static constexpr int kKeptChannels = kRowTiles == 1 || kHeadDim <= 96 ? kHeadDim : 64;
  static constexpr int kQueryChannels = kHeadDim - kKeptChannels;  // the others, in shared memory
  static constexpr int kTileTokens = 32 * kRowTiles;
  static constexpr int kStepTokens = 32;  // that pass through the softmax at once
  static constexpr int kWarps = kPrefillThreads / kWarpSize;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kWarps * kWarpRows;  // of a block
  static constexpr int kStride = kHeadDim + kTilePadding;
  static constexpr int kTransposedStride = kTileTokens + kTilePadding;
  // Shared memory, in halves: the queries, then two buffers of keys and values.
  static constexpr int kQueryStride = kQueryChannels + kTilePadding;
  static constexpr int kQueryHalves = kQueryChannels == 0 ? 0 : kRows * kQueryStride;
  static constexpr int kKeyHalves = kTileTokens * kStride;
  static constexpr int kTransposedHalves = kHeadDim * kTransposedStride;
  static constexpr int kValueHalves =
      kKeyHalves > kTransposedHalves ? kKeyHalves : kTransposedHalves;
  static constexpr int kBufferHalves = kKeyHalves + kValueHalves;
  static constexpr int kHalves = kQueryHalves + 2 * kBufferHalves;
  static constexpr int kSums = 2 * kRowTiles;  // floats of a thread, behind the halves
  static constexpr int kSharedBytes = 2 * kHalves + 4 * kSums * kPrefillThreads;
};

/// A launch. Kernels read it from constant memory, which costs no registers.
struct PrefillJob {
  AttentionJob attention;
  float* partials;    // [nSplits, nKvHeads, nRows, headDim + 2]: outputs, maximum, sum
  float scoreFactor;  // scoreScale * log2(e)
  int perKvHead;      // query heads of a kv head
  int nRows;  // of a kv head: row i is query token i / perKvHead with its head i % perKvHead
};

/// What a tile of history is, beside its numbers in shared memory. One word, since registers are
/// short while a tile waits for its turn.
class TileFacts {
 public:
  __device__ TileFacts(int nTokens, int keyNbits, int valueNbits, bool hasMins, bool isCut)
      : word_(static_cast<unsigned>(nTokens | keyNbits << 8 | valueNbits << 16) |
              (hasMins ? kHasMins : 0U) | (isCut ? kIsCut : 0U)) {}

  __device__ int nTokens() const { return static_cast<int>(word_ & 0xffU); }  // 1..kTileTokens
  __device__ int keyNbits() const { return static_cast<int>(word_ >> 8U & 0xffU); }  // 16: exact
  /// 16: exact; codes stand transposed.
  __device__ int valueNbits() const { return static_cast<int>(word_ >> 16U & 0xffU); }
  __device__ bool hasMins() const { return (word_ & kHasMins) != 0; }
  /// Not all rows of the block see all of it: each sees the tokens up to its own.
  __device__ bool isCut() const { return (word_ & kIsCut) != 0; }
  __device__ int buffer() const { return (word_ & kIsSecond) != 0 ? 1 : 0; }
  __device__ TileFacts inBuffer(int buffer) const {
    return TileFacts(buffer == 0 ? word_ : word_ | kIsSecond);
  }
  /// The same, of unknown origin to the compiler.
  __device__ TileFacts hidden() const { return TileFacts(hideOrigin(word_)); }

 private:
  static constexpr unsigned kHasMins = 1U << 24U;
  static constexpr unsigned kIsCut = 1U << 25U;
  static constexpr unsigned kIsSecond = 1U << 26U;

  __device__ explicit TileFacts(unsigned word) : word_(word) {}

  unsigned word_;
};

/// A warp's query rows: online softmax, outputs in registers. Lane l = 4 * g + q holds of each tile
/// of 16 rows the rows g and g + 8, and there columns 2 * q and the next of each 8.
template <class Sizes>
struct PrefillWarp {
  static constexpr int kHeadDim = Sizes::kHeadDim;
  static constexpr int kRowTiles = Sizes::kRowTiles;
  static constexpr int kScoreTiles = Sizes::kStepTokens / 8;
  using Scores = float[kRowTiles][kScoreTiles][4];

  /// Before a row has seen a token; no score is so small. (With -INFINITY, a row that sees none of
  /// a tile would subtract infinities.)
  static constexpr float kNothing = -1.0e30F;

  const PrefillJob& job;
  __half* shared;               // of the block: queries [kRows, kQueryStride], buffers, sums
  int blockRow;                 // the block's first row, among the kv head's
  float largest[kRowTiles][2];  // scores in powers of 2
  float output[kRowTiles][kHeadDim / 8][4];
  unsigned kept[Sizes::kKeptChannels / 16][kRowTiles][4];  // the queries' first channels

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
  /// The first row of a thread's warp, in the block.
  __device__ static int rowOfWarp(int thread) { return thread / kWarpSize * Sizes::kWarpRows; }

  /// The sum of a row's probabilities in this lane's columns. Needed once a tile, so it waits in
  /// shared memory: [kSums, kPrefillThreads].
  __device__ __forceinline__ float& sumOf(int m, int half) const {
    float* const sums = reinterpret_cast<float*>(shared + Sizes::kHalves);
    return sums[(2 * m + half) * kPrefillThreads + readThreadIndex()];
  }

  /// Tokens of a tile that a row of the block sees; rows beyond the last see what the last does.
  __device__ __forceinline__ int visibleTokens(TileFacts tile, const int* firstToken,
                                               int row) const {
    if (!tile.isCut()) return tile.nTokens();
    const int token = min(blockRow + row, job.nRows - 1) / job.perKvHead;
    return min(tile.nTokens(),
               static_cast<int>(job.attention.chunkOffset) + token + 1 - *firstToken);
  }

  __device__ PrefillWarp(const PrefillJob& jobIn, __half* sharedIn, int blockRowIn)
      : job(jobIn), shared(sharedIn), blockRow(blockRowIn) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[m][half] = kNothing;
        sumOf(m, half) = 0.0F;
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] = 0.0F;
      }
    }
  }

  /// keys [kTileTokens, kStride]; values as `tile` says. `firstToken` (of the chunk) is read where
  /// the tile is cut.
  __device__ __forceinline__ void addTile(TileFacts tile, const int* firstToken, const __half* keys,
                                          const __half* values) {
    const int row = rowOfWarp(readThreadIndex());
    if (blockRow + row >= job.nRows) return;
    const int mostVisible = visibleTokens(tile, firstToken, row + Sizes::kWarpRows - 1);
    if (mostVisible <= 0) return;
    const int leastVisible = visibleTokens(tile, firstToken, row);
#pragma unroll 1
    for (int first = 0; first < mostVisible; first += Sizes::kStepTokens) {
      Scores scores = {};
      multiplyKeys(keys + first * Sizes::kStride, scores);
      if (first + Sizes::kStepTokens > leastVisible) hideTokens(tile, firstToken, first, scores);
      softmax(scores);
      if (tile.valueNbits() != 16) {
        addValues<true>(values + first, scores);
      } else {
        addValues<false>(values + first * Sizes::kStride, scores);
      }
    }
  }

  /// Queries [16 * m, ..) by channels [k, k + 16).
  __device__ __forceinline__ void queryTile(int m, int k, int thread, unsigned (&a)[4]) const {
    if (k < Sizes::kKeptChannels) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = kept[k / 16][m][i];
    } else {
      const int row = rowOfWarp(thread) + m * 16 + thread % 16;
      loadTiles<false>(a, shared + row * Sizes::kQueryStride + k - Sizes::kKeptChannels +
                              thread % kWarpSize / 16 * 8);
    }
  }

  __device__ __forceinline__ void multiplyKeys(const __half* keys, Scores& scores) const {
    const int thread = readThreadIndex();
    const int matrix = thread % kWarpSize / 8;  // whose row this lane passes to ldmatrix
    const int row = thread % 8;
#pragma unroll
    for (int k = 0; k < kHeadDim; k += 16) {
      unsigned a[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) queryTile(m, k, thread, a[m]);
#pragma unroll
      for (int n = 0; n < kScoreTiles / 2; ++n) {
        unsigned b[4];
        loadTiles<false>(
            b, keys + (n * 16 + matrix / 2 * 8 + row) * Sizes::kStride + k + matrix % 2 * 8);
        const unsigned low[2] = {b[0], b[1]};
        const unsigned high[2] = {b[2], b[3]};
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          multiplyTile(scores[m][2 * n], a[m], low);
          multiplyTile(scores[m][2 * n + 1], a[m], high);
        }
      }
    }
  }

  __device__ __forceinline__ void hideTokens(TileFacts tile, const int* firstToken, int first,
                                             Scores& scores) const {
    const int thread = readThreadIndex();
    const int column = first + thread % 4 * 2;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int visible = visibleTokens(
            tile, firstToken, rowOfWarp(thread) + m * 16 + half * 8 + thread % kWarpSize / 4);
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

  /// Scores become probabilities relative to the largest score so far.
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
        top = fmaxf(largest[m][half], top * job.scoreFactor);
        factors[half] = powerOfTwo(largest[m][half] - top);  // 0 at first
        largest[m][half] = top;
        float total = 0.0F;
#pragma unroll
        for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[m][n][i] = powerOfTwo(scores[m][n][i] * job.scoreFactor - top);
            total += scores[m][n][i];
          }
        }
        float& sum = sumOf(m, half);
        sum = sum * factors[half] + total;
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
  __device__ __forceinline__ void addValues(const __half* values, const Scores& scores) {
    const int thread = readThreadIndex();
    const int matrix = thread % kWarpSize / 8;
    const int row = thread % 8;
#pragma unroll
    for (int k = 0; k < Sizes::kStepTokens; k += 16) {
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
                                  k + matrix % 2 * 8);
        } else {
          loadTiles<true>(
              b, values + (k + matrix % 2 * 8 + row) * Sizes::kStride + n * 16 + matrix / 2 * 8);
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

}  // namespace longhand::kernels::cuda
