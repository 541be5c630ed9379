#pragma once
// Queries and probabilities times scales, rounded to integers, for kv_decode_vnni_inl.h, where the
// formulas and their error stand.

#include <span>

#include "kernels/cpu/kv/kv_decode_inl.h"

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

/// One row of bytes for each query, and what turns dot products into numbers; [kLanes] of which the
/// first kQueries count.
template <int kQueries, std::int64_t kRow>
struct FoldedRows {
  alignas(64) std::uint8_t high[kQueries][kRow];  // only where there are two bytes
  alignas(64) std::uint8_t low[kQueries][kRow];
  alignas(64) float step[kLanes];
  alignas(64) float constant[kLanes];
};

// --- Across queries ----------------------------------------------------------------------------

/// Lane q of the result: all lanes of rows[q] joined by `join`. Few shuffles for 4 or 8 queries.
template <int kQueries, typename Join>
[[gnu::always_inline]] inline Float joinLanes(const Float (&rows)[kQueries], const Join& join) {
  const auto joinFour = [&](Float a, Float b, Float c,
                            Float d) {  // each 128-bit lane: its part of the four
    const Float ab = join(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const Float cd = join(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    return join(_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))),
                _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))));
  };
  if constexpr (kQueries == 8) {
    const Float first = joinFour(rows[0], rows[1], rows[2], rows[3]);
    const Float second = joinFour(rows[4], rows[5], rows[6], rows[7]);
    const Float pairs =
        join(_mm512_shuffle_f32x4(first, second, 0x44), _mm512_shuffle_f32x4(first, second, 0xee));
    const Float all = join(pairs, _mm512_shuffle_f32x4(pairs, pairs, 0xb1));
    return _mm512_shuffle_f32x4(all, all, 0x88);
  } else {
    Float lanes;
    if constexpr (kQueries == 4) {
      lanes = joinFour(rows[0], rows[1], rows[2], rows[3]);
    } else if constexpr (kQueries == 2) {
      lanes = joinFour(rows[0], rows[1], rows[0], rows[1]);
    } else {
      lanes = joinFour(rows[0], rows[0], rows[0], rows[0]);
    }
    const Float pairs = join(lanes, _mm512_shuffle_f32x4(lanes, lanes, 0x4e));
    return join(pairs, _mm512_shuffle_f32x4(pairs, pairs, 0xb1));
  }
}

template <int kQueries>
[[gnu::always_inline]] inline Float sumLanes(const Float (&rows)[kQueries]) {
  return joinLanes(rows, [](Float a, Float b) { return _mm512_add_ps(a, b); });
}
template <int kQueries>
[[gnu::always_inline]] inline Float largestOfLanes(const Float (&rows)[kQueries]) {
  return joinLanes(rows, [](Float a, Float b) { return _mm512_max_ps(a, b); });
}

// --- Folding: numbers times scales become integers ---------------------------------------------

/// Scales and mins of one group, as halves, and the numbers that meet them.
struct Scaled {
  const std::uint16_t* scales;
  const std::uint16_t* mins;  // nullptr: symmetric
  std::int64_t nValid;        // beyond, everything counts as 0, whatever is there
  std::int64_t count;         // a multiple of kLanes
  std::ptrdiff_t aheadBytes;
  const float* numbers;  // [kQueries, stride]
  std::int64_t stride;
};

/// Largest |number * scale| of each lane, and the sum of number * (min + middle * scale).
template <int kNbits, int kQueries>
[[gnu::always_inline]] inline void measure(const Scaled from, Float (&allTops)[kQueries],
                                           Float (&allConstants)[kQueries]) {
  Float tops[kQueries];
  Float constants[kQueries];
  unrolled<kQueries>([&](auto q) {
    tops[q] = allTops[q];
    constants[q] = allConstants[q];
  });
  for (std::int64_t i = 0; i < from.count; i += kLanes) {
    const Float scale = loadUpTo<HalfRows>(from.scales + i, from.nValid - i);
    prefetch(from.scales + i, from.aheadBytes);
    Float min = Simd::multiply(scale, Simd::broadcast(symmetricMin(kNbits)));
    if (from.mins != nullptr) {
      min = loadUpTo<HalfRows>(from.mins + i, from.nValid - i);
      prefetch(from.mins + i, from.aheadBytes);
    }
    const Float middle = Simd::multiplyAdd(scale, Simd::broadcast(kMiddle<kNbits>), min);
    unrolled<kQueries>([&](auto q) {
      const Float number = Simd::load(from.numbers + q * from.stride + i);
      constexpr int kLargestMagnitude = 0x0b;  // of two operands, without its sign
      tops[q] = _mm512_range_ps(Simd::multiply(number, scale), tops[q], kLargestMagnitude);
      constants[q] = Simd::multiplyAdd(number, middle, constants[q]);
    });
  }
  unrolled<kQueries>([&](auto q) {
    allTops[q] = tops[q];
    allConstants[q] = constants[q];
  });
}

/// Adding it leaves a number below 2^22 rounded to a whole one, in the lowest bits of the sum.
constexpr float kRoundingMagic = 0x1.8p23F;
constexpr std::uint32_t kRoundingMagicBits = 0x4b400000U;

/// number * scale * inverse, rounded: bytes from rows.low[q][first] on (and high), and added to
/// totals[q] together with kRoundingMagicBits.
template <int kNbits, int kQueries, typename Rows>
[[gnu::always_inline]] inline void roundTo(const Scaled from, const Float (&inverses)[kQueries],
                                           std::int64_t first, Words (&allTotals)[kQueries],
                                           Rows& rows) {
  Words totals[kQueries];
  unrolled<kQueries>([&](auto q) { totals[q] = allTotals[q]; });
  const Float magic = Simd::broadcast(kRoundingMagic);
  for (std::int64_t i = 0; i < from.count; i += kLanes) {
    const Float scale = loadUpTo<HalfRows>(from.scales + i, from.nValid - i);
    unrolled<kQueries>([&](auto q) {
      const Float product = Simd::multiply(Simd::load(from.numbers + q * from.stride + i), scale);
      const Words integer = _mm512_castps_si512(Simd::multiplyAdd(product, inverses[q], magic));
      totals[q] = _mm512_add_epi32(totals[q], integer);
      _mm_store_si128(reinterpret_cast<__m128i*>(rows.low[q] + first + i),
                      _mm512_cvtepi32_epi8(integer));
      if constexpr (kIntegerBytes<kNbits> == 2) {  // integer = 256 high + low, both signed
        const Words high = _mm512_srli_epi32(_mm512_add_epi32(integer, _mm512_set1_epi32(128)), 8);
        _mm_store_si128(reinterpret_cast<__m128i*>(rows.high[q] + first + i),
                        _mm512_cvtepi32_epi8(high));
      }
    });
  }
  unrolled<kQueries>([&](auto q) { allTotals[q] = totals[q]; });
}

/// Rounds what all parts hold, one after the other, to rows of integers with one step a query:
/// part(i) is a Scaled. `largest` is the largest integer.
template <int kNbits, int kQueries, typename Part, typename Rows>
[[gnu::always_inline]] inline void foldToIntegers(std::int64_t nParts, const Part& part,
                                                  float largest, Rows& rows) {
  Float tops[kQueries];
  Float constants[kQueries];
  unrolled<kQueries>([&](auto q) { tops[q] = constants[q] = Simd::zero(); });
  for (std::int64_t i = 0; i < nParts; ++i) measure<kNbits, kQueries>(part(i), tops, constants);
  alignas(64) float inverse[kLanes];
  const Float top = largestOfLanes(tops);
  const __mmask16 isLarge = _mm512_cmp_ps_mask(top, Simd::broadcast(kSmallestTop), _CMP_GT_OQ);
  Simd::store(inverse, _mm512_maskz_div_ps(isLarge, Simd::broadcast(largest), top));
  Simd::store(rows.step, Simd::multiply(top, Simd::broadcast(1.0F / largest)));
  Float inverses[kQueries];
  Words totals[kQueries];
  unrolled<kQueries>([&](auto q) {
    inverses[q] = Simd::broadcast(inverse[q]);
    totals[q] = _mm512_setzero_si512();
  });
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < nParts; ++i) {
    const Scaled from = part(i);
    roundTo<kNbits, kQueries>(from, inverses, first, totals, rows);
    first += from.count;
  }
  const auto magics = static_cast<std::uint32_t>(first / kLanes) * kRoundingMagicBits;  // wraps
  unrolled<kQueries>([&](auto q) {
    const Words total = _mm512_sub_epi32(totals[q], _mm512_set1_epi32(static_cast<int>(magics)));
    constants[q] = Simd::multiplyAdd(
        _mm512_cvtepi32_ps(total), Simd::broadcast(-kMiddle<kNbits> * rows.step[q]), constants[q]);
  });
  Simd::store(rows.constant, sumLanes(constants));
}

template <int kNbits, int kQueries, typename Rows>
[[gnu::always_inline]] inline void foldQueriesToIntegers(const KvTile& tile,
                                                         const QueryBlock& block, Rows& rows) {
  const Scaled from{tile.keyScales,  tile.keyMins,  block.headDim,  block.rowFloats,
                    tile.aheadBytes, block.queries, block.rowFloats};
  foldToIntegers<kNbits, kQueries>(
      1, [&](std::int64_t) { return from; }, kNbits == 8 ? kLargestTwoBytes : 127.0F, rows);
}

/// The probabilities of all tiles' tokens, with one step for all.
template <int kNbits, int kQueries, typename Rows>
[[gnu::always_inline]] inline void foldProbabilitiesToIntegers(std::span<const KvTile> tiles,
                                                               std::int64_t valueGroup,
                                                               const float* probabilities,
                                                               Rows& rows) {
  const auto part = [&](std::int64_t i) {
    const KvTile& tile = tiles[static_cast<std::size_t>(i)];
    const std::int64_t first = valueGroup * tile.groupSize;
    return Scaled{tile.valueScales + first,
                  tile.valueMins != nullptr ? tile.valueMins + first : nullptr,
                  tile.nTokens,
                  roundedUp(tile.nTokens, kLanes),
                  tile.aheadBytes,
                  probabilities + i * tile.groupSize,
                  kMaxTileTokens};
  };
  foldToIntegers<kNbits, kQueries>(std::ssize(tiles), part, kNbits == 8 ? kLargestTwoBytes : 255.0F,
                                   rows);
}

}  // namespace
}  // namespace longhand::kernels
