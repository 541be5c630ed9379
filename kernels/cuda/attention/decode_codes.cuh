#pragma once
// Keys and values of a page as codes, for one warp of decode attention (decode_warp.cuh).
//
// The query times the scales of a page's channels, and p times the scales of its tokens, become
// integers of four digits (code_tiles.cuh), which are columns of the product: with one query
// columns 0 to 3 (4 to 7 are the same again), with more the lower two of four queries in one tile
// and the upper two in the next.

#include "kernels/cuda/attention/decode_warp.cuh"

namespace longhand::kernels::cuda {

/// What the warp needs of a page. Pointers are those of the kv head.
struct CodePage {
  const std::uint32_t* codes;  // keys [keyWords, group], or values [valueWords, headDim]
  const __half* scales;        // [headDim], or [value group, group]
  const __half* mins;          // likewise; not read where `isSymmetric`
  bool isSymmetric;
  int nTokens;  // valid ones
};

/// Scales and mins of the chunk at `at`.
struct ChunkScales {
  float scale[4];
  float min[4];

  template <int kNbits>
  __device__ __forceinline__ static ChunkScales load(const CodePage& page, int at) {
    ChunkScales result;
    unpack(__ldg(reinterpret_cast<const uint2*>(page.scales + at)), result.scale);
    if (page.isSymmetric) {
      constexpr auto kMiddle = static_cast<float>(1 << (kNbits - 1));
#pragma unroll
      for (int i = 0; i < 4; ++i) result.min[i] = -kMiddle * result.scale[i];
    } else {
      unpack(__ldg(reinterpret_cast<const uint2*>(page.mins + at)), result.min);
    }
    return result;
  }
  __device__ __forceinline__ static void unpack(uint2 words, float (&x)[4]) {
    const float2 low = __half22float2(halvesOfWord(words.x));
    const float2 high = __half22float2(halvesOfWord(words.y));
    x[0] = low.x;
    x[1] = low.y;
    x[2] = high.x;
    x[3] = high.y;
  }
};

template <class Warp>
struct DecodeCodes {
  using Sizes = typename Warp::Sizes;
  static constexpr bool kIsSingle = Warp::kIsSingle;
  static constexpr int kTiles = Sizes::kByteTiles;
  static constexpr int kHeadBlocks = Sizes::kChannels / 32;

  Warp& warp;

  /// Writes the digits of a query's chunk to `place` of its rows.
  __device__ __forceinline__ void storeDigits(int query, int place, const float (&x)[4],
                                              float unit) {
    unsigned digits[4];
    numbersToDigits(x, unit, digits);
    unsigned* const row = warp.digits + query * 4 * Sizes::kDigitStride + place;
#pragma unroll
    for (int d = 0; d < 4; ++d) row[d * Sizes::kDigitStride] = digits[d];
  }

  /// columns[tile] = kCount chunks from `place` on of the rows of the lane's columns.
  template <int kCount>
  __device__ __forceinline__ void loadColumns(int place, unsigned (&columns)[kTiles][kCount]) {
    const int column = warp.rowOfLane();
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      int row = column % 4;
      if constexpr (!kIsSingle) {
        const int query = min(4 * (t / 2) + column / 2, warp.nQueries() - 1);
        row = query * 4 + 2 * (t % 2) + column % 2;
      }
      const unsigned* const chunks = warp.digits + row * Sizes::kDigitStride + place;
      if constexpr (kCount % 4 == 0) {
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
          const uint4 four = *reinterpret_cast<const uint4*>(chunks + i);
          columns[t][i] = four.x;
          columns[t][i + 1] = four.y;
          columns[t][i + 2] = four.z;
          columns[t][i + 3] = four.w;
        }
      } else {
        static_assert(kCount == 2);
        const uint2 two = *reinterpret_cast<const uint2*>(chunks);
        columns[t][0] = two.x;
        columns[t][1] = two.y;
      }
    }
  }

  /// tiles[m][t] += codes of the words 2m and 2m + 1 (rows g, g + 8) of kWords vectors times their
  /// chunks from `first` on.
  template <int kNbits, int kWords, int kCount>
  __device__ __forceinline__ static void multiply(const uint4 (&words)[kWords], int first,
                                                  const unsigned (&columns)[kTiles][kCount],
                                                  int (&tiles)[2][kTiles][4]) {
    constexpr int kChunks = kChunksPerWord<kNbits>;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      unsigned rows[2][kWords * kChunks];
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        unsigned upper[kChunks];
        unsigned lower[kChunks];
        codesToBytes<kNbits>(m == 0 ? words[w].x : words[w].z, upper);
        codesToBytes<kNbits>(m == 0 ? words[w].y : words[w].w, lower);
#pragma unroll
        for (int s = 0; s < kChunks; ++s) {
          rows[0][w * kChunks + s] = upper[s];
          rows[1][w * kChunks + s] = lower[s];
        }
      }
#pragma unroll
      for (int s = 0; s < kWords * kChunks; s += 2) {
        const unsigned a[4] = {rows[0][s], rows[1][s], rows[0][s + 1], rows[1][s + 1]};
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const unsigned b[2] = {columns[t][first + s], columns[t][first + s + 1]};
          multiplyByteTile(tiles[m][t], a, b);
        }
      }
    }
  }

  // --- Keys --------------------------------------------------------------------------------------

  /// A page's query * scale as digits; its factor and query * mins for each query.
  template <int kNbits>
  __device__ __forceinline__ void foldScales(const CodePage& page, FixedPoint& ownFixed,
                                             float& ownProduct) {
    constexpr int kRounds = ceilDivide(Sizes::kKeyChunks, kWarpSize);
    ChunkScales scales[kRounds];
    int place[kRounds];
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int chunk = warp.lane() + r * kWarpSize;
      place[r] = chunkPlace<kNbits>(chunk, Sizes::kKeyChunks / 4);
      if (4 * chunk < warp.headDim()) {
        scales[r] = ChunkScales::load<kNbits>(page, 4 * chunk);
      } else {
        scales[r] = {};
      }
    }
#pragma unroll 1
    for (int i = 0; i < warp.nQueries(); ++i) {
      float x[kRounds][4];
      float product = 0.0F;
      float top = 0.0F;
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
        const int chunk = warp.lane() + r * kWarpSize;
        float4 query = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        if (Sizes::kKeyChunks % kWarpSize == 0 || chunk < Sizes::kKeyChunks) {
          query = *reinterpret_cast<const float4*>(warp.queries + i * Sizes::kChannels + 4 * chunk);
        }
        const float four[4] = {query.x, query.y, query.z, query.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          product += four[k] * scales[r].min[k];
          x[r][k] = four[k] * scales[r].scale[k];
          top = fmaxf(top, fabsf(x[r][k]));
        }
      }
      const FixedPoint fixed = fixedPointFor(warpMaxOfMagnitudes(top));
      product = warpSum(product);
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
        const int chunk = warp.lane() + r * kWarpSize;
        if (Sizes::kKeyChunks % kWarpSize == 0 || chunk < Sizes::kKeyChunks) {
          storeDigits(i, place[r], x[r], fixed.unit);
        }
      }
      if constexpr (kIsSingle) {
        ownFixed = fixed;
        ownProduct = product;
      } else if (warp.lane() == 0) {
        warp.numbers[warp.nQueries() + i] = fixed.factor;
        warp.numbers[2 * warp.nQueries() + i] = product;
      }
    }
  }

  /// Stores the scores of tokens first + 4 * g to first + 4 * g + 3.
  __device__ __forceinline__ void storeScores(const int (&tiles)[2][kTiles][4], int first,
                                              const FixedPoint& ownFixed, float ownProduct) {
    if constexpr (kIsSingle) {
      // Lanes with an even q have the lower digits of all four tokens, the next lane the upper
      // ones; lanes 2 and 3 the same again. Each completes one token.
      int joined[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        joined[i] = joinDigits(tiles[i / 2][0][2 * (i % 2)], tiles[i / 2][0][2 * (i % 2) + 1]);
      }
      const bool isUpper = warp.wordOfLane() % 2 == 1;
      const bool isSecond = warp.wordOfLane() >= 2;
      const int even = isSecond ? joined[2] : joined[0];
      const int odd = isSecond ? joined[3] : joined[1];
      const int kept = isUpper ? odd : even;
      const int other = __shfl_xor_sync(kAllLanes, isUpper ? even : odd, 1);
      const float upper = ownFixed.factor * kUpperDigits;
      const float keptFactor = isUpper ? upper : ownFixed.factor;
      const float otherFactor = isUpper ? ownFixed.factor : upper;
      warp.scores[first + warp.lane()] = static_cast<float>(kept) * keptFactor +
                                         (static_cast<float>(other) * otherFactor + ownProduct);
    } else {
#pragma unroll
      for (int n = 0; n < kTiles / 2; ++n) {
        const int query = 4 * n + warp.wordOfLane();
        if (query >= warp.nQueries()) continue;
        const float factor = warp.numbers[warp.nQueries() + query];
        const float product = warp.numbers[2 * warp.nQueries() + query];
        float score[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int(&lower)[4] = tiles[i / 2][2 * n];
          const int(&upper)[4] = tiles[i / 2][2 * n + 1];
          const int at = 2 * (i % 2);
          score[i] =
              static_cast<float>(joinDigits(upper[at], upper[at + 1])) * (factor * kUpperDigits) +
              (static_cast<float>(joinDigits(lower[at], lower[at + 1])) * factor + product);
        }
        *reinterpret_cast<float4*>(warp.scores + query * kDecodePageTokens + first +
                                   4 * warp.rowOfLane()) =
            make_float4(score[0], score[1], score[2], score[3]);
      }
    }
  }

  /// Scores of a page's tokens, valid or not.
  template <int kNbits, int kGroup>
  __device__ __forceinline__ void score(const CodePage& page) {
    constexpr int kChunks = kChunksPerWord<kNbits>;
    constexpr int kRowGroups = Sizes::kKeyChunks / 4 / kChunks;  // words of a lane
    constexpr int kMostLoads = kIsSingle ? 8 : 4;                // in flight
    constexpr int kBatch = kRowGroups < kMostLoads ? kRowGroups : kMostLoads;
    constexpr int kPerWord = 32 / kNbits;
    [[maybe_unused]] constexpr int kUnrolledTurns = kIsSingle && kGroup != 128 ? kGroup / 32 : 1;
    FixedPoint fixed{};
    float product = 0.0F;
    __syncwarp();  // the digits of the page before have been read
    foldScales<kNbits>(page, fixed, product);
    __syncwarp();
    unsigned columns[kTiles][Sizes::kKeyChunks / 4];
    loadColumns(warp.wordOfLane() * (Sizes::kKeyChunks / 4), columns);
    const int lastWord = (warp.headDim() + kPerWord - 1) / kPerWord - 1;
    const std::uint32_t* const tokens = page.codes + 4 * warp.rowOfLane();
#pragma unroll(kUnrolledTurns)
    for (int first = 0; first < kGroup; first += 32) {
      int tiles[2][kTiles][4] = {};
#pragma unroll
      for (int batch = 0; batch < kRowGroups; batch += kBatch) {
        uint4 loaded[kBatch];  // 4 tokens of a word's channels
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          // Words behind headDim meet zeros, whatever they are.
          int word = 4 * (batch + i) + warp.wordOfLane();
          if constexpr (!Warp::kHasWholeHeads) word = min(word, lastWord);
          loaded[i] = __ldg(reinterpret_cast<const uint4*>(tokens + word * kGroup + first));
        }
        constexpr int kAtOnce = kChunks == 1 ? 2 : 1;  // words of a step of the product
#pragma unroll
        for (int i = 0; i < kBatch; i += kAtOnce) {
          uint4 words[kAtOnce];
#pragma unroll
          for (int k = 0; k < kAtOnce; ++k) words[k] = loaded[i + k];
          multiply<kNbits>(words, (batch + i) * kChunks, columns, tiles);
        }
      }
      storeScores(tiles, first, fixed, product);
    }
  }

  // --- Values ------------------------------------------------------------------------------------

  /// Turns the page's scores into p * scale as digits. Returns what undoes their power of two for
  /// the queries of this lane.
  template <int kNbits, int kGroup>
  __device__ __forceinline__ void weigh(const CodePage& page, int nValueGroups,
                                        float (&factors)[Sizes::kQueryTiles]) {
    constexpr int kLanesOfGroup = kGroup / 4;
    constexpr int kRounds = Warp::kValueRounds;
    ChunkScales scales[kRounds];
    int place[kRounds];
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int chunk = warp.lane() + r * kWarpSize;
      place[r] = chunk / kLanesOfGroup * kLanesOfGroup +
                 chunkPlace<kNbits>(chunk % kLanesOfGroup, laneChunks<kNbits, kGroup>());
      if (chunk < nValueGroups * kLanesOfGroup) {
        scales[r] = ChunkScales::load<kNbits>(page, 4 * chunk);
      } else {
        scales[r] = {};
      }
    }
    const int firstToken = warp.lane() % kLanesOfGroup * 4;
    if (page.nTokens < kGroup) {
      // What lies behind the valid tokens may be anything, and 0 * NaN is no 0.
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (firstToken + k < page.nTokens) continue;
          scales[r].scale[k] = 0.0F;
          scales[r].min[k] = 0.0F;
        }
      }
    }
#pragma unroll 1
    for (int i = 0; i < warp.nQueries(); ++i) {
      float p[4];
      warp.powersOf(i, firstToken, page.nTokens, kGroup, p);
      if (kGroup == kDecodePageTokens || warp.lane() < kLanesOfGroup) {
        warp.sum(i) += p[0] + p[1] + (p[2] + p[3]);
      }
      float x[kRounds][4];
      float top = 0.0F;
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
        float minSum = warp.mins(i, r);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          x[r][k] = p[k] * scales[r].scale[k];
          top = fmaxf(top, x[r][k]);
          minSum += p[k] * scales[r].min[k];
        }
        warp.mins(i, r) = minSum;
      }
      const FixedPoint fixed = fixedPointFor(warpMaxOfMagnitudes(top));
#pragma unroll
      for (int r = 0; r < kRounds; ++r) storeDigits(i, place[r], x[r], fixed.unit);
#pragma unroll
      for (int n = 0; n < Sizes::kQueryTiles; ++n) {
        if (kIsSingle || (n == i / 4 && warp.holds(i))) factors[n] = fixed.factor;
      }
    }
  }

  /// Chunks of a lane in a row of weights, at least those of a word.
  template <int kNbits, int kGroup>
  __device__ static constexpr int laneChunks() {
    return kGroup / 16 > kChunksPerWord<kNbits> ? kGroup / 16 : kChunksPerWord<kNbits>;
  }

  /// Adds a page's values, weighted by the softmax of its scores.
  template <int kNbits, int kGroup>
  __device__ __forceinline__ void add(const CodePage& page) {
    constexpr int kChunks = kChunksPerWord<kNbits>;
    constexpr int kValueWords = kGroup * kNbits / 32;
    constexpr int kLaneWords = ceilDivide(kValueWords, 4);
    constexpr int kLaneChunks = laneChunks<kNbits, kGroup>();
    constexpr int kAtOnce = kChunks == 1 ? 2 : 1;
    const int channelsOfGroup = min(kGroup, warp.headDim());
    const int nValueGroups = (warp.headDim() + channelsOfGroup - 1) / channelsOfGroup;
    if (warp.minsGroup != kGroup) {
      warp.addMins();
      warp.minsGroup = kGroup;
    }
    __syncwarp();  // all scores are there, and the digits of the keys have been read
    float factors[Sizes::kQueryTiles] = {};
    weigh<kNbits, kGroup>(page, nValueGroups, factors);
    __syncwarp();
    const bool isUpper = warp.wordOfLane() % 2 == 1;
    if constexpr (kIsSingle) factors[0] *= isUpper ? kUpperDigits : 1.0F;

    const bool isValid = kValueWords >= 4 || warp.wordOfLane() < kValueWords;
    const int ownWord = isValid ? warp.wordOfLane() : 0;
    unsigned columns[kTiles][kLaneChunks];
#pragma unroll
    for (int b = 0; b < kHeadBlocks; ++b) {
      const int group = min(32 * b, warp.headDim() - 1) / channelsOfGroup;
      if (b == 0 || 32 * b % kGroup == 0) {
        loadColumns(group * (kGroup / 4) + ownWord * kLaneChunks, columns);
      }
      // Channels behind headDim are sums that nobody reads.
      int channel = 32 * b + 4 * warp.rowOfLane();
      if constexpr (!Warp::kHasWholeHeads) channel = min(channel, warp.headDim() - 4);
      int tiles[2][kTiles][4] = {};
#pragma unroll
      for (int w = 0; w < kLaneWords; w += kAtOnce) {
        uint4 words[kAtOnce];  // of 4 channels
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          words[k] = make_uint4(0, 0, 0, 0);
          if (isValid) {
            words[k] = __ldg(reinterpret_cast<const uint4*>(
                page.codes + (ownWord + 4 * (w + k)) * warp.headDim() + channel));
          }
        }
        multiply<kNbits>(words, w * kChunks, columns, tiles);
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < Sizes::kQueryTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& output = warp.output[b][m][n][i];
            if constexpr (kIsSingle) {
              const int(&tile)[4] = tiles[m][0];
              output += static_cast<float>(joinDigits(tile[2 * i], tile[2 * i + 1])) * factors[0];
            } else {
              const int(&lower)[4] = tiles[m][2 * n];
              const int(&upper)[4] = tiles[m][2 * n + 1];
              output += static_cast<float>(joinDigits(lower[2 * i], lower[2 * i + 1])) * factors[n];
              output += static_cast<float>(joinDigits(upper[2 * i], upper[2 * i + 1])) *
                        (factors[n] * kUpperDigits);
            }
          }
        }
      }
    }
  }
};

}  // namespace longhand::kernels::cuda
