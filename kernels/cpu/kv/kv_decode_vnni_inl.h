#pragma once
// Attention of a few queries to a page of codes by integer dot products (AVX-512 VNNI). For
// kv_avx512_vnni.cpp only.
//
// With m = (2^nbits - 1) / 2, the middle of the codes, and q'_c = q_c scale_c, p'_t = p_t scale_t:
//   score  = sum_c q'_c (code_c - m) + sum_c q_c (min_c + m scale_c)
//   output = sum_t p'_t (code_t - m) + sum_t p_t (min_t + m scale_t)
// The second sums are floats. In the first, q' and p' are rounded to integers of `step`, the
// largest of the page over the largest integer, so that a vector's worth of codes (four a lane)
// costs a mask and one vpdpbusd, and code - m is left to one correction for each query and page.
//
// Error: rounding moves q'_c by up to step/2, evenly spread, and meets only the deviation of the
// code from the middle, of variance (4^nbits - 1) / 12. So over headDim channels
//   error of a score  = step sqrt(headDim (4^nbits - 1) / 144)
// while the cache's own rounding of keys gives rms(q') sqrt(headDim / 12). Their ratio is
//   crest / largest integer * sqrt((4^nbits - 1) / 12),   crest = max |q'| / rms(q')
// For 4 bits and integers to 127 that is 0.036 crest, for 2 bits 0.009 crest; crest is about 2.7
// for 128 normal numbers and 5 where a few channels stand out. 8 bits would give 0.58 crest, so
// there the integer has two bytes (to 32639): 0.002 crest. Values: likewise with the page's tokens
// for channels, integers to 255 (p' is positive): 0.018 crest for 4 bits.

#include <span>

#include "kernels/cpu/kv/kv_integer_fold_inl.h"

namespace longhand::kernels {
namespace {

// --- Dot products ------------------------------------------------------------------------------

/// Vectors of tokens or channels at once: 16 sums, and as few reloads of the integers as possible.
template <int kQueries>
constexpr int kDotVectors = kQueries == 8 ? 2 : 4;

/// Codes kPlane * 4 ... + 3 of each word, one a byte.
template <int kNbits, int kPlane>
[[gnu::always_inline]] inline Words planeOfCodes(Words words) {
  constexpr std::uint32_t kMask = ((1U << kNbits) - 1U) * 0x01010101U;
  if constexpr (kNbits == 8) return words;
  if constexpr (kPlane == 0) return Simd::maskBits(words, kMask);
  return Simd::maskBits(Simd::template shiftRight<kPlane * kNbits>(words), kMask);
}

[[gnu::always_inline]] inline Words broadcastFour(const std::uint8_t* bytes) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, bytes, sizeof(four));
  return _mm512_set1_epi32(four);
}

/// Words of codes: those of a step lie `stride` bytes after those of the step before.
struct CodeWords {
  const std::byte* first;
  std::int64_t stride;
  std::int64_t count;         // steps
  std::ptrdiff_t aheadBytes;  // KvTile::aheadBytes
};

/// sums[q][v] += sum over words of (code * integer byte), the bytes of query q at bytes + q * kRow.
/// kAreUnsigned: the bytes are, and the codes are below 128. kIsPartial: only `lanes` of a vector.
template <int kNbits, int kQueries, int kVectors, std::int64_t kRow, bool kAreUnsigned,
          bool kIsPartial, bool kAsksAhead>
[[gnu::always_inline]] inline void addDots(const CodeWords words, std::int64_t lanes,
                                           const std::uint8_t* bytes,
                                           Words (&sums)[kQueries][kVectors]) {
  constexpr int kPerWord = 32 / kNbits;
  const std::byte* at = words.first;
  for (std::int64_t w = 0; w < words.count; ++w) {
    Words row[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      row[v] =
          kIsPartial ? Simd::loadWordsPartial(at, lanes) : Simd::loadWords(at + v * kLanes * 4);
      if constexpr (kAsksAhead) prefetch(at + v * kLanes * 4, words.aheadBytes);
    }
    unrolled<kPerWord / 4>([&](auto plane) {
      Words codes[kVectors];
      for (int v = 0; v < kVectors; ++v) codes[v] = planeOfCodes<kNbits, plane>(row[v]);
      for (int q = 0; q < kQueries; ++q) {
        const Words integers = broadcastFour(bytes + q * kRow + plane * 4);
        for (int v = 0; v < kVectors; ++v) {
          sums[q][v] = kAreUnsigned ? _mm512_dpbusd_epi32(sums[q][v], integers, codes[v])
                                    : _mm512_dpbusd_epi32(sums[q][v], codes[v], integers);
        }
      }
    });
    bytes += kPerWord;
    at += words.stride;
  }
}

template <int kQueries, int kVectors>
[[gnu::always_inline]] inline void clear(Words (&sums)[kQueries][kVectors]) {
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm512_setzero_si512();
  }
}

/// What the high bytes gave, before the low bytes are added.
template <int kQueries, int kVectors>
[[gnu::always_inline]] inline void timesByte(Words (&sums)[kQueries][kVectors]) {
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm512_slli_epi32(sums[q][v], 8);
  }
}

template <int kNbits, int kQueries, int kVectors, std::int64_t kRow>
[[gnu::always_inline]] inline void scoreTokensByIntegers(const KvTile& tile,
                                                         std::int64_t firstToken,
                                                         const FoldedRows<kQueries, kRow>& rows,
                                                         float* scores) {
  constexpr bool kHasTwo = kIntegerBytes<kNbits> == 2;
  const CodeWords words{tile.keys + firstToken * 4, tile.groupSize * 4, tile.keyWords,
                        tile.aheadBytes};
  Words sums[kQueries][kVectors];
  clear(sums);
  if constexpr (kHasTwo) {
    addDots<kNbits, kQueries, kVectors, kRow, false, false, true>(words, kLanes, rows.high[0],
                                                                  sums);
    timesByte(sums);
  }
  addDots<kNbits, kQueries, kVectors, kRow, false, false, !kHasTwo>(words, kLanes, rows.low[0],
                                                                    sums);
  for (int q = 0; q < kQueries; ++q) {
    const Float step = Simd::broadcast(rows.step[q]);
    const Float constant = Simd::broadcast(rows.constant[q]);
    for (int v = 0; v < kVectors; ++v) {
      Simd::store(scores + q * kMaxTileTokens + firstToken + v * kLanes,
                  Simd::multiplyAdd(_mm512_cvtepi32_ps(sums[q][v]), step, constant));
    }
  }
}

template <int kNbits, int kQueries, int kVectors, bool kIsPartial, std::int64_t kRow>
[[gnu::always_inline]] inline void addChannelsByIntegers(std::span<const KvTile> tiles,
                                                         const QueryBlock& block,
                                                         std::int64_t firstChannel,
                                                         const FoldedRows<kQueries, kRow>& rows) {
  constexpr int kPerWord = 32 / kNbits;
  constexpr bool kHasTwo = kIntegerBytes<kNbits> == 2;
  constexpr bool kAreUnsigned = !kHasTwo;
  const std::int64_t lanes = block.headDim - firstChannel;
  const auto wordsOf = [&](const KvTile& tile) {
    return CodeWords{tile.values + firstChannel * 4, block.headDim * 4,
                     (tile.nTokens + kPerWord - 1) / kPerWord, tile.aheadBytes};
  };
  Words sums[kQueries][kVectors];
  clear(sums);
  if constexpr (kHasTwo) {
    const std::uint8_t* bytes = rows.high[0];
    for (const KvTile& tile : tiles) {
      addDots<kNbits, kQueries, kVectors, kRow, kAreUnsigned, kIsPartial, true>(wordsOf(tile),
                                                                                lanes, bytes, sums);
      bytes += tile.groupSize;
    }
    timesByte(sums);
  }
  const std::uint8_t* bytes = rows.low[0];
  for (const KvTile& tile : tiles) {
    addDots<kNbits, kQueries, kVectors, kRow, kAreUnsigned, kIsPartial, !kHasTwo>(
        wordsOf(tile), lanes, bytes, sums);
    bytes += tile.groupSize;
  }
  for (int q = 0; q < kQueries; ++q) {
    const Float step = Simd::broadcast(rows.step[q]);
    const Float constant = Simd::broadcast(rows.constant[q]);
    float* output = block.output + q * block.rowFloats + firstChannel;
    for (int v = 0; v < kVectors; ++v) {
      const Float before = Simd::add(Simd::load(output + v * kLanes), constant);
      Simd::store(output + v * kLanes,
                  Simd::multiplyAdd(_mm512_cvtepi32_ps(sums[q][v]), step, before));
    }
  }
}

// --- Softmax -----------------------------------------------------------------------------------

/// 2^x for x <= 127, 0 far below: relative error under 4e-6, where the rounding of an 8-bit cache
/// is 1e-3. Polynomial interpolated at Chebyshev points of [0, 1]; vscalefps rounds x down itself.
[[gnu::always_inline]] inline Float roughPowerOfTwo(Float x) {
  const Float part = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  Float power = Simd::broadcast(0.013670309F);
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.051744998F));
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.24160436F));
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.69297292F));
  power = Simd::multiplyAdd(power, part, Simd::broadcast(1.0000035F));
  return _mm512_scalef_ps(power, x);
}

/// Powers of two that `largest` may lag behind a score, so that outputs are seldom rescaled.
constexpr float kSoftmaxHeadroom = 16.0F;

/// softmaxRows() where all queries see all tokens, `largest` being any number that no score
/// exceeds by more than kSoftmaxHeadroom.
template <int kQueries>
void roughSoftmaxRows(std::int64_t nTokens, const QueryBlock& block, float* const scores) {
  const std::int64_t whole = nTokens / kLanes * kLanes;
  Float tops[kQueries];
  unrolled<kQueries>([&](auto q) { tops[q] = Simd::broadcast(-__builtin_huge_valf()); });
  for (std::int64_t t = 0; t < whole; t += kLanes) {
    unrolled<kQueries>(
        [&](auto q) { tops[q] = Simd::max(tops[q], Simd::load(scores + q * kMaxTileTokens + t)); });
  }
  if (whole < nTokens) {
    unrolled<kQueries>([&](auto q) {
      float* last = scores + q * kMaxTileTokens + whole;
      const Float score =
          Simd::keepFirst(Simd::load(last), nTokens - whole, -__builtin_huge_valf());
      Simd::store(last, score);
      tops[q] = Simd::max(tops[q], score);
    });
  }
  alignas(64) float largest[kLanes];
  const Float top = largestOfLanes(tops);
  const Float limit =
      Simd::add(Simd::loadPartial(block.largest, kQueries), Simd::broadcast(kSoftmaxHeadroom));
  Simd::store(largest, top);
  unsigned isAbove = _mm512_cmp_ps_mask(top, limit, _CMP_GT_OQ) & ((1U << kQueries) - 1U);
  Float references[kQueries];
  Float sums[kQueries];
  for (int q = 0; isAbove != 0; ++q, isAbove >>= 1U) {
    if ((isAbove & 1U) != 0) {
      const float factor = powerOfTwo(block.largest[q] - largest[q]);
      block.largest[q] = largest[q];
      block.sum[q] *= factor;
      scaleRow(block.output + q * block.rowFloats, block.rowFloats, factor);
    }
  }
  unrolled<kQueries>([&](auto q) {
    references[q] = Simd::broadcast(block.largest[q]);
    sums[q] = Simd::zero();
  });
  for (std::int64_t t = 0; t < whole; t += kLanes) {
    unrolled<kQueries>([&](auto q) {
      float* at = scores + q * kMaxTileTokens + t;
      const Float probability = roughPowerOfTwo(Simd::subtract(Simd::load(at), references[q]));
      Simd::store(at, probability);
      sums[q] = Simd::add(sums[q], probability);
    });
  }
  if (whole < nTokens) {
    unrolled<kQueries>([&](auto q) {
      float* last = scores + q * kMaxTileTokens + whole;
      const Float probability = Simd::keepFirst(
          roughPowerOfTwo(Simd::subtract(Simd::load(last), references[q])), nTokens - whole, 0.0F);
      Simd::store(last, probability);
      sums[q] = Simd::add(sums[q], probability);
    });
  }
  const auto queries = static_cast<__mmask16>((1U << kQueries) - 1U);
  _mm512_mask_storeu_ps(block.sum, queries,
                        Simd::add(sumLanes(sums), Simd::loadPartial(block.sum, kQueries)));
}

// --- Tiles --------------------------------------------------------------------------------------

template <int kNbits, int kQueries, typename Rows>
[[gnu::always_inline]] inline void scoreTileByIntegers(const KvTile& tile, const Rows& rows,
                                                       float* scores) {
  constexpr int kVectors = kDotVectors<kQueries>;
  std::int64_t t = 0;
  for (; t + kVectors * kLanes <= tile.groupSize && t < tile.nTokens; t += kVectors * kLanes) {
    scoreTokensByIntegers<kNbits, kQueries, kVectors>(tile, t, rows, scores);
  }
  if constexpr (kVectors > 2) {  // a group of 32
    for (; t < tile.nTokens; t += 2 * kLanes) {
      scoreTokensByIntegers<kNbits, kQueries, 2>(tile, t, rows, scores);
    }
  }
}

/// Two tiles are folded before the first is scored: folding is a chain of waits (the largest, its
/// inverse, the rounding) that the second fills.
template <int kNbits, int kQueries>
void scoreByIntegers(std::span<const KvTile> tiles, const QueryBlock& block, float* scores) {
  FoldedRows<kQueries, kMaxHeadDim> rows[2];
  for (std::size_t i = 0; i < tiles.size(); i += 2) {
    const std::size_t n = tiles.size() - i < 2 ? 1 : 2;
    for (std::size_t j = 0; j < n; ++j) {
      foldQueriesToIntegers<kNbits, kQueries>(tiles[i + j], block, rows[j]);
    }
    for (std::size_t j = 0; j < n; ++j) {
      scoreTileByIntegers<kNbits, kQueries>(tiles[i + j], rows[j], scores);
      scores += tiles[i + j].nTokens;
    }
  }
}

template <int kNbits, int kQueries>
void addByIntegers(std::span<const KvTile> tiles, const QueryBlock& block,
                   const float* probabilities) {
  FoldedRows<kQueries, kMaxTileTokens> rows;
  constexpr int kVectors = kDotVectors<kQueries>;
  const KvTile& first = tiles.front();
  for (std::int64_t group = 0; group < first.nValueGroups; ++group) {
    foldProbabilitiesToIntegers<kNbits, kQueries>(tiles, group, probabilities, rows);
    std::int64_t c = group * first.valueGroupSize;
    const std::int64_t end = smaller(c + first.valueGroupSize, block.headDim);
    for (; c + kVectors * kLanes <= end; c += kVectors * kLanes) {
      addChannelsByIntegers<kNbits, kQueries, kVectors, false>(tiles, block, c, rows);
    }
    for (; c + kLanes <= end; c += kLanes) {
      addChannelsByIntegers<kNbits, kQueries, 1, false>(tiles, block, c, rows);
    }
    if (c < end) addChannelsByIntegers<kNbits, kQueries, 1, true>(tiles, block, c, rows);
  }
}

template <int kQueries>
void attendTilesByIntegers(std::span<const KvTile> tiles, const QueryBlock& block) {
  const KvTile& first = tiles.front();
  if (first.keyNbits == 16 && first.valueNbits == 16) {
    for (const KvTile& tile : tiles) attendQueries<kQueries>(tile, block);
    return;
  }
  float* scores = block.scores;  // [kQueries, kMaxTileTokens]
  switch (first.keyNbits) {
    case 8:
      scoreByIntegers<8, kQueries>(tiles, block, scores);
      break;
    case 4:
      scoreByIntegers<4, kQueries>(tiles, block, scores);
      break;
    case 2:
      scoreByIntegers<2, kQueries>(tiles, block, scores);
      break;
    default:
      for (std::int64_t i = 0; i < std::ssize(tiles); ++i) {
        scoreExactRows<kQueries>(tiles[static_cast<std::size_t>(i)], block,
                                 scores + i * first.groupSize);
      }
  }
  const std::int64_t nTokens = (std::ssize(tiles) - 1) * first.groupSize + tiles.back().nTokens;
  roughSoftmaxRows<kQueries>(nTokens, block, scores);
  switch (first.valueNbits) {
    case 8:
      return addByIntegers<8, kQueries>(tiles, block, scores);
    case 4:
      return addByIntegers<4, kQueries>(tiles, block, scores);
    case 2:
      return addByIntegers<2, kQueries>(tiles, block, scores);
    default:
      for (std::int64_t i = 0; i < std::ssize(tiles); ++i) {
        addExactRows<kQueries>(tiles[static_cast<std::size_t>(i)], block,
                               scores + i * first.groupSize);
      }
  }
}

/// Codes meet integers. Pages of exact numbers are attended as elsewhere.
inline void attendDirectByIntegers(const KvTile* tiles, std::int64_t nTiles,
                                   const QueryBlock& block) {
  const std::span all(tiles, static_cast<std::size_t>(nTiles));
  switch (block.nQueries) {
    case 1:
      return attendTilesByIntegers<1>(all, block);
    case 2:
      return attendTilesByIntegers<2>(all, block);
    case 4:
      return attendTilesByIntegers<4>(all, block);
    default:
      return attendTilesByIntegers<8>(all, block);
  }
}

}  // namespace
}  // namespace longhand::kernels
