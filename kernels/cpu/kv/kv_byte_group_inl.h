#pragma once
// Attention of many queries to pages of up to 4 bits by products of bytes (vpdpbusd), at twice the
// rate of 16-bit numbers. Included by kv_avx512_bf16.cpp only.
//
// As in kv_decode_vnni_inl.h, which derives the error, scales become part of queries and
// probabilities, which are rounded to bytes; codes are bytes already. With m the middle of the
// codes:
//   score  = sum_c q'_c (code_c - m) + sum_c q_c (min_c + m scale_c)     q'_c = q_c scale_c
//   output = sum_t p'_t (code_t - m) + sum_t p_t (min_t + m scale_t)     p'_t = p_t scale_t
// Each query and page have a step of their own, so that q' reaches 127. Queries lie along the
// register; folding them for a page multiplies 16-bit integers, 32 at a time, and costs a quarter
// of the products of a page of 64 tokens. p' has one step for a query and a group of tiles: its
// largest probability times the group's largest scale becomes 255.

#include <limits>
#include <span>

#include "kernels/cpu/kv/kv_narrow_product_inl.h"

namespace longhand::kernels {
namespace {

constexpr std::int64_t kMostPages = kGroupTokens / kMinGroupSize;
/// Queries that go through scores, softmax and output together: their scores of a group and their
/// probabilities, 40 KiB, stay in the first-level cache.
constexpr std::int64_t kByteQueries = 32;

/// Whether attendBytes() takes the group: whole pages of one format, of codes below 16.
inline bool isByteGroup(const KvGroup& group, const QueryBlock& block) {
  if (block.headDim % kLanes != 0) return false;
  const KvTile& first = group.tiles[0];
  for (std::int64_t i = 0; i < group.nTiles; ++i) {
    const KvTile& tile = group.tiles[i];
    if (tile.keyNbits > 4 || tile.valueNbits > 4 || tile.nTokens != tile.groupSize ||
        tile.keyNbits != first.keyNbits || tile.valueNbits != first.valueNbits ||
        tile.groupSize != first.groupSize) {
      return false;
    }
  }
  return true;
}

inline float middleOfCodes(int nbits) { return static_cast<float>((1 << nbits) - 1) / 2.0F; }

/// Keeps inverses finite where all scales are 0.
constexpr float kTinyScale = 1.0e-30F;

// --- Codes and scales of a group ---------------------------------------------------------------

/// rows [nWords, nColumns] of words to [nWords * 32 / kNbits / 4, nColumns] of four codes each, of
/// which the first nQuads are written. kSwaps: in the order 0, 2, 1, 3.
template <int kNbits, bool kSwaps>
void spreadCodes(const std::byte* words, std::int64_t nColumns, std::int64_t nQuads,
                 std::uint32_t* quads) {
  constexpr int kPlanes = 8 / kNbits;
  constexpr std::uint32_t kMask = ((1U << kNbits) - 1U) * 0x01010101U;
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
  for (std::int64_t first = 0; first < nQuads; first += kPlanes) {
    for (std::int64_t column = 0; column < nColumns; column += kLanes) {
      Words row = Simd::loadWords(words + column * 4);
      if constexpr (kSwaps) row = _mm512_shuffle_epi8(row, order);
      unrolled<kPlanes>([&](auto plane) {
        if (first + plane < nQuads) {
          _mm512_storeu_si512(
              quads + (first + plane) * nColumns + column,
              Simd::maskBits(Simd::template shiftRight<plane * kNbits>(row), kMask));
        }
      });
    }
    words += nColumns * 4;
  }
}

template <bool kSwaps>
void spreadCodes(int nbits, const std::byte* words, std::int64_t nColumns, std::int64_t nQuads,
                 std::uint32_t* quads) {
  if (nbits == 4) {
    spreadCodes<4, kSwaps>(words, nColumns, nQuads, quads);
  } else {
    spreadCodes<2, kSwaps>(words, nColumns, nQuads, quads);
  }
}

/// Scales and middles (min + m scale) of a page's keys as 16-bit integers, two to a word.
struct KeyNumbers {
  alignas(64) std::uint32_t scales[kMaxHeadDim / 2];   // the largest is 32767
  alignas(64) std::uint32_t middles[kMaxHeadDim / 2];  // of length kIntegerLength
  float scaleUnit;                                     // what an integer stands for
  float middleUnit;
};

inline void storeHalfWords(std::uint32_t* words, std::int64_t first, Float numbers) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + first / 2),
                      _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(numbers)));
}

inline void readKeyNumbers(const KvTile& tile, std::int64_t headDim, KeyNumbers& numbers) {
  const Float middle = Simd::broadcast(middleOfCodes(tile.keyNbits));
  Float scales[kMaxHeadDim / kLanes];
  Float middles[kMaxHeadDim / kLanes];
  Float top = Simd::broadcast(kTinyScale);
  Float squares = Simd::zero();
  for (std::int64_t c = 0; c < headDim; c += kLanes) {
    const Float scale = Simd::loadHalf(tile.keyScales + c);
    const Float min = tile.keyMins != nullptr
                          ? Simd::loadHalf(tile.keyMins + c)
                          : Simd::multiply(scale, Simd::broadcast(symmetricMin(tile.keyNbits)));
    scales[c / kLanes] = scale;
    middles[c / kLanes] = Simd::multiplyAdd(scale, middle, min);
    top = Simd::max(top, Simd::abs(scale));
    squares = Simd::multiplyAdd(middles[c / kLanes], middles[c / kLanes], squares);
  }
  constexpr float kLargest = 32767.0F;
  numbers.scaleUnit = Simd::largest(top) / kLargest;
  numbers.middleUnit = __builtin_sqrtf(Simd::sum(squares) + kTinySquare) / kIntegerLength;
  for (std::int64_t c = 0; c < headDim; c += kLanes) {
    storeHalfWords(numbers.scales, c,
                   Simd::multiply(scales[c / kLanes], Simd::broadcast(1.0F / numbers.scaleUnit)));
    storeHalfWords(numbers.middles, c,
                   Simd::multiply(middles[c / kLanes], Simd::broadcast(1.0F / numbers.middleUnit)));
  }
}

/// Scales and middles of a group's tokens in one group of channels.
struct ValueNumbers {
  // Scales over the largest times 255; of odd tokens also times 256 (roundProbabilities()).
  alignas(64) float weights[kGroupTokens];
  alignas(64) float middles[kGroupTokens];
  float unit;  // what a byte of p' stands for where the largest probability is 1
};

inline void readValueNumbers(const KvGroup& group, std::int64_t valueGroup, ValueNumbers& numbers) {
  Float top = Simd::broadcast(kTinyScale);
  std::int64_t token = 0;
  for (std::int64_t i = 0; i < group.nTiles; ++i) {
    const KvTile& tile = group.tiles[i];
    const std::int64_t first = valueGroup * tile.groupSize;
    for (std::int64_t t = 0; t < tile.groupSize; t += kLanes) {
      const Float scale = Simd::loadHalf(tile.valueScales + first + t);
      const Float min = tile.valueMins != nullptr
                            ? Simd::loadHalf(tile.valueMins + first + t)
                            : Simd::multiply(scale, Simd::broadcast(symmetricMin(tile.valueNbits)));
      Simd::store(numbers.weights + token, scale);
      Simd::store(numbers.middles + token,
                  Simd::multiplyAdd(scale, Simd::broadcast(middleOfCodes(tile.valueNbits)), min));
      top = Simd::max(top, scale);
      token += kLanes;
    }
  }
  constexpr float kLargest = 255.0F;
  numbers.unit = Simd::largest(top) / kLargest;
  const float even = 1.0F / numbers.unit;
  const float odd = 256.0F * even;
  const Float factors = _mm512_setr_ps(even, odd, even, odd, even, odd, even, odd, even, odd, even,
                                       odd, even, odd, even, odd);
  for (std::int64_t t = 0; t < token; t += kLanes) {
    Simd::store(numbers.weights + t, Simd::multiply(Simd::load(numbers.weights + t), factors));
  }
}

// --- Queries -----------------------------------------------------------------------------------

/// Scores of one page are products of bytes in QueryBlock::scores, [groupSize, kByteQueries].
struct PageScores {
  alignas(64) float steps[kByteQueries];        // what a product stands for
  alignas(64) float constants[kByteQueries];    // the rest of each score
  alignas(64) std::int32_t tops[kByteQueries];  // the largest products
};

/// Queries [headDim / 2, kScoreQueries] of pairs, whose integers stand for `queryUnits`, as bytes
/// for one page. A quad holds channels 0, 2, 1, 3, as two shifted pairs give them.
inline void foldQueries(const KeyNumbers& page, int keyNbits, const std::uint32_t* pairs,
                        const float* queryUnits, std::int64_t nQueries, std::int64_t headDim,
                        std::uint32_t* quads,  // [headDim / 4, kByteQueries]
                        PageScores& scores) {
  constexpr float kLargest = 127.0F;
  const Float middle = Simd::broadcast(middleOfCodes(keyNbits));
  const __m512i ones = _mm512_set1_epi32(0x01010101);
  for (std::int64_t q = 0; q < nQueries; q += kLanes) {
    __m512i products[kMaxHeadDim / 2];  // query times scale over 2^15
    __m512i tops = _mm512_setzero_si512();
    IntegerSums::Sum middles[2] = {};
    for (std::int64_t first = 0; first < headDim / 2; first += 4) {
      unrolled<4>([&](auto i) {
        const std::int64_t pair = first + i;
        const Pairs query = loadPairs(pairs + pair * kScoreQueries + q);
        const Pairs product =
            _mm512_mulhrs_epi16(query, _mm512_set1_epi32(static_cast<int>(page.scales[pair])));
        products[pair] = product;
        tops = _mm512_max_epu16(tops, _mm512_abs_epi16(product));
        middles[i % 2] = IntegerSums::add(middles[i % 2], query,
                                          _mm512_set1_epi32(static_cast<int>(page.middles[pair])));
      });
    }
    tops = _mm512_max_epu16(_mm512_and_si512(tops, _mm512_set1_epi32(0xffff)),
                            _mm512_srli_epi32(tops, 16));
    // Over 2^15 what a product is multiplied with; products below 128 stay as they are.
    const __m512i inverse = _mm512_cvttps_epi32(
        Simd::min(Simd::divide(Simd::broadcast(kLargest * 0x1p15F), _mm512_cvtepi32_ps(tops)),
                  Simd::broadcast(32767.0F)));
    const __m512i inverses = _mm512_or_si512(inverse, _mm512_slli_epi32(inverse, 16));
    __m512i totals = _mm512_setzero_si512();
    for (std::int64_t quad = 0; quad < headDim / 4; ++quad) {
      const __m512i even = _mm512_mulhrs_epi16(products[2 * quad], inverses);
      const __m512i odd = _mm512_mulhrs_epi16(products[2 * quad + 1], inverses);
      const __m512i word =
          _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaaU, even, _mm512_slli_epi16(odd, 8));
      _mm512_store_si512(quads + quad * kByteQueries + q, word);
      totals = _mm512_dpbusd_epi32(totals, ones, word);
    }
    const Float unit = Simd::load(queryUnits + q);
    const Float step = Simd::multiply(
        unit, Simd::divide(Simd::broadcast(page.scaleUnit * 0x1p30F), _mm512_cvtepi32_ps(inverse)));
    const Float rest = Simd::multiply(Simd::multiply(unit, Simd::broadcast(page.middleUnit)),
                                      IntegerSums::toFloat(middles[0] + middles[1]));
    Simd::store(scores.steps + q, step);
    Simd::store(scores.constants + q,
                _mm512_fnmadd_ps(Simd::multiply(step, middle), _mm512_cvtepi32_ps(totals), rest));
  }
}

// --- Probabilities -----------------------------------------------------------------------------

/// The probabilities of up to kByteQueries queries as bytes, and what their products mean.
struct ByteProbabilities {
  alignas(64) std::uint32_t quads[kGroupTokens / 4 * kByteQueries];  // [tokens / 4, kByteQueries]
  alignas(64) float groupFactors[kByteQueries];  // 2^(the group's largest score - largest)
  alignas(64) float steps[kByteQueries];
  alignas(64) float constants[kByteQueries];
};

/// Four probabilities times weights, rounded to the bytes of a word. Adding 1.5 2^23 leaves a whole
/// number in the lowest bits; odd ones come times 256, half a unit more, so that theirs stand in
/// the second byte and need no shift.
[[gnu::always_inline]] inline Words roundProbabilities(const Float (&probabilities)[4],
                                                       const float* weights) {
  constexpr float kMagic = 0x1.8p23F;
  const auto round = [&](int i, float magic) {
    return _mm512_castps_si512(
        Simd::multiplyAdd(probabilities[i], Simd::broadcast(weights[i]), Simd::broadcast(magic)));
  };
  constexpr std::uint64_t kSecondBytes = 0x2222222222222222U;
  const Words lower =
      _mm512_mask_blend_epi8(kSecondBytes, round(0, kMagic), round(1, kMagic + 128.0F));
  const Words upper =
      _mm512_mask_blend_epi8(kSecondBytes, round(2, kMagic), round(3, kMagic + 128.0F));
  return _mm512_mask_blend_epi16(0xaaaaaaaaU, lower, _mm512_slli_epi32(upper, 16));
}

/// Scores [nTokens, kByteQueries] to bytes for the first group of channels; kKeeps: and to
/// probabilities in their place. Raises the block's largest scores and sums, and leaves in
/// block.factor what earlier outputs must be multiplied with.
template <bool kKeeps>
void softmaxBytes(const QueryBlock& block, std::int64_t firstQuery, std::int64_t nQueries,
                  std::span<const PageScores> pages, std::int64_t groupSize,
                  const ValueNumbers& values, float middle, ByteProbabilities& bytes) {
  const __m512i ones = _mm512_set1_epi32(0x01010101);
  for (std::int64_t q = 0; q < nQueries; q += kLanes) {
    const std::int64_t query = firstQuery + q;
    Float groupTop = Simd::broadcast(kMaskedScore);
    for (const PageScores& page : pages) {
      const Float product = _mm512_cvtepi32_ps(_mm512_load_si512(page.tops + q));
      groupTop = Simd::max(groupTop, Simd::multiplyAdd(product, Simd::load(page.steps + q),
                                                       Simd::load(page.constants + q)));
    }
    const Float before = Simd::load(block.largest + query);
    const Float top = Simd::max(before, groupTop);
    const Float factor = powerOfTwo(Simd::subtract(before, top));
    const Float groupFactor = powerOfTwo(Simd::subtract(groupTop, top));
    Float sum = Simd::zero();
    Float constants = Simd::zero();
    WholeSums::Sum totals = {};
    float* scores = block.scores + q;
    std::uint32_t* quads = bytes.quads + q;
    const float* middles = values.middles;
    const float* weights = values.weights;
    for (const PageScores& page : pages) {
      const Float pageStep = Simd::load(page.steps + q);
      const Float rest = Simd::subtract(Simd::load(page.constants + q), groupTop);
      for (std::int64_t t = 0; t < groupSize; t += 4) {
        Float probabilities[4];
        unrolled<4>([&](auto i) {
          float* at = scores + i * kByteQueries;
          const Float product = _mm512_cvtepi32_ps(_mm512_loadu_si512(at));
          probabilities[i] = coarsePowerOfTwo(Simd::multiplyAdd(product, pageStep, rest));
          if constexpr (kKeeps) Simd::store(at, probabilities[i]);
          constants = Simd::multiplyAdd(probabilities[i], Simd::broadcast(middles[i]), constants);
        });
        sum = Simd::add(sum, Simd::add(Simd::add(probabilities[0], probabilities[1]),
                                       Simd::add(probabilities[2], probabilities[3])));
        const Words word = roundProbabilities(probabilities, weights);
        _mm512_store_si512(quads, word);
        totals = ByteSums::add(totals, word, ones);
        scores += 4 * kByteQueries;
        quads += kByteQueries;
        middles += 4;
        weights += 4;
      }
    }
    Simd::store(block.largest + query, top);
    Simd::store(block.sum + query, Simd::multiplyAdd(Simd::load(block.sum + query), factor,
                                                     Simd::multiply(sum, groupFactor)));
    Simd::store(block.factor + query, factor);
    Simd::store(bytes.groupFactors + q, groupFactor);
    const Float step = Simd::multiply(groupFactor, Simd::broadcast(values.unit));
    Simd::store(bytes.steps + q, step);
    Simd::store(bytes.constants + q, _mm512_fnmadd_ps(Simd::multiply(step, Simd::broadcast(middle)),
                                                      WholeSums::toFloat(totals),
                                                      Simd::multiply(groupFactor, constants)));
  }
}

/// The same for a further group of channels, from the probabilities that were kept.
inline void foldProbabilities(const QueryBlock& block, std::int64_t nQueries, std::int64_t nTokens,
                              const ValueNumbers& values, float middle, ByteProbabilities& bytes) {
  const __m512i ones = _mm512_set1_epi32(0x01010101);
  for (std::int64_t q = 0; q < nQueries; q += kLanes) {
    Float constants = Simd::zero();
    Words totals = _mm512_setzero_si512();
    for (std::int64_t t = 0; t < nTokens; t += 4) {
      Float probabilities[4];
      for (int i = 0; i < 4; ++i) {
        probabilities[i] = Simd::load(block.scores + (t + i) * kByteQueries + q);
        constants =
            Simd::multiplyAdd(probabilities[i], Simd::broadcast(values.middles[t + i]), constants);
      }
      const Words word = roundProbabilities(probabilities, values.weights + t);
      _mm512_store_si512(bytes.quads + t / 4 * kByteQueries + q, word);
      totals = _mm512_dpbusd_epi32(totals, word, ones);
    }
    const Float groupFactor = Simd::load(bytes.groupFactors + q);
    const Float step = Simd::multiply(groupFactor, Simd::broadcast(values.unit));
    Simd::store(bytes.steps + q, step);
    Simd::store(bytes.constants + q, _mm512_fnmadd_ps(Simd::multiply(step, Simd::broadcast(middle)),
                                                      _mm512_cvtepi32_ps(totals),
                                                      Simd::multiply(groupFactor, constants)));
  }
}

// --- A group of pages --------------------------------------------------------------------------

/// A group for which isByteGroup() holds, expanded.
struct BytePages {
  KeyNumbers keys[kMostPages];
  ValueNumbers values[kMaxHeadDim / kMinGroupSize];  // by groups of channels
};

inline void scorePages(const KvGroup& group, const BytePages& pages, const QueryBlock& block,
                       std::int64_t first, std::int64_t nQueries, Prefetch& prefetch,
                       PageScores* scores) {
  alignas(64) std::uint32_t quads[kMaxHeadDim / 4 * kByteQueries];
  const std::int64_t part = first % kScoreQueries;  // queries are arranged by so many
  const std::int64_t groupSize = group.tiles[0].groupSize;
  for (std::int64_t i = 0; i < group.nTiles; ++i) {
    foldQueries(pages.keys[i], group.tiles[i].keyNbits, queryPairs(block, first - part) + part,
                block.queries + first, nQueries, block.headDim, quads, scores[i]);
    for (std::int64_t q = 0; q < nQueries; q += kLanes) {
      _mm512_store_si512(scores[i].tops + q,
                         _mm512_set1_epi32(std::numeric_limits<std::int32_t>::min()));
    }
    NarrowProduct product;
    product.leftRowStride = 1;
    product.leftDepthStride = groupSize;
    product.depth = block.headDim / 4;
    product.left =
        reinterpret_cast<const std::uint32_t*>(block.keys) + i * groupSize * product.depth;
    product.right = quads;
    product.rightStride = kByteQueries;
    product.result = block.scores + i * groupSize * kByteQueries;
    product.resultStride = kByteQueries;
    product.rows = groupSize;
    product.columns = nQueries;
    product.top = reinterpret_cast<float*>(scores[i].tops);
    product.prefetch = &prefetch;
    multiply<ByteScores>(product);
  }
}

inline void addBytes(const QueryBlock& block, std::int64_t first, std::int64_t nQueries,
                     std::int64_t nTokens, std::int64_t firstChannel, std::int64_t nChannels,
                     const ByteProbabilities& bytes) {
  NarrowProduct product;
  product.left = bytes.quads;
  product.leftRowStride = 1;
  product.leftDepthStride = kByteQueries;
  product.right = reinterpret_cast<const std::uint32_t*>(block.values) + firstChannel;
  product.rightStride = block.headDim;
  product.result = block.output + first * block.rowFloats + firstChannel;
  product.resultStride = block.rowFloats;
  product.rows = nQueries;
  product.columns = nChannels;
  product.depth = nTokens / 4;
  product.rowScales = bytes.steps;
  product.rowConstants = bytes.constants;
  product.rowFactors = block.factor + first;
  multiply<ByteOutputs>(product);
}

/// attendExpandedBf16() for a group for which isByteGroup() holds.
inline void attendBytes(const KvGroup& group, const KvGroup& next, const QueryBlock& block) {
  const KvTile& format = group.tiles[0];
  const std::int64_t nTokens = group.nTiles * format.groupSize;
  BytePages pages;
  auto* keys = reinterpret_cast<std::uint32_t*>(block.keys);
  auto* values = reinterpret_cast<std::uint32_t*>(block.values);
  for (std::int64_t i = 0; i < group.nTiles; ++i) {
    const KvTile& tile = group.tiles[i];
    readKeyNumbers(tile, block.headDim, pages.keys[i]);
    spreadCodes<true>(tile.keyNbits, tile.keys, tile.groupSize, block.headDim / 4, keys);
    spreadCodes<false>(tile.valueNbits, tile.values, block.headDim, tile.groupSize / 4, values);
    keys += tile.groupSize * block.headDim / 4;
    values += tile.groupSize * block.headDim / 4;
  }
  for (std::int64_t i = 0; i < format.nValueGroups; ++i) {
    readValueNumbers(group, i, pages.values[i]);
  }
  const float middle = middleOfCodes(format.valueNbits);
  const auto softmax = format.nValueGroups > 1 ? softmaxBytes<true> : softmaxBytes<false>;
  Prefetch prefetch(next, block);
  ByteProbabilities bytes;
  PageScores scores[kMostPages];
  const std::span scored(scores, static_cast<std::size_t>(group.nTiles));
  for (std::int64_t first = 0; first < block.nQueries; first += kByteQueries) {
    const std::int64_t nQueries = smaller(kByteQueries, block.nQueries - first);
    scorePages(group, pages, block, first, nQueries, prefetch, scores);
    for (std::int64_t i = 0; i < format.nValueGroups; ++i) {
      if (i == 0) {
        softmax(block, first, nQueries, scored, format.groupSize, pages.values[0], middle, bytes);
      } else {
        foldProbabilities(block, nQueries, nTokens, pages.values[i], middle, bytes);
      }
      const std::int64_t channel = i * format.valueGroupSize;
      addBytes(block, first, nQueries, nTokens, channel,
               smaller(format.valueGroupSize, block.headDim - channel), bytes);
    }
  }
}

}  // namespace
}  // namespace longhand::kernels
