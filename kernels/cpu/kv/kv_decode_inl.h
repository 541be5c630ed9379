#pragma once
// Attention of a few queries to one tile, codes read in place (DESIGN.md section 2.3):
//   score = q . k = sum_c (q_c scale_c) code_c + sum_c q_c min_c
//   output = sum_t p_t v_t = sum_t (p_t scale_t) code_t + sum_t p_t min_t
// A vector register holds neighbouring tokens for scores, neighbouring channels for outputs, so
// neither needs a horizontal sum. Each code is decoded once for all kQueries queries.

#include "kernels/cpu/kv/kv_common_inl.h"

namespace longhand::kernels {
namespace {

constexpr std::int64_t kFoldedRow = kMaxHeadDim + kRowUnit;  // floats of one folded query

/// Tokens (or channels) vectors worked on at once, so that the accumulators fit the registers.
template <int kQueries>
constexpr int kWide = Simd::kMaxAccumulators / kQueries >= 4   ? 4
                      : Simd::kMaxAccumulators / kQueries >= 2 ? 2
                                                               : 1;

// --- Scores from codes -------------------------------------------------------------------------

/// folded[q][c] = q_c * scale_c / 2^place; constants[q] = sum_c q_c * min_c.
template <int kNbits, int kQueries>
void foldQueries(const KvTile& tile, const QueryBlock& block, float* folded, float* constants) {
  Float sums[kQueries];
  for (Float& sum : sums) sum = Simd::zero();
  const std::int64_t headDim = block.headDim;
  for (std::int64_t c = 0; c < block.rowFloats; c += kLanes) {
    const std::int64_t n = headDim - c;
    const Float scale = n > 0 ? loadUpTo<HalfRows>(tile.keyScales + c, n) : Simd::zero();
    Float min = Simd::multiply(scale, Simd::broadcast(symmetricMin(kNbits)));
    if (tile.keyMins != nullptr) {
      min = n > 0 ? loadUpTo<HalfRows>(tile.keyMins + c, n) : Simd::zero();
    }
    const Float placed =
        Simd::multiply(scale, Simd::load(kPlaceFactors<kNbits>.values + c % kRowUnit));
    for (int q = 0; q < kQueries; ++q) {
      const Float query = Simd::load(block.queries + q * block.rowFloats + c);
      sums[q] = Simd::multiplyAdd(query, min, sums[q]);
      Simd::store(folded + q * kFoldedRow + c, Simd::multiply(query, placed));
    }
  }
  for (int q = 0; q < kQueries; ++q) constants[q] = Simd::sum(sums[q]);
}

template <int kNbits, int kQueries, int kVectors>
[[gnu::always_inline]] inline void scoreTokens(const KvTile& tile, std::int64_t firstToken,
                                               const float* folded, const float* constants,
                                               float* scores) {
  constexpr int kPerWord = 32 / kNbits;
  Float sums[kQueries][kVectors];
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) sums[q][v] = Simd::broadcast(constants[q]);
  }
  const std::byte* words = tile.keys + firstToken * 4;
  for (std::int64_t w = 0; w < tile.keyWords; ++w) {
    Words row[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      row[v] = Simd::loadWords(words + v * kLanes * 4);
      prefetch(words + v * kLanes * 4, tile.aheadBytes);
    }
    unrolled<kPerWord>([&](auto i) {
      Float codes[kVectors];
      for (int v = 0; v < kVectors; ++v) codes[v] = codeInPlace<kNbits, i>(row[v]);
      for (int q = 0; q < kQueries; ++q) {
        const Float query = Simd::broadcast(folded[q * kFoldedRow + i]);
        for (int v = 0; v < kVectors; ++v)
          sums[q][v] = Simd::multiplyAdd(codes[v], query, sums[q][v]);
      }
    });
    folded += kPerWord;
    words += tile.groupSize * 4;
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      Simd::store(scores + q * kMaxTileTokens + firstToken + v * kLanes, sums[q][v]);
    }
  }
}

/// scores[q][t] for all valid t (and up to a register more, from codes of the page).
template <int kNbits, int kQueries>
void scoreCodes(const KvTile& tile, const QueryBlock& block, float* scores) {
  float* folded = block.keys;
  float constants[kQueries];
  foldQueries<kNbits, kQueries>(tile, block, folded, constants);
  constexpr int kVectors = kWide<kQueries>;
  std::int64_t t = 0;
  if constexpr (kVectors > 1) {
    for (; t + kVectors * kLanes <= tile.groupSize && t < tile.nTokens; t += kVectors * kLanes) {
      scoreTokens<kNbits, kQueries, kVectors>(tile, t, folded, constants, scores);
    }
  }
  for (; t < tile.nTokens; t += kLanes) {
    scoreTokens<kNbits, kQueries, 1>(tile, t, folded, constants, scores);
  }
}

// --- Scores from exact keys --------------------------------------------------------------------

template <typename Rows, int kQueries, int kTokens>
[[gnu::always_inline]] inline void scoreExactTokens(const typename Rows::Element* keys,
                                                    std::ptrdiff_t aheadBytes,
                                                    const QueryBlock& block, std::int64_t token,
                                                    float* scores) {
  Float sums[kQueries][kTokens];
  for (int q = 0; q < kQueries; ++q) {
    for (int t = 0; t < kTokens; ++t) sums[q][t] = Simd::zero();
  }
  const auto addChannels = [&](std::int64_t c, auto load) {
    Float rows[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      rows[t] = load(keys + t * block.headDim + c);
      prefetch(keys + t * block.headDim + c, aheadBytes);
    }
    for (int q = 0; q < kQueries; ++q) {
      const Float query = Simd::load(block.queries + q * block.rowFloats + c);
      for (int t = 0; t < kTokens; ++t) sums[q][t] = Simd::multiplyAdd(rows[t], query, sums[q][t]);
    }
  };
  std::int64_t c = 0;
  for (; c + kLanes <= block.headDim; c += kLanes) {
    addChannels(c, [](const auto* p) { return Rows::load(p); });
  }
  if (c < block.headDim) {
    const std::int64_t n = block.headDim - c;
    addChannels(c, [n](const auto* p) { return Rows::loadPartial(p, n); });
  }
  // Four sums at a time, of as many tokens as there are and then of queries: a quarter of the cost.
  constexpr int kTogether = kQueries * kTokens % 4 == 0 ? 4 / kTokens : 1;  // queries
  for (int q = 0; q < kQueries; q += kTogether) {
    float* at = scores + q * kMaxTileTokens + token;
    if constexpr (kTogether * kTokens == 4) {
      float four[4];
      const auto sum = [&](int i) { return sums[q + i / kTokens][i % kTokens]; };
      Simd::sum4(sum(0), sum(1), sum(2), sum(3), four);
      for (int i = 0; i < 4; ++i) at[i / kTokens * kMaxTileTokens + i % kTokens] = four[i];
    } else {
      for (int t = 0; t < kTokens; ++t) at[t] = Simd::sum(sums[q][t]);
    }
  }
}

template <typename Rows, int kQueries>
void scoreExact(const KvTile& tile, const QueryBlock& block, float* scores) {
  const auto* keys = rowsOf<Rows>(tile.keys);
  constexpr int kTokens = kQueries * 4 <= Simd::kMaxAccumulators   ? 4
                          : kQueries * 2 <= Simd::kMaxAccumulators ? 2
                                                                   : 1;
  std::int64_t t = 0;
  for (; t + kTokens <= tile.nTokens; t += kTokens) {
    scoreExactTokens<Rows, kQueries, kTokens>(keys + t * block.headDim, tile.aheadBytes, block, t,
                                              scores);
  }
  for (; t < tile.nTokens; ++t) {
    scoreExactTokens<Rows, kQueries, 1>(keys + t * block.headDim, tile.aheadBytes, block, t,
                                        scores);
  }
}

// --- Softmax -----------------------------------------------------------------------------------

/// Turns scores into 2^(score - largest), 0 for tokens not seen, and rescales what was summed so
/// far. Rows of probabilities are valid up to the tile's tokens rounded up to kRowUnit.
template <int kQueries>
void softmaxRows(const KvTile& tile, const QueryBlock& block, float* scores) {
  const std::int64_t padded = roundedUp(tile.nTokens, kRowUnit);
  for (int q = 0; q < kQueries; ++q) {
    float* row = scores + q * kMaxTileTokens;
    const std::int64_t seen =
        block.visible != nullptr ? smaller(block.visible[q], tile.nTokens) : tile.nTokens;
    Float top = Simd::broadcast(block.largest[q]);
    for (std::int64_t t = 0; t < padded; t += kLanes) {
      Float score = Simd::load(row + t);
      if (t + kLanes > seen) {
        score = Simd::keepFirst(score, seen > t ? seen - t : 0, -__builtin_huge_valf());
        Simd::store(row + t, score);
      }
      top = Simd::max(top, score);
    }
    const float largest = Simd::largest(top);
    if (largest > block.largest[q]) {
      const float factor = powerOfTwo(block.largest[q] - largest);
      block.largest[q] = largest;
      block.sum[q] *= factor;
      scaleRow(block.output + q * block.rowFloats, block.rowFloats, factor);
    }
    Float sum = Simd::zero();
    for (std::int64_t t = 0; t < padded; t += kLanes) {
      const Float probability =
          powerOfTwo(Simd::subtract(Simd::load(row + t), Simd::broadcast(block.largest[q])));
      Simd::store(row + t, probability);
      sum = Simd::add(sum, probability);
    }
    block.sum[q] += Simd::sum(sum);
  }
}

// --- Outputs from codes ------------------------------------------------------------------------

/// folded[q][t] = p_t * scale_t / 2^place, 0 beyond the valid tokens (whose scales may be
/// anything); constants[q] = sum_t p_t * min_t.
template <int kNbits, int kQueries>
void foldProbabilities(const KvTile& tile, std::int64_t valueGroup, const float* probabilities,
                       float* folded, float* constants) {
  Float sums[kQueries];
  for (Float& sum : sums) sum = Simd::zero();
  const std::uint16_t* scales = tile.valueScales + valueGroup * tile.groupSize;
  const std::int64_t padded = roundedUp(tile.nTokens, kRowUnit);
  for (std::int64_t t = 0; t < padded; t += kLanes) {
    const std::int64_t n = tile.nTokens > t ? tile.nTokens - t : 0;
    const Float scale = Simd::keepFirst(Simd::loadHalf(scales + t), n, 0.0F);
    Float min = Simd::multiply(scale, Simd::broadcast(symmetricMin(kNbits)));
    if (tile.valueMins != nullptr) {
      const std::uint16_t* mins = tile.valueMins + valueGroup * tile.groupSize;
      min = Simd::keepFirst(Simd::loadHalf(mins + t), n, 0.0F);
    }
    const Float placed =
        Simd::multiply(scale, Simd::load(kPlaceFactors<kNbits>.values + t % kRowUnit));
    for (int q = 0; q < kQueries; ++q) {
      const Float probability = Simd::load(probabilities + q * kMaxTileTokens + t);
      sums[q] = Simd::multiplyAdd(probability, min, sums[q]);
      Simd::store(folded + q * kMaxTileTokens + t, Simd::multiply(probability, placed));
    }
  }
  for (int q = 0; q < kQueries; ++q) constants[q] = Simd::sum(sums[q]);
}

/// Adds kVectors vectors of channels from firstChannel. kIsPartial: the last reaches beyond
/// headDim.
template <int kNbits, int kQueries, int kVectors, bool kIsPartial>
[[gnu::always_inline]] inline void addChannels(const KvTile& tile, const QueryBlock& block,
                                               std::int64_t firstChannel, const float* folded,
                                               const float* constants) {
  constexpr int kPerWord = 32 / kNbits;
  Float sums[kQueries][kVectors];
  float* output = block.output + firstChannel;
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      sums[q][v] = Simd::add(Simd::load(output + q * block.rowFloats + v * kLanes),
                             Simd::broadcast(constants[q]));
    }
  }
  const std::byte* words = tile.values + firstChannel * 4;
  for (std::int64_t t = 0; t < tile.nTokens; t += kPerWord) {
    Words row[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      row[v] = kIsPartial ? Simd::loadWordsPartial(words, block.headDim - firstChannel)
                          : Simd::loadWords(words + v * kLanes * 4);
      prefetch(words + v * kLanes * 4, tile.aheadBytes);
    }
    unrolled<kPerWord>([&](auto i) {
      Float codes[kVectors];
      for (int v = 0; v < kVectors; ++v) codes[v] = codeInPlace<kNbits, i>(row[v]);
      for (int q = 0; q < kQueries; ++q) {
        const Float probability = Simd::broadcast(folded[q * kMaxTileTokens + t + i]);
        for (int v = 0; v < kVectors; ++v)
          sums[q][v] = Simd::multiplyAdd(codes[v], probability, sums[q][v]);
      }
    });
    words += block.headDim * 4;
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      Simd::store(output + q * block.rowFloats + v * kLanes, sums[q][v]);
    }
  }
}

template <int kNbits, int kQueries>
void addCodes(const KvTile& tile, const QueryBlock& block, const float* probabilities) {
  float* folded = block.values;
  float constants[kQueries];
  constexpr int kVectors = kWide<kQueries>;
  for (std::int64_t group = 0; group < tile.nValueGroups; ++group) {
    foldProbabilities<kNbits, kQueries>(tile, group, probabilities, folded, constants);
    std::int64_t c = group * tile.valueGroupSize;
    const std::int64_t end = smaller(c + tile.valueGroupSize, block.headDim);
    if constexpr (kVectors > 1) {
      for (; c + kVectors * kLanes <= end; c += kVectors * kLanes) {
        addChannels<kNbits, kQueries, kVectors, false>(tile, block, c, folded, constants);
      }
    }
    for (; c + kLanes <= end; c += kLanes) {
      addChannels<kNbits, kQueries, 1, false>(tile, block, c, folded, constants);
    }
    if (c < end) addChannels<kNbits, kQueries, 1, true>(tile, block, c, folded, constants);
  }
}

// --- Outputs from exact values -----------------------------------------------------------------

template <typename Rows, int kQueries, int kVectors, bool kIsPartial>
[[gnu::always_inline]] inline void addExactChannels(const KvTile& tile, const QueryBlock& block,
                                                    std::int64_t firstChannel,
                                                    const float* probabilities) {
  const auto* values = rowsOf<Rows>(tile.values) + firstChannel;
  Float sums[kQueries][kVectors];
  float* output = block.output + firstChannel;
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      sums[q][v] = Simd::load(output + q * block.rowFloats + v * kLanes);
    }
  }
  for (std::int64_t t = 0; t < tile.nTokens; ++t) {
    Float row[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      row[v] = kIsPartial ? Rows::loadPartial(values, block.headDim - firstChannel)
                          : Rows::load(values + v * kLanes);
      prefetch(values + v * kLanes, tile.aheadBytes);
    }
    for (int q = 0; q < kQueries; ++q) {
      const Float probability = Simd::broadcast(probabilities[q * kMaxTileTokens + t]);
      for (int v = 0; v < kVectors; ++v)
        sums[q][v] = Simd::multiplyAdd(row[v], probability, sums[q][v]);
    }
    values += block.headDim;
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      Simd::store(output + q * block.rowFloats + v * kLanes, sums[q][v]);
    }
  }
}

template <typename Rows, int kQueries>
void addExact(const KvTile& tile, const QueryBlock& block, const float* probabilities) {
  constexpr int kVectors = kWide<kQueries>;
  std::int64_t c = 0;
  if constexpr (kVectors > 1) {
    for (; c + kVectors * kLanes <= block.headDim; c += kVectors * kLanes) {
      addExactChannels<Rows, kQueries, kVectors, false>(tile, block, c, probabilities);
    }
  }
  for (; c + kLanes <= block.headDim; c += kLanes) {
    addExactChannels<Rows, kQueries, 1, false>(tile, block, c, probabilities);
  }
  if (c < block.headDim) {
    addExactChannels<Rows, kQueries, 1, true>(tile, block, c, probabilities);
  }
}

// --- A tile ------------------------------------------------------------------------------------

template <int kQueries>
void scoreExactRows(const KvTile& tile, const QueryBlock& block, float* scores) {
  if (tile.exactType == DataType::kF16) {
    scoreExact<HalfRows, kQueries>(tile, block, scores);
  } else {
    scoreExact<FloatRows, kQueries>(tile, block, scores);
  }
}

template <int kQueries>
void addExactRows(const KvTile& tile, const QueryBlock& block, const float* probabilities) {
  if (tile.exactType == DataType::kF16) {
    addExact<HalfRows, kQueries>(tile, block, probabilities);
  } else {
    addExact<FloatRows, kQueries>(tile, block, probabilities);
  }
}

template <int kQueries>
void attendQueries(const KvTile& tile, const QueryBlock& block) {
  float* scores = block.scores;  // [kQueries, kMaxTileTokens]
  switch (tile.keyNbits) {
    case 8:
      scoreCodes<8, kQueries>(tile, block, scores);
      break;
    case 4:
      scoreCodes<4, kQueries>(tile, block, scores);
      break;
    case 2:
      scoreCodes<2, kQueries>(tile, block, scores);
      break;
    default:
      scoreExactRows<kQueries>(tile, block, scores);
  }
  softmaxRows<kQueries>(tile, block, scores);
  switch (tile.valueNbits) {
    case 8:
      return addCodes<8, kQueries>(tile, block, scores);
    case 4:
      return addCodes<4, kQueries>(tile, block, scores);
    case 2:
      return addCodes<2, kQueries>(tile, block, scores);
    default:
      return addExactRows<kQueries>(tile, block, scores);
  }
}

/// Codes become floats: exact up to float rounding, and what every instruction set has.
inline void attendDirect(const KvTile* tiles, std::int64_t nTiles, const QueryBlock& block) {
  for (const KvTile* tile = tiles; tile != tiles + nTiles; ++tile) {
    switch (block.nQueries) {
      case 1:
        attendQueries<1>(*tile, block);
        break;
      case 2:
        attendQueries<2>(*tile, block);
        break;
      case 4:
        attendQueries<4>(*tile, block);
        break;
      default:
        attendQueries<8>(*tile, block);
    }
  }
}

// --- Runs --------------------------------------------------------------------------------------

inline void mergeRuns(const float* largest, const float* sums, const float* outputs,
                      std::int64_t stride, std::int64_t nRuns, std::int64_t headDim,
                      float* result) {
  float top = kNoScore;
  for (std::int64_t run = 0; run < nRuns; ++run) {
    top = largest[run * stride] > top ? largest[run * stride] : top;
  }
  float total = 0.0F;
  float merged[kMaxHeadDim] = {};
  for (std::int64_t run = 0; run < nRuns; ++run) {
    const float weight = powerOfTwo(largest[run * stride] - top);
    total += weight * sums[run * stride];
    for (std::int64_t c = 0; c < headDim; c += kLanes) {
      Simd::store(merged + c, Simd::multiplyAdd(Simd::load(outputs + run * stride + c),
                                                Simd::broadcast(weight), Simd::load(merged + c)));
    }
  }
  const float inverse = 1.0F / total;
  for (std::int64_t c = 0; c < headDim; ++c) result[c] = merged[c] * inverse;
}

}  // namespace
}  // namespace longhand::kernels
