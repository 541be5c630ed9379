#pragma once
// What one warp of decode attention keeps while it goes through its units (pages, or up to 32 exact
// tokens): its part of the outputs and an online softmax. Codes are read once, straight from the
// page.
//
// Both products run on tensor cores, tokens (keys) or channels (values) as the 16 rows of a tile:
//   scores  = codes [tokens, channels] * (query * scale) [channels, queries]  + query * mins
//   outputs = codes^T [channels, tokens] * (p * scale) [tokens, queries]      + p * mins
// Codes are bytes, and what they meet is an integer whose digits are columns (decode_codes.cuh);
// exact numbers are halves, and what they meet is two halves (decode_exact.cuh). So scores and
// outputs are as exact as in float arithmetic. Lane l = 4 * g + q holds rows g and g + 8 of a tile.
//
// kQueries is 1, 4 or 8. From 4 on, lane l holds the queries q and q + 4 of its rows. A single
// query has its four digits in one tile: lanes with an even q hold what the lower two give, the
// others the upper two, and the output is the sum of lanes q = 0 and 1.

#include <cfloat>
#include <cstdint>

#include "kernels/cuda/attention/code_tiles.cuh"
#include "kernels/cuda/pages/kv_device.cuh"
#include "kernels/cuda/warp/ptx.cuh"
#include "kernels/cuda/warp/warp.cuh"

namespace longhand::kernels::cuda {

inline constexpr int kDecodePageTokens = 128;  // most tokens of a unit
inline constexpr int kDecodeExactTokens = 32;  // exact tokens of a unit

/// Below every score.
inline constexpr float kNoScore = -FLT_MAX / 2;

/// Sizes that a kernel is compiled for: up to 32 * kHeadBlocks channels (kIsWhole: as many), up to
/// kMostQueries queries.
template <int kHeadBlocks, int kMostQueries, bool kIsWhole>
struct DecodeSizes {
  static constexpr int kChannels = 32 * kHeadBlocks;
  static constexpr int kQueries = kMostQueries;
  static constexpr bool kIsSingle = kQueries == 1;
  static constexpr int kQueryTiles = ceilDivide(kQueries, 4);
  static constexpr int kByteTiles = kIsSingle ? 1 : 2 * kQueryTiles;
  static constexpr int kWarps = kHeadBlocks == 8 || kQueries == 8 ? 2 : 4;
  /// Rows of halves are 64 bytes apart modulo 128, so that the 8 lanes that read 16 bytes each at
  /// once (2 rows, 4 words) meet no bank twice.
  static constexpr int kQueryStride = kChannels % 64 == 0 ? kChannels + 32 : kChannels;
  static constexpr int kWeightHalves = kDecodePageTokens * 3 / 2;
  /// Chunks of a row of digits: a page's channels, or the tokens of all value groups. Rows of 128
  /// numbers or more are 16 bytes apart modulo 128 for the same reason.
  static constexpr int kKeyChunks = kChannels / 4;
  static constexpr int kValueChunks = (kChannels > 128 ? kChannels : 128) / 4;
  static constexpr int kDigitStride = kValueChunks + 4;
  static constexpr int kStateFloats = kWarpSize * (1 + kValueChunks / kWarpSize);

  // Shared memory of a block in bytes, for n queries: a part of all warps, and one of each.
  static constexpr int exactBytes(int n) { return n * 2 * kQueryStride * 2; }
  static constexpr int floatBytes(int n) { return n * kChannels * 4; }
  static constexpr int blockBytes(int n) {
    return exactBytes(n) + floatBytes(n) + ceilDivide(kQueries * 4, 16) * 16;
  }
  static constexpr int scoreBytes(int n) { return n * kDecodePageTokens * 4; }
  static constexpr int operandBytes(int n) {
    return n * (4 * kDigitStride * 4 > 2 * kWeightHalves * 2 ? 4 * kDigitStride * 4
                                                             : 2 * kWeightHalves * 2);
  }
  static constexpr int stateBytes(int n) {
    return kIsSingle ? 0 : n * kStateFloats * 4 + ceilDivide(n * 3 * 4, 16) * 16;
  }
  static constexpr int warpBytes(int n) { return scoreBytes(n) + operandBytes(n) + stateBytes(n); }
  static constexpr int totalBytes(int n) { return blockBytes(n) + kWarps * warpBytes(n); }
};

/// Of rows of p as halves.
__host__ __device__ constexpr int weightStride(int tokens) {
  return tokens % 64 == 0 ? tokens + 32 : tokens;
}

template <int kHeadBlocks, int kMostQueries, bool kIsWhole>
struct DecodeWarp {
  using Sizes = DecodeSizes<kHeadBlocks, kMostQueries, kIsWhole>;
  static constexpr bool kHasWholeHeads = kIsWhole;
  static constexpr bool kIsSingle = Sizes::kIsSingle;
  static constexpr int kQueryTiles = Sizes::kQueryTiles;
  static constexpr int kValueRounds = Sizes::kValueChunks / kWarpSize;  // chunks of a lane
  static constexpr float kExactUnit = 4096.0F;  // keeps low halves of p from being subnormal

  // The same in all lanes.
  int nHeadChannels;          // head_dim, where kIsWhole does not say it
  int nBlockQueries;          // of this block, where there may be more than one
  const float* queries;       // [nQueries, kChannels], times scoreScale * log2(e), 0 beyond headDim
  const __half* exactParts;   // [nQueries, 2, kQueryStride], halves of queries / exactFactors
  const float* exactFactors;  // [nQueries], powers of two
  float* scores;              // [nQueries, kDecodePageTokens], powers of 2
  unsigned* digits;           // [nQueries, 4, kDigitStride]: of query * scale, then of p * scale
  __half* weights;            // in the same place: [nQueries, 2, weightStride], p * kExactUnit
  float* states;              // [nQueries, lane, 1 + kValueRounds], as ownSum and ownMins
  float* numbers;  // [3, nQueries]: largest scores, and a page's factors and min products
  int minsGroup;   // group size of the pages that ownMins are of, or 0
  // This lane's, of a single query.
  float ownLargest;             // of the scores so far; in all lanes
  float ownSum;                 // of exp2(score - largest)
  float ownMins[kValueRounds];  // of p * min, of the lane's tokens and value group
  // This lane's part of the outputs: channels 32 * b + 4 * g + 2 * m (+ 1 for [1]) of its queries.
  float output[kHeadBlocks][2][kQueryTiles][2];

  __device__ int lane() const { return static_cast<int>(threadIdx.x) % kWarpSize; }
  __device__ int rowOfLane() const { return lane() / 4; }   // g
  __device__ int wordOfLane() const { return lane() % 4; }  // q
  __device__ int headDim() const { return kIsWhole ? Sizes::kChannels : nHeadChannels; }
  __device__ int nQueries() const { return kIsSingle ? 1 : nBlockQueries; }
  /// Whether the lane's outputs are those of this query.
  __device__ bool holds(int query) const { return query % 4 == wordOfLane(); }

  __device__ float& largest(int query) { return kIsSingle ? ownLargest : numbers[query]; }
  __device__ float& sum(int query) { return kIsSingle ? ownSum : stateOf(query)[0]; }
  __device__ float& mins(int query, int round) {
    return kIsSingle ? ownMins[round] : stateOf(query)[1 + round];
  }
  __device__ float* stateOf(int query) const {
    return states + (query * kWarpSize + lane()) * (1 + kValueRounds);
  }

  __device__ void start() {
    minsGroup = 0;
    for (int i = 0; i < nQueries(); ++i) {
      if (kIsSingle || lane() == 0) largest(i) = kNoScore;
      sum(i) = 0.0F;
#pragma unroll
      for (int r = 0; r < kValueRounds; ++r) mins(i, r) = 0.0F;
    }
    __syncwarp();
    forEachTile([](int, int, int, float(&tile)[2]) { tile[0] = tile[1] = 0.0F; });
  }

  /// Calls use(b, m, n, outputs) for each of the lane's tiles.
  template <class Use>
  __device__ __forceinline__ void forEachTile(const Use& use) {
#pragma unroll
    for (int b = 0; b < kHeadBlocks; ++b) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < kQueryTiles; ++n) use(b, m, n, output[b][m][n]);
      }
    }
  }

  /// p of tokens [first, first + 4), of which the query sees those below `limit`: exp2(score -
  /// largest). All lanes call, each with its own `first`, below nScores; together they have all
  /// tokens.
  __device__ __forceinline__ void powersOf(int query, int first, int limit, int nScores,
                                           float (&p)[4]) {
    const float4 four =
        *reinterpret_cast<const float4*>(scores + query * kDecodePageTokens + first);
    p[0] = four.x;
    p[1] = four.y;
    p[2] = four.z;
    p[3] = four.w;
    if (limit < nScores) {
#pragma unroll
      for (int i = 0; i < 4; ++i) p[i] = first + i < limit ? p[i] : -INFINITY;
    }
    const float top = fmaxf(fmaxf(p[0], p[1]), fmaxf(p[2], p[3]));
    float reference = largest(query);
    if (__any_sync(kAllLanes, top > reference)) {
      const float newLargest = fmaxf(reference, warpMax(top));
      if constexpr (!kIsSingle) __syncwarp();  // all lanes have read the old one
      rescale(query, powerOfTwo(reference - newLargest));
      if (kIsSingle || lane() == 0) largest(query) = newLargest;
      reference = newLargest;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) p[i] = powerOfTwo(p[i] - reference);
  }

  /// What a query has gathered, times `factor`.
  __device__ void rescale(int query, float factor) {
    float mine[kQueryTiles];
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
      mine[n] = kIsSingle || (n == query / 4 && holds(query)) ? factor : 1.0F;
    }
    forEachTile([&](int, int, int n, float(&tile)[2]) {
      tile[0] *= mine[n];
      tile[1] *= mine[n];
    });
    sum(query) *= factor;
#pragma unroll
    for (int r = 0; r < kValueRounds; ++r) mins(query, r) *= factor;
  }

  /// Adds the sums of p * min to the outputs: the mins of a group's channels are one number.
  __device__ void addMins() {
    if (minsGroup == 0) return;
    const int lanesOfGroup = minsGroup / 4;
    const int channelsOfGroup = min(minsGroup, headDim());
    for (int i = 0; i < nQueries(); ++i) {
      float sums[kValueRounds];
#pragma unroll
      for (int r = 0; r < kValueRounds; ++r) {
        sums[r] = mins(i, r);
        mins(i, r) = 0.0F;
        for (int offset = 1; offset < lanesOfGroup; offset *= 2) {
          sums[r] += __shfl_xor_sync(kAllLanes, sums[r], offset);
        }
      }
#pragma unroll
      for (int b = 0; b < kHeadBlocks; ++b) {
        const int group = min(32 * b, headDim() - 1) / channelsOfGroup;
        const int chunk = group * lanesOfGroup;
        float added = __shfl_sync(kAllLanes, sums[0], chunk % kWarpSize);
        if constexpr (kValueRounds == 2) {
          const float other = __shfl_sync(kAllLanes, sums[1], chunk % kWarpSize);
          if (chunk >= kWarpSize) added = other;
        }
#pragma unroll
        for (int n = 0; n < kQueryTiles; ++n) {
          const float mine = n == i / 4 && holds(i) ? added : 0.0F;
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            output[b][m][n][0] += mine;
            output[b][m][n][1] += mine;
          }
        }
      }
    }
    minsGroup = 0;
  }

  /// Once all units are done: makes the outputs whole, and calls use(query, sum of all lanes) for
  /// each query.
  template <class Use>
  __device__ void finish(const Use& use) {
    addMins();
    for (int i = 0; i < nQueries(); ++i) use(i, warpSum(sum(i)));
    if constexpr (kIsSingle) {
      forEachTile([](int, int, int, float(&tile)[2]) {
        tile[0] += __shfl_xor_sync(kAllLanes, tile[0], 1);
        tile[1] += __shfl_xor_sync(kAllLanes, tile[1], 1);
      });
    }
  }
};

}  // namespace longhand::kernels::cuda
