#pragma once
// What one warp does with one unit of decode attention (a page, or up to 32 exact tokens): scores,
// online softmax, weighted sum of the values. Codes are read once, straight from the page.
//
// Both products run on tensor cores, tokens (keys) or channels (values) as the 16 rows of a tile,
// and the 8 columns hold 4 queries twice: the high and the low half of a float. Codes are exact as
// halves, so scores and outputs are as exact as in float arithmetic.
//   scores  = codes [tokens, channels] * (query * scale) [channels, queries]  + query * mins
//   outputs = codes^T [channels, tokens] * (p * scale) [tokens, queries]      + p * mins
// Lane l = 4 * g + q holds rows g and g + 8 of a tile, and as k the words q, q + 4, ... of its
// rows.

#include <cstdint>

#include "kernels/cuda/code_tiles.h"
#include "kernels/cuda/kv_device.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/warp.h"

namespace longhand::kernels::cuda {

inline constexpr int kDecodePageTokens = 128;  // most tokens of a unit
inline constexpr int kDecodeExactTokens = 32;  // exact tokens of a unit

/// Sizes that a kernel is compiled for: up to 32 * kHeadBlocks channels, 4 * kQueryTiles queries.
template <int kHeadBlocks, int kQueryTiles>
struct DecodeSizes {
  static constexpr int kChannels = 32 * kHeadBlocks;
  static constexpr int kQueries = 4 * kQueryTiles;
  static constexpr int kWarps = kHeadBlocks == 8 || kQueryTiles == 2 ? 2 : 4;
  /// Rows of halves are 64 bytes apart modulo 128, so that the 8 lanes that read 16 bytes each at
  /// once (2 rows, 4 words) meet no bank twice.
  static constexpr int kQueryStride = kChannels % 64 == 0 ? kChannels + 32 : kChannels;
  static constexpr int kWeightHalves = (kChannels > 128 ? kChannels : 128) * 3 / 2;

  // Shared memory of a block in bytes, for n queries: a part of all warps, and one of each.
  static constexpr int exactBytes(int n) { return n * 2 * kQueryStride * 2; }
  static constexpr int floatBytes(int n) { return n * kChannels * 4; }
  static constexpr int blockBytes(int n) { return exactBytes(n) + floatBytes(n) + 4 * kQueries; }
  static constexpr int scoreBytes(int n) { return n * kDecodePageTokens * 4; }
  static constexpr int weightBytes(int n) { return n * 2 * kWeightHalves * 2; }
  static constexpr int stateBytes(int n) { return ceilDivide(n * 2 * 4, 16) * 16; }
  static constexpr int warpBytes(int n) {
    return exactBytes(n) + scoreBytes(n) + weightBytes(n) + stateBytes(n);
  }
  static constexpr int totalBytes(int n) { return blockBytes(n) + kWarps * warpBytes(n); }
};

__host__ __device__ constexpr int weightStride(int tokens) {
  return tokens % 64 == 0 ? tokens + 32 : tokens;
}

template <int kHeadBlocks, int kQueryTiles>
struct DecodeWarp {
  using Sizes = DecodeSizes<kHeadBlocks, kQueryTiles>;

  // The same in all lanes.
  int headDim;
  int nQueries;               // of this block, 1 to Sizes::kQueries
  const float* queries;       // [nQueries, kChannels], times scoreScale * log2(e), 0 beyond headDim
  const __half* exactParts;   // [nQueries, 2, kQueryStride], halves of queries / exactFactors
  const float* exactFactors;  // [nQueries], powers of two
  __half* foldedParts;        // the same times a page's scales, in tileOrder
  float* scores;              // [nQueries, kDecodePageTokens], powers of 2
  __half* weights;            // [value group, nQueries, 2, weightStride]: p * scale * unit
  float* largest;             // [nQueries], of the scores so far
  float* sum;                 // [nQueries], of exp2(score - largest)
  float unit;                 // power of two that keeps weights in the range of halves
  // This lane's part of the outputs times `unit`: channels 32 * b + 4 * g + 2 * m (+ 1 for [2],
  // [3]) of query 4 * n + q, high ([0], [2]) and low ([1], [3]) apart.
  float output[kHeadBlocks][2][kQueryTiles][4];

  __device__ int lane() const { return static_cast<int>(threadIdx.x) % kWarpSize; }
  __device__ int rowOfLane() const { return lane() / 4; }   // g
  __device__ int wordOfLane() const { return lane() % 4; }  // q
  /// The query that a lane's column g belongs to, and whether it is its low half.
  __device__ int queryOfColumn(int tile) const {
    return min(4 * tile + rowOfLane() / 2, nQueries - 1);
  }
  __device__ int partOfColumn() const { return rowOfLane() % 2; }

  __device__ void start() {
    constexpr float kFirstUnit = 4096.0F;
    unit = kFirstUnit;
    for (int i = lane(); i < nQueries; i += kWarpSize) {
      largest[i] = -INFINITY;
      sum[i] = 0.0F;
    }
    __syncwarp();
#pragma unroll
    for (int b = 0; b < kHeadBlocks; ++b) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) output[b][m][n][i] = 0.0F;
        }
      }
    }
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

  /// The power of two that brings numbers of up to `top` near the end of the halves' range, so that
  /// the low half of a split is not subnormal.
  __device__ static float unitFor(float top) {
    constexpr float kExponent = 15.0F;
    constexpr float kMostExponent = 60.0F;
    if (!(top > 0.0F)) return 1.0F;
    return exp2f(fminf(floorf(kExponent - log2f(top)), kMostExponent));
  }

  // --- Keys --------------------------------------------------------------------------------------

  /// What a page's scores are made of besides its codes, for the queries of this lane's scores.
  struct Folded {
    float factor;                    // undoes the power of two in foldedParts
    float minProducts[kQueryTiles];  // query * mins
  };

  /// Writes query * scale of a page's channels, times a power of two, to foldedParts.
  __device__ Folded foldScales(const PageRef& page, const PageParts& parts, int kvHead) {
    const bool hasMins = page.format.scheme == QuantScheme::kAsymmetric;
    const float middle = static_cast<float>(1 << (page.format.keyNbits - 1));
    const auto* scales =
        reinterpret_cast<const __half*>(page.data + parts.keyScales) + kvHead * headDim;
    const auto* mins =
        reinterpret_cast<const __half*>(page.data + parts.keyMins) + kvHead * headDim;
    float scale[kHeadBlocks];
    float products[Sizes::kQueries] = {};
    float top = 0.0F;
#pragma unroll
    for (int b = 0; b < kHeadBlocks; ++b) {
      const int channel = 32 * b + lane();
      const bool isInside = channel < headDim;
      scale[b] = isInside ? __half2float(scales[channel]) : 0.0F;
      const float min = !isInside ? 0.0F
                        : hasMins ? __half2float(mins[channel])
                                  : -middle * scale[b];
#pragma unroll
      for (int i = 0; i < Sizes::kQueries; ++i) {
        if (i >= nQueries) break;
        const float x = queries[i * Sizes::kChannels + channel];
        products[i] += x * min;
        top = fmaxf(top, fabsf(x * scale[b]));
      }
    }
    const float unitOfPage = unitFor(warpMax(top));
#pragma unroll
    for (int b = 0; b < kHeadBlocks; ++b) {
      const int channel = 32 * b + lane();
#pragma unroll
      for (int i = 0; i < Sizes::kQueries; ++i) {
        if (i >= nQueries) break;
        const SplitHalf split =
            splitHalf(queries[i * Sizes::kChannels + channel] * scale[b] * unitOfPage);
        __half* const row = foldedParts + i * 2 * Sizes::kQueryStride + tileOrder(channel);
        row[0] = split.high;
        row[Sizes::kQueryStride] = split.low;
      }
    }
    Folded folded;
    folded.factor = 1.0F / unitOfPage;
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) folded.minProducts[n] = 0.0F;
#pragma unroll
    for (int i = 0; i < Sizes::kQueries; ++i) {
      if (i >= nQueries) break;
      const float product = warpSum(products[i]);
      if (i % 4 == wordOfLane()) folded.minProducts[i / 4] = product;
    }
    __syncwarp();
    return folded;
  }

  /// Stores a tile's scores: tokens `first` (row g) and `second` (row g + 8).
  __device__ void storeScores(const float (&tile)[4], int n, int first, int second, float factor,
                              float added) {
    const int query = 4 * n + wordOfLane();
    if (query >= nQueries) return;
    float* const row = scores + query * kDecodePageTokens;
    row[first] = (tile[0] + tile[1]) * factor + added;
    row[second] = (tile[2] + tile[3]) * factor + added;
  }

  /// Scores of the first nTokens of a page's codes; `words` [keyWords, group] of the kv head.
  template <int kNbits>
  __device__ void scoreCodes(const std::uint32_t* words, int keyWords, int group, int nTokens,
                             const Folded& folded) {
    constexpr int kPerWord = 32 / kNbits;
    constexpr int kRowGroups = ceilDivide(ceilDivide(Sizes::kChannels, kPerWord), 4);
    constexpr int kBatch = kRowGroups < 4 ? kRowGroups : 4;  // loads in flight
#pragma unroll 1
    for (int first = 0; first < nTokens; first += 32) {
      float tiles[2][kQueryTiles][4] = {};
#pragma unroll
      for (int batch = 0; batch < kRowGroups; batch += kBatch) {
        uint4 loaded[kBatch];  // 4 tokens of a word's channels
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int word = 4 * (batch + i) + wordOfLane();
          loaded[i] = make_uint4(0, 0, 0, 0);
          if (word < keyWords) {
            loaded[i] =
                *reinterpret_cast<const uint4*>(words + word * group + first + 4 * rowOfLane());
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int word = 4 * (batch + i) + wordOfLane();
          multiplyWords<kNbits>(loaded[i], foldedParts, Sizes::kQueryStride,
                                word < keyWords ? word * kPerWord : 0, tiles);
        }
      }
      const int token = first + 4 * rowOfLane();
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
        storeScores(tiles[0][n], n, token, token + 1, folded.factor, folded.minProducts[n]);
        storeScores(tiles[1][n], n, token + 2, token + 3, folded.factor, folded.minProducts[n]);
      }
    }
  }

  /// tiles[m][n] += codes of words 2m and 2m + 1 (rows g, g + 8) times the numbers of `parts` that
  /// start at `at` in the row of the lane's column.
  template <int kNbits>
  __device__ __forceinline__ void multiplyWords(const uint4& words, const __half* parts, int stride,
                                                int at, float (&tiles)[2][kQueryTiles][4]) {
    constexpr int kPairs = 16 / kNbits;  // of a word
    const std::uint32_t rows[2][2] = {{words.x, words.y}, {words.z, words.w}};
    unsigned columns[kQueryTiles][kPairs];
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
      const __half* const row = parts + (queryOfColumn(n) * 2 + partOfColumn()) * stride + at;
      if constexpr (kPairs == 2) {
        const uint2 pairs = *reinterpret_cast<const uint2*>(row);
        columns[n][0] = pairs.x;
        columns[n][1] = pairs.y;
      } else {
#pragma unroll
        for (int i = 0; i < kPairs; i += 4) {
          const uint4 pairs = *reinterpret_cast<const uint4*>(row + 2 * i);
          columns[n][i] = pairs.x;
          columns[n][i + 1] = pairs.y;
          columns[n][i + 2] = pairs.z;
          columns[n][i + 3] = pairs.w;
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      unsigned upper[kPairs];
      unsigned lower[kPairs];
      codesToHalves<kNbits>(rows[m][0], upper);
      codesToHalves<kNbits>(rows[m][1], lower);
#pragma unroll
      for (int s = 0; s < kPairs; s += 2) {
        const unsigned a[4] = {upper[s], lower[s], upper[s + 1], lower[s + 1]};
#pragma unroll
        for (int n = 0; n < kQueryTiles; ++n) {
          const unsigned b[2] = {columns[n][s], columns[n][s + 1]};
          multiplyTile(tiles[m][n], a, b);
        }
      }
    }
  }

  /// Scores of nTokens exact tokens; `keys` [tokens, headDim] of the kv head.
  __device__ void scoreExact(const __half* keys, int nTokens) {
#pragma unroll 1
    for (int first = 0; first < nTokens; first += 16) {
      float tile[kQueryTiles][4] = {};
      const int upper = first + rowOfLane();
#pragma unroll
      for (int block = 0; block < kHeadBlocks; ++block) {
        const int channel = 32 * block + 8 * wordOfLane();
        const bool isInside = channel < headDim;
        uint4 rows[2] = {};
        if (isInside && upper < nTokens) {
          rows[0] = *reinterpret_cast<const uint4*>(keys + upper * headDim + channel);
        }
        if (isInside && upper + 8 < nTokens) {
          rows[1] = *reinterpret_cast<const uint4*>(keys + (upper + 8) * headDim + channel);
        }
        const unsigned a[2][4] = {{rows[0].x, rows[1].x, rows[0].y, rows[1].y},
                                  {rows[0].z, rows[1].z, rows[0].w, rows[1].w}};
#pragma unroll
        for (int n = 0; n < kQueryTiles; ++n) {
          const __half* const row =
              exactParts + (queryOfColumn(n) * 2 + partOfColumn()) * Sizes::kQueryStride + channel;
          const uint4 column = *reinterpret_cast<const uint4*>(row);
          const unsigned b[2][2] = {{column.x, column.y}, {column.z, column.w}};
          multiplyTile(tile[n], a[0], b[0]);
          multiplyTile(tile[n], a[1], b[1]);
        }
      }
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
        const float factor = exactFactors[min(4 * n + wordOfLane(), nQueries - 1)];
        storeScores(tile[n], n, upper, upper + 8, factor, 0.0F);
      }
    }
  }

  /// The same for floats, which only tests store: plainly, a token a lane.
  __device__ void scoreExact(const float* keys, int nTokens) {
    for (int token = lane(); token < nTokens; token += kWarpSize) {
      for (int i = 0; i < nQueries; ++i) {
        float score = 0.0F;
        for (int c = 0; c < headDim; ++c) {
          score += queries[i * Sizes::kChannels + c] * keys[token * headDim + c];
        }
        scores[i * kDecodePageTokens + token] = score;
      }
    }
  }

  // --- Softmax -----------------------------------------------------------------------------------

  /// Keeps weights finite: no scale of the page times `unit` may leave the range of halves.
  __device__ void fitUnit(float largestScale) {
    constexpr float kLargestWeight = 32768.0F;
    if (largestScale * unit <= kLargestWeight) return;
    const float factor = exp2f(floorf(log2f(kLargestWeight / (largestScale * unit))));
    unit *= factor;
    forEachTile([&](int, int, int, float(&tile)[4]) {
#pragma unroll
      for (int i = 0; i < 4; ++i) tile[i] *= factor;
    });
  }

  /// Turns the scores of nTokens into weights. limitOf(query) tells how many of them a query may
  /// see; scaleOf(valueGroup, token) gives scale and min of a valid token.
  template <bool kIsCodes, class LimitOf, class ScaleOf>
  __device__ void softmax(int nTokens, int stride, int nGroups, int groupSize,
                          const LimitOf& limitOf, const ScaleOf& scaleOf) {
    constexpr int kPerLane = kDecodePageTokens / kWarpSize;
    __syncwarp();
    if constexpr (kIsCodes) {
      float largestScale = 0.0F;
      for (int group = 0; group < nGroups; ++group) {
        for (int token = lane(); token < nTokens; token += kWarpSize) {
          largestScale = fmaxf(largestScale, scaleOf(group, token).scale);
        }
      }
      fitUnit(warpMax(largestScale));
    }
#pragma unroll
    for (int i = 0; i < Sizes::kQueries; ++i) {
      if (i >= nQueries) break;
      const int limit = limitOf(i);
      float p[kPerLane];
      const float oldLargest = largest[i];
      float newLargest = oldLargest;
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        const int token = lane() + k * kWarpSize;
        p[k] = token < limit ? scores[i * kDecodePageTokens + token] : -INFINITY;
        newLargest = fmaxf(newLargest, p[k]);
      }
      newLargest = warpMax(newLargest);
      const float reference = newLargest == -INFINITY ? 0.0F : newLargest;
      float total = 0.0F;
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        p[k] = exp2f(p[k] - reference);
        total += p[k];
      }
      const float factor = exp2f(oldLargest - reference);
      total = warpSum(total);
      __syncwarp();  // all lanes have read largest[i]
      if (lane() == 0) {
        sum[i] = sum[i] * factor + total;
        largest[i] = newLargest;
      }
      if (factor != 1.0F) rescale(i, factor);
      writeWeights<kIsCodes>(i, p, nTokens, stride, nGroups, groupSize, scaleOf);
    }
    __syncwarp();
  }

  __device__ void rescale(int query, float factor) {
    const bool isMine = query % 4 == wordOfLane();
    forEachTile([&](int, int, int n, float(&tile)[4]) {
      if (n != query / 4) return;
#pragma unroll
      for (int i = 0; i < 4; ++i) tile[i] *= isMine ? factor : 1.0F;
    });
  }

  template <bool kIsCodes, int kPerLane, class ScaleOf>
  __device__ void writeWeights(int query, const float (&p)[kPerLane], int nTokens, int stride,
                               int nGroups, int groupSize, const ScaleOf& scaleOf) {
    for (int group = 0; group < nGroups; ++group) {
      __half* const row = weights + (group * nQueries + query) * 2 * stride;
      float minSum = 0.0F;
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        const int token = lane() + k * kWarpSize;
        if (token >= stride) break;
        float weight = 0.0F;
        if (token < nTokens) {
          const GroupScale scale = scaleOf(group, token);
          weight = p[k] * scale.scale;
          if constexpr (kIsCodes) minSum += p[k] * scale.min;
        }
        const SplitHalf parts = splitHalf(weight * unit);
        const int at = kIsCodes ? tileOrder(token) : token;
        row[at] = parts.high;
        row[stride + at] = parts.low;
      }
      if constexpr (kIsCodes) {
        minSum = warpSum(minSum) * unit;
        const bool isMine = query % 4 == wordOfLane();
        forEachTile([&](int b, int, int n, float(&tile)[4]) {
          if (n != query / 4 || 32 * b / groupSize != group || !isMine) return;
          tile[0] += minSum;
          tile[2] += minSum;
        });
      }
    }
  }

  // --- Values ------------------------------------------------------------------------------------

  /// Adds a page's values; `words` [valueWords, headDim] of the kv head.
  template <int kNbits>
  __device__ void addCodes(const std::uint32_t* words, int valueWords, int groupSize, int stride) {
    constexpr int kPerWord = 32 / kNbits;
    constexpr int kBatch = kHeadBlocks < 4 ? kHeadBlocks : 4;  // loads in flight
#pragma unroll 1
    for (int first = 0; first < valueWords; first += 4) {
      const int word = first + wordOfLane();
      const bool isValid = word < valueWords;
#pragma unroll
      for (int batch = 0; batch < kHeadBlocks; batch += kBatch) {
        uint4 loaded[kBatch];  // the word of 4 channels
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int channel = 32 * (batch + i) + 4 * rowOfLane();
          loaded[i] = make_uint4(0, 0, 0, 0);
          if (isValid && channel < headDim) {
            loaded[i] = *reinterpret_cast<const uint4*>(words + word * headDim + channel);
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          // Blocks behind headDim multiply zeros, and have no weights of their own.
          const int group = min(32 * (batch + i), headDim - 1) / groupSize;
          const __half* const rows = weights + group * nQueries * 2 * stride;
          multiplyWords<kNbits>(loaded[i], rows, stride, isValid ? word * kPerWord : 0,
                                output[batch + i]);
        }
      }
    }
  }

  /// Adds nTokens exact values; `values` [tokens, headDim] of the kv head.
  __device__ void addExact(const __half* values, int nTokens, int stride) {
#pragma unroll 1
    for (int first = 0; first < nTokens; first += 16) {
      const int token = first + 4 * wordOfLane();
      unsigned columns[kQueryTiles][2];
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
        const __half* const row =
            weights + (queryOfColumn(n) * 2 + partOfColumn()) * stride + token;
        const uint2 pairs = *reinterpret_cast<const uint2*>(row);
        columns[n][0] = pairs.x;
        columns[n][1] = pairs.y;
      }
#pragma unroll
      for (int block = 0; block < kHeadBlocks; ++block) {
        const int channel = 32 * block + 4 * rowOfLane();
        uint2 tokens[4];  // 4 channels each
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          tokens[t] = make_uint2(0, 0);
          if (channel < headDim && token + t < nTokens) {
            tokens[t] = *reinterpret_cast<const uint2*>(values + (token + t) * headDim + channel);
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
          for (int n = 0; n < kQueryTiles; ++n) multiplyTile(output[block][m][n], a, columns[n]);
        }
      }
    }
  }

  /// The same for floats.
  __device__ void addExact(const float* values, int nTokens, int stride) {
#pragma unroll 1
    for (int token = 0; token < nTokens; ++token) {
      forEachTile([&](int b, int m, int n, float(&tile)[4]) {
        const int channel = 32 * b + 4 * rowOfLane() + 2 * m;
        if (channel >= headDim) return;
        const int query = min(4 * n + wordOfLane(), nQueries - 1);
        const __half* const row = weights + query * 2 * stride + token;
        const float weight = __half2float(row[0]) + __half2float(row[stride]);
        tile[0] += weight * values[token * headDim + channel];
        tile[2] += weight * values[token * headDim + channel + 1];
      });
    }
  }
};

}  // namespace longhand::kernels::cuda
