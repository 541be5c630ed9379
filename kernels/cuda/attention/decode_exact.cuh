#pragma once
// Exact keys and values, of a page with 16 bits or of a span, for one warp of decode attention
// (decode_warp.cuh). Halves are multiplied by tensor cores: the 8 columns hold 4 queries twice, the
// high and the low half of a float. Floats, which only tests store, are multiplied plainly.

#include "kernels/cuda/attention/decode_warp.cuh"

namespace longhand::kernels::cuda {

template <class Warp>
struct DecodeExact {
  using Sizes = typename Warp::Sizes;
  static constexpr int kQueryTiles = Sizes::kQueryTiles;
  static constexpr int kHeadBlocks = Sizes::kChannels / 32;

  Warp& warp;

  /// The query that a lane's column g belongs to, and whether it is its low half.
  __device__ int queryOfColumn(int tile) const {
    return min(4 * tile + warp.rowOfLane() / 2, warp.nQueries() - 1);
  }
  __device__ int partOfColumn() const { return warp.rowOfLane() % 2; }

  // --- Keys --------------------------------------------------------------------------------------

  /// Stores a tile's scores: tokens `first` (row g) and `second` (row g + 8).
  __device__ void storeScores(const float (&tile)[4], int n, int first, int second, float factor) {
    const int query = 4 * n + warp.wordOfLane();
    if (query >= warp.nQueries()) return;
    float* const row = warp.scores + query * kDecodePageTokens;
    row[first] = (tile[0] + tile[1]) * factor;
    row[second] = (tile[2] + tile[3]) * factor;
  }

  /// Scores of nTokens tokens; `keys` [tokens, headDim] of the kv head.
  __device__ __forceinline__ void score(const __half* keys, int nTokens) {
    const int headDim = warp.headDim();
#pragma unroll 1
    for (int first = 0; first < nTokens; first += 16) {
      float tile[kQueryTiles][4] = {};
      const int upper = first + warp.rowOfLane();
#pragma unroll
      for (int block = 0; block < kHeadBlocks; ++block) {
        const int channel = 32 * block + 8 * warp.wordOfLane();
        const bool isInside = channel < headDim;
        uint4 rows[2] = {};
        if (isInside && upper < nTokens) {
          rows[0] = __ldg(reinterpret_cast<const uint4*>(keys + upper * headDim + channel));
        }
        if (isInside && upper + 8 < nTokens) {
          rows[1] = __ldg(reinterpret_cast<const uint4*>(keys + (upper + 8) * headDim + channel));
        }
        const unsigned a[2][4] = {{rows[0].x, rows[1].x, rows[0].y, rows[1].y},
                                  {rows[0].z, rows[1].z, rows[0].w, rows[1].w}};
#pragma unroll
        for (int n = 0; n < kQueryTiles; ++n) {
          const __half* const row = warp.exactParts +
                                    (queryOfColumn(n) * 2 + partOfColumn()) * Sizes::kQueryStride +
                                    channel;
          const uint4 column = *reinterpret_cast<const uint4*>(row);
          const unsigned b[2][2] = {{column.x, column.y}, {column.z, column.w}};
          multiplyTile(tile[n], a[0], b[0]);
          multiplyTile(tile[n], a[1], b[1]);
        }
      }
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
        const float factor = warp.exactFactors[min(4 * n + warp.wordOfLane(), warp.nQueries() - 1)];
        storeScores(tile[n], n, upper, upper + 8, factor);
      }
    }
  }

  /// The same for floats, a token a lane.
  __device__ void score(const float* keys, int nTokens) {
    for (int token = warp.lane(); token < nTokens; token += kWarpSize) {
      for (int i = 0; i < warp.nQueries(); ++i) {
        float score = 0.0F;
        for (int c = 0; c < warp.headDim(); ++c) {
          score += warp.queries[i * Sizes::kChannels + c] * keys[token * warp.headDim() + c];
        }
        warp.scores[i * kDecodePageTokens + token] = score;
      }
    }
  }

  // --- Values ------------------------------------------------------------------------------------

  /// Turns scores into p * kExactUnit as halves, rows weightStride(kCapacity) apart. limitOf(query)
  /// tells how many tokens a query sees.
  template <class LimitOf>
  __device__ __forceinline__ void weigh(int capacity, const LimitOf& limitOf) {
    const int stride = weightStride(capacity);
    const int first = 4 * warp.lane();
#pragma unroll 1
    for (int i = 0; i < warp.nQueries(); ++i) {
      float p[4];
      warp.powersOf(i, first, limitOf(i), kDecodePageTokens, p);
      warp.sum(i) += p[0] + p[1] + (p[2] + p[3]);
      if (first >= capacity) continue;
      SplitHalf parts[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) parts[k] = splitHalf(p[k] * Warp::kExactUnit);
      __half* const row = warp.weights + i * 2 * stride + first;
      *reinterpret_cast<uint2*>(row) =
          make_uint2(wordOfHalves(__halves2half2(parts[0].high, parts[1].high)),
                     wordOfHalves(__halves2half2(parts[2].high, parts[3].high)));
      *reinterpret_cast<uint2*>(row + stride) =
          make_uint2(wordOfHalves(__halves2half2(parts[0].low, parts[1].low)),
                     wordOfHalves(__halves2half2(parts[2].low, parts[3].low)));
    }
  }

  /// Adds nTokens values; `values` [tokens, headDim] of the kv head.
  __device__ __forceinline__ void add(const __half* values, int nTokens, int capacity) {
    const int headDim = warp.headDim();
    const int stride = weightStride(capacity);
    float tiles[kHeadBlocks][2][kQueryTiles][4] = {};
#pragma unroll 1
    for (int first = 0; first < nTokens; first += 16) {
      const int token = first + 4 * warp.wordOfLane();
      unsigned columns[kQueryTiles][2];
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
        const __half* const row =
            warp.weights + (queryOfColumn(n) * 2 + partOfColumn()) * stride + token;
        const uint2 pairs = *reinterpret_cast<const uint2*>(row);
        columns[n][0] = pairs.x;
        columns[n][1] = pairs.y;
      }
#pragma unroll
      for (int block = 0; block < kHeadBlocks; ++block) {
        const int channel = 32 * block + 4 * warp.rowOfLane();
        uint2 tokens[4];  // 4 channels each
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          tokens[t] = make_uint2(0, 0);
          if (channel < headDim && token + t < nTokens) {
            tokens[t] =
                __ldg(reinterpret_cast<const uint2*>(values + (token + t) * headDim + channel));
          }
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          unsigned x[4];
#pragma unroll
          for (int t = 0; t < 4; ++t) x[t] = m == 0 ? tokens[t].x : tokens[t].y;
          // Pairs of channels become pairs of tokens.
          const unsigned a[4] = {__byte_perm(x[0], x[1], 0x5410), __byte_perm(x[0], x[1], 0x7632),
                                 __byte_perm(x[2], x[3], 0x5410), __byte_perm(x[2], x[3], 0x7632)};
#pragma unroll
          for (int n = 0; n < kQueryTiles; ++n) multiplyTile(tiles[block][m][n], a, columns[n]);
        }
      }
    }
    // Of a single query, all lanes of a row have the same sums.
    const bool isMine = !Warp::kIsSingle || warp.holds(0);
    const float perUnit = isMine ? 1.0F / Warp::kExactUnit : 0.0F;
    warp.forEachTile([&](int b, int m, int n, float(&output)[2]) {
      const float(&tile)[4] = tiles[b][m][n];
      output[0] += (tile[0] + tile[1]) * perUnit;
      output[1] += (tile[2] + tile[3]) * perUnit;
    });
  }

  /// The same for floats.
  __device__ void add(const float* values, int nTokens, int capacity) {
    const int headDim = warp.headDim();
    const int stride = weightStride(capacity);
#pragma unroll 1
    for (int token = 0; token < nTokens; ++token) {
      warp.forEachTile([&](int b, int m, int n, float(&output)[2]) {
        const int channel = 32 * b + 4 * warp.rowOfLane() + 2 * m;
        if (channel >= headDim || (Warp::kIsSingle && !warp.holds(0))) return;
        const int query = min(4 * n + warp.wordOfLane(), warp.nQueries() - 1);
        const __half* const row = warp.weights + query * 2 * stride + token;
        const float weight =
            (__half2float(row[0]) + __half2float(row[stride])) * (1.0F / Warp::kExactUnit);
        output[0] += weight * values[token * headDim + channel];
        output[1] += weight * values[token * headDim + channel + 1];
      });
    }
  }
};

}  // namespace longhand::kernels::cuda
