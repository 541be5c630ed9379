#pragma once
// What a warp of prefill attention does with a tile of history: two products on tensor cores with
// an online softmax between them (FlashAttention-2, Dao 2023: each warp has query rows of its own).

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/portability.h"
#include "kernels/cuda/prefill_tiles.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/warp.h"

namespace longhand::kernels::cuda {

/// Sizes that a kernel is compiled for. A warp has 16 * kRowTiles query rows. With 32 it reads a
/// tile half as often from shared memory, which is what limits mma.sync on devices with fast tensor
/// cores. With 16 its queries stay in registers, and two blocks find room where shared memory is
/// small.
template <int kDim, int kTiles>
struct PrefillSizes {
  static constexpr int kHeadDim = kDim;
  static constexpr int kRowTiles = kTiles;
  static constexpr bool kKeepsQueries = kRowTiles == 1;  // in registers
  static constexpr int kTileTokens = 32 * kRowTiles;
  static constexpr int kStepTokens = 32;  // that pass through the softmax at once
  static constexpr int kWarps = kPrefillThreads / kWarpSize;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kWarps * kWarpRows;  // of a block
  static constexpr int kStride = kHeadDim + kTilePadding;
  static constexpr int kTransposedStride = kTileTokens + kTilePadding;
  // Shared memory, in halves: the queries, then two buffers of keys and values.
  static constexpr int kQueryHalves = kKeepsQueries ? 0 : kRows * kStride;
  static constexpr int kKeyHalves = kTileTokens * kStride;
  static constexpr int kTransposedHalves = kHeadDim * kTransposedStride;
  static constexpr int kValueHalves =
      kKeyHalves > kTransposedHalves ? kKeyHalves : kTransposedHalves;
  static constexpr int kBufferHalves = kKeyHalves + kValueHalves;
  static constexpr int kSharedBytes = 2 * (kQueryHalves + 2 * kBufferHalves);
};

/// A launch. Kernels read it from constant memory, which costs no registers.
struct PrefillJob {
  AttentionJob attention;
  float* partials;    // [nSplits, nKvHeads, nRows, headDim + 2]: outputs, maximum, sum
  float scoreFactor;  // scoreScale * log2(e)
  int perKvHead;      // query heads of a kv head
  int nRows;  // of a kv head: row i is query token i / perKvHead with its head i % perKvHead
};

/// What a tile of history is, beside its numbers in shared memory.
struct TileFacts {
  int nTokens;
  int firstToken;  // of the chunk, where isCut
  bool isCut;      // not all rows of the block see all of it: each sees the tokens up to its own
  bool hasTransposedValues;
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
  const __half* queries;        // [kWarpRows, kStride] in shared memory
  int firstRow;                 // of the warp, among the kv head's rows
  float largest[kRowTiles][2];  // scores in powers of 2
  float sum[kRowTiles][2];      // of this lane's columns
  float output[kRowTiles][kHeadDim / 8][4];
  unsigned kept[Sizes::kKeepsQueries ? kHeadDim / 16 : 1][4];  // the queries, as tiles of 16 x 16

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }

  /// Tokens of a tile that a row of the warp sees; rows beyond the last see what the last does.
  __device__ __forceinline__ int visibleTokens(const TileFacts& tile, int row) const {
    if (!tile.isCut) return tile.nTokens;
    const int token = min(firstRow + row, job.nRows - 1) / job.perKvHead;
    return min(tile.nTokens,
               static_cast<int>(job.attention.chunkOffset) + token + 1 - tile.firstToken);
  }

  __device__ PrefillWarp(const PrefillJob& jobIn, const __half* queriesIn, int firstRowIn)
      : job(jobIn), queries(queriesIn), firstRow(firstRowIn) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[m][half] = kNothing;
        sum[m][half] = 0.0F;
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] = 0.0F;
      }
    }
  }

  /// keys [kTileTokens, kStride]; values as `tile` says.
  __device__ __forceinline__ void addTile(const TileFacts& tile, const __half* keys,
                                          const __half* values) {
    if (firstRow >= job.nRows) return;
    const int mostVisible = visibleTokens(tile, Sizes::kWarpRows - 1);
    const int leastVisible = visibleTokens(tile, 0);
#pragma unroll 1
    for (int first = 0; first < mostVisible; first += Sizes::kStepTokens) {
      Scores scores = {};
      multiplyKeys(keys + first * Sizes::kStride, scores);
      if (first + Sizes::kStepTokens > leastVisible) hideTokens(tile, first, scores);
      softmax(scores);
      if (tile.hasTransposedValues) {
        addValues<true>(values + first, scores);
      } else {
        addValues<false>(values + first * Sizes::kStride, scores);
      }
    }
  }

  /// Queries [16 * m, ..) by channels [k, k + 16).
  __device__ __forceinline__ void queryTile(int m, int k, unsigned (&a)[4]) const {
    if constexpr (Sizes::kKeepsQueries) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = kept[k / 16][i];
    } else {
      const int matrix = lane() / 8;
      loadTiles<false>(a, queries + (m * 16 + matrix % 2 * 8 + lane() % 8) * Sizes::kStride + k +
                              matrix / 2 * 8);
    }
  }

  __device__ __forceinline__ void multiplyKeys(const __half* keys, Scores& scores) const {
    const int matrix = lane() / 8;  // whose row this lane passes to ldmatrix
    const int row = lane() % 8;
#pragma unroll
    for (int k = 0; k < kHeadDim; k += 16) {
      unsigned b[kScoreTiles / 2][4];
#pragma unroll
      for (int n = 0; n < kScoreTiles / 2; ++n) {
        loadTiles<false>(
            b[n], keys + (n * 16 + matrix / 2 * 8 + row) * Sizes::kStride + k + matrix % 2 * 8);
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        unsigned a[4];
        queryTile(m, k, a);
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
  __device__ __forceinline__ void addValues(const __half* values, const Scores& scores) {
    const int matrix = lane() / 8;
    const int row = lane() % 8;
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
