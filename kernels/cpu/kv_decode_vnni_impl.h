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

#include "kernels/cpu/kv_decode_impl.h"

namespace longhand::kernels {
namespace {

/// Bytes of the integers: the codes of 8 bits would magnify the rounding of one byte too much.
template <int kNbits>
constexpr int kIntegerBytes = kNbits == 8 ? 2 : 1;
/// -32639 to 32639 is what a signed high and low byte can both hold.
constexpr float kLargestTwoBytes = 32639.0F;

/// Below this a largest number counts as 0: its inverse would overflow.
constexpr float kSmallestTop = 1.0e-30F;

template <int kNbits>
constexpr float kMiddle = static_cast<float>((1 << kNbits) - 1) / 2.0F;

/// One row of bytes for each query, and what turns dot products into numbers.
template <int kQueries, std::int64_t kRow>
struct FoldedRows {
  alignas(64) std::uint8_t high[kQueries][kRow];  // only where there are two bytes
  alignas(64) std::uint8_t low[kQueries][kRow];
  alignas(64) float step[kQueries];
  alignas(64) float constant[kQueries];
};

// --- Across queries ----------------------------------------------------------------------------

/// results[q] = all lanes of rows[q] joined by `join`, for 4 or 8 queries with few shuffles.
template <int kQueries, typename Join>
[[gnu::always_inline]] inline void joinLanes(const F* rows, const Join& join, float* results) {
  const auto joinFour = [&](const F* four) {  // each 128-bit lane: its part of the four results
    const F ab = join(_mm512_unpacklo_ps(four[0], four[1]), _mm512_unpackhi_ps(four[0], four[1]));
    const F cd = join(_mm512_unpacklo_ps(four[2], four[3]), _mm512_unpackhi_ps(four[2], four[3]));
    const __m512d a = _mm512_castps_pd(ab);
    const __m512d c = _mm512_castps_pd(cd);
    return join(_mm512_castpd_ps(_mm512_unpacklo_pd(a, c)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(a, c)));
  };
  if constexpr (kQueries == 8) {
    const F first = joinFour(rows);
    const F second = joinFour(rows + 4);
    const F pairs =
        join(_mm512_shuffle_f32x4(first, second, 0x44), _mm512_shuffle_f32x4(first, second, 0xee));
    const F all = join(pairs, _mm512_shuffle_f32x4(pairs, pairs, 0xb1));
    _mm_storeu_ps(results, _mm512_castps512_ps128(all));
    _mm_storeu_ps(results + 4, _mm512_extractf32x4_ps(all, 2));
  } else if constexpr (kQueries == 4) {
    const F lanes = joinFour(rows);
    const F pairs = join(lanes, _mm512_shuffle_f32x4(lanes, lanes, 0x4e));
    const F all = join(pairs, _mm512_shuffle_f32x4(pairs, pairs, 0xb1));
    _mm_storeu_ps(results, _mm512_castps512_ps128(all));
  } else {
    for (int q = 0; q < kQueries; ++q) {
      const F halves = join(rows[q], _mm512_shuffle_f32x4(rows[q], rows[q], 0x4e));
      const F quarters = join(halves, _mm512_shuffle_f32x4(halves, halves, 0xb1));
      const F pairs = join(quarters, _mm512_permute_ps(quarters, 0x4e));
      results[q] = _mm512_cvtss_f32(join(pairs, _mm512_permute_ps(pairs, 0xb1)));
    }
  }
}

template <int kQueries>
[[gnu::always_inline]] inline void sumLanes(const F* rows, float* sums) {
  joinLanes<kQueries>(
      rows, [](F a, F b) { return _mm512_add_ps(a, b); }, sums);
}
template <int kQueries>
[[gnu::always_inline]] inline void largestOfLanes(const F* rows, float* largest) {
  joinLanes<kQueries>(
      rows, [](F a, F b) { return _mm512_max_ps(a, b); }, largest);
}

// --- Folding: numbers times scales become integers ---------------------------------------------

/// floats [kQueries, kStride] become the rows' bytes, times inverse = 1 / step. Subtracts
/// kMiddle * integer * step from `constants`.
template <int kNbits, int kQueries, std::int64_t kStride, typename Rows>
[[gnu::always_inline]] inline void roundRows(const float* floats, std::int64_t count, float largest,
                                             const float* tops, F* constants, Rows& rows) {
  float inverse[kQueries];
  for (int q = 0; q < kQueries; ++q) {
    inverse[q] = tops[q] > kSmallestTop ? largest / tops[q] : 0.0F;
    rows.step[q] = tops[q] * (1.0F / largest);
  }
  for (int q = 0; q < kQueries; ++q) {
    const F scale = Simd::set(inverse[q]);
    const F correction = Simd::set(-kMiddle<kNbits> * rows.step[q]);
    for (std::int64_t i = 0; i < count; i += kLanes) {
      const U integer = _mm512_cvtps_epi32(Simd::mul(Simd::load(floats + q * kStride + i), scale));
      constants[q] = Simd::fma(_mm512_cvtepi32_ps(integer), correction, constants[q]);
      _mm_store_si128(reinterpret_cast<__m128i*>(rows.low[q] + i), _mm512_cvtepi32_epi8(integer));
      if constexpr (kIntegerBytes<kNbits> == 2) {  // integer = 256 high + low, both signed
        const U high = _mm512_srai_epi32(_mm512_add_epi32(integer, _mm512_set1_epi32(128)), 8);
        _mm_store_si128(reinterpret_cast<__m128i*>(rows.high[q] + i), _mm512_cvtepi32_epi8(high));
      }
    }
  }
}

template <int kNbits, int kQueries, typename Rows>
void foldQueriesToIntegers(const KvTile& tile, const QueryBlock& block, Rows& rows) {
  F tops[kQueries];
  F constants[kQueries];
  unrolled<kQueries>([&](auto q) { tops[q] = constants[q] = Simd::zero(); });
  float* folded = block.keys;  // [kQueries, kFoldedRow]
  for (std::int64_t c = 0; c < block.rowFloats; c += kLanes) {
    const std::int64_t n = block.headDim - c;
    const F scale = loadUpTo<HalfRows>(tile.keyScales + c, n);
    prefetch(tile.keyScales + c, tile.aheadBytes);
    prefetch(tile.keyMins + c, tile.aheadBytes);
    const F min = tile.keyMins != nullptr ? loadUpTo<HalfRows>(tile.keyMins + c, n)
                                          : Simd::mul(scale, Simd::set(symmetricMin(kNbits)));
    const F middle = Simd::fma(scale, Simd::set(kMiddle<kNbits>), min);
    unrolled<kQueries>([&](auto q) {
      const F query = Simd::load(block.queries + q * block.rowFloats + c);
      const F product = Simd::mul(query, scale);
      Simd::store(folded + q * kFoldedRow + c, product);
      tops[q] = Simd::max(Simd::abs(product), tops[q]);
      constants[q] = Simd::fma(query, middle, constants[q]);
    });
  }
  float largest[kQueries];
  largestOfLanes<kQueries>(tops, largest);
  roundRows<kNbits, kQueries, kFoldedRow>(
      folded, block.rowFloats, kNbits == 8 ? kLargestTwoBytes : 127.0F, largest, constants, rows);
  sumLanes<kQueries>(constants, rows.constant);
}

/// Probabilities beyond the valid tokens count as 0, whatever the scales there.
template <int kNbits, int kQueries, typename Rows>
void foldProbabilitiesToIntegers(const KvTile& tile, std::int64_t valueGroup,
                                 const float* probabilities, float* folded, Rows& rows) {
  F tops[kQueries];
  F constants[kQueries];
  unrolled<kQueries>([&](auto q) { tops[q] = constants[q] = Simd::zero(); });
  const std::uint16_t* scales = tile.valueScales + valueGroup * tile.groupSize;
  const std::uint16_t* mins = tile.valueMins + valueGroup * tile.groupSize;
  const std::int64_t padded = roundedUp(tile.nTokens, kLanes);
  for (std::int64_t t = 0; t < padded; t += kLanes) {
    const std::int64_t n = tile.nTokens - t;
    const F scale = loadUpTo<HalfRows>(scales + t, n);
    prefetch(scales + t, tile.aheadBytes);
    prefetch(mins + t, tile.aheadBytes);
    const F min = tile.valueMins != nullptr ? loadUpTo<HalfRows>(mins + t, n)
                                            : Simd::mul(scale, Simd::set(symmetricMin(kNbits)));
    const F middle = Simd::fma(scale, Simd::set(kMiddle<kNbits>), min);
    unrolled<kQueries>([&](auto q) {
      const F probability = Simd::load(probabilities + q * kMaxTileTokens + t);
      const F product = Simd::mul(probability, scale);
      Simd::store(folded + q * kMaxTileTokens + t, product);
      tops[q] = Simd::max(product, tops[q]);
      constants[q] = Simd::fma(probability, middle, constants[q]);
    });
  }
  float largest[kQueries];
  largestOfLanes<kQueries>(tops, largest);
  roundRows<kNbits, kQueries, kMaxTileTokens>(
      folded, padded, kNbits == 8 ? kLargestTwoBytes : 255.0F, largest, constants, rows);
  sumLanes<kQueries>(constants, rows.constant);
}

// --- Dot products ------------------------------------------------------------------------------

/// Vectors of tokens or channels at once: 16 sums, and as few reloads of the integers as possible.
template <int kQueries>
constexpr int kDotVectors = kQueries == 8 ? 2 : 4;

/// Codes kPlane * 4 ... + 3 of each word, one a byte.
template <int kNbits, int kPlane>
[[gnu::always_inline]] inline U planeOfCodes(U words) {
  constexpr std::uint32_t kMask = ((1U << kNbits) - 1U) * 0x01010101U;
  if constexpr (kNbits == 8) return words;
  if constexpr (kPlane == 0) return Simd::maskBits(words, kMask);
  return Simd::maskBits(Simd::template shiftRight<kPlane * kNbits>(words), kMask);
}

[[gnu::always_inline]] inline U broadcastFour(const std::uint8_t* bytes) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, bytes, sizeof(four));
  return _mm512_set1_epi32(four);
}

/// sums[q][v] += sum over nWords words of (code * integer byte). Words of a step lie `stride` bytes
/// after those of the step before. kAreUnsigned: the bytes are, and the codes are below 128.
/// kAsksAhead: with each word the one `ahead` bytes away (KvTile::aheadBytes).
template <int kNbits, int kQueries, int kVectors, bool kAreUnsigned, bool kIsPartial,
          bool kAsksAhead, std::int64_t kRow>
[[gnu::always_inline]] inline void addDots(const std::byte* words, std::int64_t stride,
                                           std::int64_t nWords, std::int64_t lanes,
                                           std::ptrdiff_t ahead,
                                           const std::uint8_t (&bytes)[kQueries][kRow],
                                           U (&sums)[kQueries][kVectors]) {
  constexpr int kPerWord = 32 / kNbits;
  const std::uint8_t* four = bytes[0];
  for (std::int64_t w = 0; w < nWords; ++w) {
    U row[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      row[v] = kIsPartial ? Simd::loadWordsPartial(words, lanes)
                          : Simd::loadWords(words + v * kLanes * 4);
      if constexpr (kAsksAhead) prefetch(words + v * kLanes * 4, ahead);
    }
    unrolled<kPerWord / 4>([&](auto plane) {
      U codes[kVectors];
      for (int v = 0; v < kVectors; ++v) codes[v] = planeOfCodes<kNbits, plane>(row[v]);
      for (int q = 0; q < kQueries; ++q) {
        const U integers = broadcastFour(four + q * kRow + plane * 4);
        for (int v = 0; v < kVectors; ++v) {
          sums[q][v] = kAreUnsigned ? _mm512_dpbusd_epi32(sums[q][v], integers, codes[v])
                                    : _mm512_dpbusd_epi32(sums[q][v], codes[v], integers);
        }
      }
    });
    four += kPerWord;
    words += stride;
  }
}

template <int kNbits, int kQueries, int kVectors, bool kAreUnsigned, bool kIsPartial = false,
          typename Rows>
[[gnu::always_inline]] inline void dots(const std::byte* words, std::int64_t stride,
                                        std::int64_t nWords, std::int64_t lanes,
                                        std::ptrdiff_t ahead, const Rows& rows,
                                        U (&sums)[kQueries][kVectors]) {
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm512_setzero_si512();
  }
  constexpr bool kHasTwo = kIntegerBytes<kNbits> == 2;
  if constexpr (kHasTwo) {
    addDots<kNbits, kQueries, kVectors, kAreUnsigned, kIsPartial, true>(
        words, stride, nWords, lanes, ahead, rows.high, sums);
    for (int q = 0; q < kQueries; ++q) {
      for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm512_slli_epi32(sums[q][v], 8);
    }
  }
  addDots<kNbits, kQueries, kVectors, kAreUnsigned, kIsPartial, !kHasTwo>(
      words, stride, nWords, lanes, ahead, rows.low, sums);
}

template <int kNbits, int kQueries, int kVectors, typename Rows>
[[gnu::always_inline]] inline void scoreTokensByIntegers(const KvTile& tile,
                                                         std::int64_t firstToken, const Rows& rows,
                                                         float* scores) {
  U sums[kQueries][kVectors];
  dots<kNbits, kQueries, kVectors, false>(tile.keys + firstToken * 4, tile.groupSize * 4,
                                          tile.keyWords, kLanes, tile.aheadBytes, rows, sums);
  for (int q = 0; q < kQueries; ++q) {
    const F step = Simd::set(rows.step[q]);
    const F constant = Simd::set(rows.constant[q]);
    for (int v = 0; v < kVectors; ++v) {
      Simd::store(scores + q * kMaxTileTokens + firstToken + v * kLanes,
                  Simd::fma(_mm512_cvtepi32_ps(sums[q][v]), step, constant));
    }
  }
}

template <int kNbits, int kQueries, int kVectors, bool kIsPartial, typename Rows>
[[gnu::always_inline]] inline void addChannelsByIntegers(const KvTile& tile,
                                                         const QueryBlock& block,
                                                         std::int64_t firstChannel,
                                                         const Rows& rows) {
  constexpr int kPerWord = 32 / kNbits;
  U sums[kQueries][kVectors];
  dots<kNbits, kQueries, kVectors, kNbits != 8, kIsPartial>(
      tile.values + firstChannel * 4, block.headDim * 4, (tile.nTokens + kPerWord - 1) / kPerWord,
      block.headDim - firstChannel, tile.aheadBytes, rows, sums);
  for (int q = 0; q < kQueries; ++q) {
    const F step = Simd::set(rows.step[q]);
    const F constant = Simd::set(rows.constant[q]);
    float* output = block.output + q * block.rowFloats + firstChannel;
    for (int v = 0; v < kVectors; ++v) {
      const F before = Simd::add(Simd::load(output + v * kLanes), constant);
      Simd::store(output + v * kLanes, Simd::fma(_mm512_cvtepi32_ps(sums[q][v]), step, before));
    }
  }
}

// --- Softmax -----------------------------------------------------------------------------------

/// 2^x for x in [-126, 127], and 2^-126 below: relative error under 4e-6, the rounding of an 8-bit
/// cache being 1e-3.
[[gnu::always_inline]] inline F roughPowerOfTwo(F x) {
  const F bounded = Simd::max(Simd::set(-126.0F), x);
  const F whole = Simd::round(bounded);
  const F part = Simd::sub(bounded, whole);
  F power = Simd::set(0.0096663684F);
  power = Simd::fma(power, part, Simd::set(0.055921976F));
  power = Simd::fma(power, part, Simd::set(0.24022349F));
  power = Simd::fma(power, part, Simd::set(0.69312105F));
  power = Simd::fma(power, part, Simd::set(1.0F));
  return _mm512_scalef_ps(power, whole);
}

/// Powers of two that `largest` may lag behind a score, so that outputs are seldom rescaled.
constexpr float kSoftmaxHeadroom = 16.0F;

/// softmaxRows() where all queries see all tokens, `largest` being any number that no score
/// exceeds by more than kSoftmaxHeadroom.
template <int kQueries>
void roughSoftmaxRows(const KvTile& tile, const QueryBlock& block, float* scores) {
  const std::int64_t padded = roundedUp(tile.nTokens, kLanes);
  F tops[kQueries];
  for (int q = 0; q < kQueries; ++q) {
    float* row = scores + q * kMaxTileTokens;
    if (tile.nTokens < padded) {
      const std::int64_t t = padded - kLanes;
      Simd::store(row + t,
                  Simd::keepFirst(Simd::load(row + t), tile.nTokens - t, -__builtin_huge_valf()));
    }
    tops[q] = Simd::load(row);
    for (std::int64_t t = kLanes; t < padded; t += kLanes) {
      tops[q] = Simd::max(tops[q], Simd::load(row + t));
    }
  }
  float largest[kQueries];
  largestOfLanes<kQueries>(tops, largest);
  F sums[kQueries];
  for (int q = 0; q < kQueries; ++q) {
    if (largest[q] > block.largest[q] + kSoftmaxHeadroom) [[unlikely]] {
      const float factor = powerOfTwo(block.largest[q] - largest[q]);
      block.largest[q] = largest[q];
      block.sum[q] *= factor;
      scaleRow(block.output + q * block.rowFloats, block.rowFloats, factor);
    }
    float* row = scores + q * kMaxTileTokens;
    const F reference = Simd::set(block.largest[q]);
    sums[q] = Simd::zero();
    for (std::int64_t t = 0; t < padded; t += kLanes) {
      F probability = roughPowerOfTwo(Simd::sub(Simd::load(row + t), reference));
      if (t + kLanes > tile.nTokens) {
        probability = Simd::keepFirst(probability, tile.nTokens - t, 0.0F);
      }
      Simd::store(row + t, probability);
      sums[q] = Simd::add(sums[q], probability);
    }
  }
  float added[kQueries];
  sumLanes<kQueries>(sums, added);
  for (int q = 0; q < kQueries; ++q) block.sum[q] += added[q];
}

// --- A tile ------------------------------------------------------------------------------------

/// Codes meet integers. Pages of exact numbers are attended as elsewhere.
struct IntegerCodes {
  template <int kNbits, int kQueries>
  static void score(const KvTile& tile, const QueryBlock& block, float* scores) {
    FoldedRows<kQueries, kMaxHeadDim> rows;
    foldQueriesToIntegers<kNbits, kQueries>(tile, block, rows);
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

  template <int kQueries>
  static void softmax(const KvTile& tile, const QueryBlock& block, float* scores) {
    if (tile.keyNbits == 16 && tile.valueNbits == 16) {
      softmaxRows<kQueries>(tile, block, scores);
    } else {
      roughSoftmaxRows<kQueries>(tile, block, scores);
    }
  }

  template <int kNbits, int kQueries>
  static void add(const KvTile& tile, const QueryBlock& block, const float* probabilities) {
    FoldedRows<kQueries, kMaxTileTokens> rows;
    constexpr int kVectors = kDotVectors<kQueries>;
    for (std::int64_t group = 0; group < tile.nValueGroups; ++group) {
      foldProbabilitiesToIntegers<kNbits, kQueries>(tile, group, probabilities, block.values, rows);
      std::int64_t c = group * tile.valueGroupSize;
      const std::int64_t end = smaller(c + tile.valueGroupSize, block.headDim);
      for (; c + kVectors * kLanes <= end; c += kVectors * kLanes) {
        addChannelsByIntegers<kNbits, kQueries, kVectors, false>(tile, block, c, rows);
      }
      for (; c + kLanes <= end; c += kLanes) {
        addChannelsByIntegers<kNbits, kQueries, 1, false>(tile, block, c, rows);
      }
      if (c < end) addChannelsByIntegers<kNbits, kQueries, 1, true>(tile, block, c, rows);
    }
  }
};

}  // namespace
}  // namespace longhand::kernels
