// Attention of many queries in 16-bit numbers: AVX-512 with VNNI and BF16, compiled with flags of
// its own (CMakeLists.txt). The rest of that path is AVX-512 VNNI's.
//
// vpdpwssd and vdpbf16ps add two products of 16-bit numbers to each of sixteen sums: twice the rate
// of float. As in kv_prefill_inl.h, with pairs of neighbours along the sum in each 32-bit word:
//   scores [tokens, queries] = keys [tokens, channel pairs] * queries^T [channel pairs, queries]
//   output [queries, channels] += probabilities [queries, token pairs] * values [token pairs, ...]
// A whole group of tiles (kGroupTokens) is expanded once for a block of queries, and goes through
// one softmax for each kScoreQueries of them.
//
// Scores decide exponentially and sum outlier channels, so they get integers: each query and key is
// scaled to length kIntegerLength, hence no sum can leave 32 bits (Cauchy and Schwarz), and the
// error of a score is about 2^-16 |q| |k|. Probabilities and values are bfloat16 (relative error
// 2^-9), and their sums float. Pages of up to 4 bits take bytes: kv_byte_group_inl.h.

#include "kernels/cpu/simd/simd_avx512.h"
//
#include "kernels/cpu/kv/kv_byte_group_inl.h"
#include "kernels/cpu/kv/kv_pair_expand_inl.h"

namespace longhand::kernels {
namespace {

// --- Softmax -----------------------------------------------------------------------------------

/// Scores [2 * nPairs, kScoreQueries], still to be multiplied with queryScales[q], to probabilities
/// in their place, [nPairs, kScoreQueries] pairs. Returns whether earlier sums must be multiplied
/// with block.factor[q].
bool softmaxPairs(const QueryBlock& block, std::int64_t firstQuery, std::int64_t nQueries,
                  std::int64_t nPairs, const float* queryScales, const float* tops) {
  const Pairs ones = _mm512_set1_epi32(0x3f803f80);
  bool rescales = false;
  for (std::int64_t q = 0; q < nQueries; q += kLanes) {
    const std::int64_t query = firstQuery + q;
    const Float before = Simd::load(block.largest + query);
    const Float scale = Simd::load(queryScales + q);
    const Float top = Simd::max(before, Simd::multiply(Simd::load(tops + q), scale));
    const Float factor = powerOfTwo(Simd::subtract(before, top));
    rescales = rescales || Simd::largest(Simd::subtract(top, before)) > 0.0F;
    Float sum = Simd::multiply(Simd::load(block.sum + query), factor);
    const Float minusTop = Simd::subtract(Simd::zero(), top);
    float* scores = block.scores + q;
    auto* pairs = reinterpret_cast<std::uint32_t*>(scores);
    for (std::int64_t pair = 0; pair < nPairs; ++pair) {
      const Float first = coarsePowerOfTwo(Simd::multiplyAdd(Simd::load(scores), scale, minusTop));
      const Float second =
          coarsePowerOfTwo(Simd::multiplyAdd(Simd::load(scores + kScoreQueries), scale, minusTop));
      const Pairs probabilities = pairUp(first, second);
      sum = dot(sum, probabilities, ones);
      storePairs(pairs, probabilities);
      scores += 2 * kScoreQueries;
      pairs += kScoreQueries;
    }
    Simd::store(block.largest + query, top);
    Simd::store(block.sum + query, sum);
    Simd::store(block.factor + query, factor);
  }
  return rescales;
}

// --- A group of tiles --------------------------------------------------------------------------

/// A tile of the group, expanded.
struct PairTile {
  PairKeys keys;
  std::int64_t firstRow;  // of the group's scores
  std::int64_t nTokens;
  std::int64_t chunkToken;
};

/// Masks the scores of tokens that a query does not see, and raises `tops` to the others.
void maskScores(const PairTile& tile, const QueryBlock& block, std::int64_t firstQuery,
                std::int64_t nQueries, std::int64_t nTokens, float* tops) {
  for (std::int64_t q = 0; q < nQueries; q += kLanes) {
    const __m512i seen = _mm512_loadu_si512(block.seen + firstQuery + q);
    Float top = Simd::load(tops + q);
    float* scores = block.scores + tile.firstRow * kScoreQueries + q;
    for (std::int64_t t = 0; t < nTokens; ++t) {
      const __m512i token = _mm512_set1_epi32(static_cast<int>(tile.chunkToken + t));
      const Float score = _mm512_mask_blend_ps(_mm512_cmpgt_epi32_mask(seen, token),
                                               Simd::broadcast(kMaskedScore), Simd::load(scores));
      Simd::store(scores, score);
      top = Simd::max(top, score);
      scores += kScoreQueries;
    }
    Simd::store(tops + q, top);
  }
}

/// Scores of queries [first, first + nQueries) and the group's tokens. Returns the number of token
/// pairs that the queries see; rows between tiles are masked.
std::int64_t scoreGroup(const PairTile* tiles, std::int64_t nTiles, const float* tokenScales,
                        const QueryBlock& block, std::int64_t first, std::int64_t nQueries,
                        Prefetch& prefetch, float* tops) {
  for (std::int64_t q = 0; q < nQueries; q += kLanes) {
    Simd::store(tops + q, Simd::broadcast(kMaskedScore));
  }
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < nTiles; ++i) {
    const PairTile& tile = tiles[i];
    std::int64_t nTokens = tile.nTokens;
    bool isMasked = false;
    if (tile.chunkToken != KvTile::kNoChunk) {
      nTokens = smaller(nTokens, block.seen[first + nQueries - 1] - tile.chunkToken);
      if (nTokens <= 0) break;  // the rest is in the future
      isMasked = block.seen[first] - tile.chunkToken < nTokens;
    }
    for (; end < tile.firstRow; ++end) {
      for (std::int64_t q = 0; q < nQueries; q += kLanes) {
        Simd::store(block.scores + end * kScoreQueries + q, Simd::broadcast(kMaskedScore));
      }
    }
    float ignored[kScoreQueries];
    NarrowProduct product;
    product.left = tile.keys.words;
    product.leftRowStride = tile.keys.rowStride;
    product.leftDepthStride = tile.keys.depthStride;
    product.right = queryPairs(block, first);
    product.rightStride = kScoreQueries;
    product.result = block.scores + tile.firstRow * kScoreQueries;
    product.resultStride = kScoreQueries;
    product.rows = nTokens;
    product.columns = nQueries;
    product.depth = block.headDim / 2;
    product.rowScales = tokenScales + tile.firstRow;
    product.top = isMasked ? ignored : tops;
    product.prefetch = &prefetch;
    if (isMasked) {
      for (std::int64_t q = 0; q < nQueries; q += kLanes) Simd::store(ignored + q, Simd::zero());
    }
    multiply<IntegerSums>(product);
    if (isMasked) maskScores(tile, block, first, nQueries, nTokens, tops);
    end = tile.firstRow + nTokens;
  }
  if (end % 2 != 0) {
    for (std::int64_t q = 0; q < nQueries; q += kLanes) {
      Simd::store(block.scores + end * kScoreQueries + q, Simd::broadcast(kMaskedScore));
    }
  }
  return (end + 1) / 2;
}

void addValues(const QueryBlock& block, std::int64_t first, std::int64_t nQueries,
               std::int64_t nPairs, bool rescales) {
  float* output = block.output + first * block.rowFloats;
  if (rescales) {
    for (std::int64_t q = 0; q < nQueries; ++q) {
      scaleRow(output + q * block.rowFloats, block.rowFloats, block.factor[first + q]);
    }
  }
  NarrowProduct product;
  product.left = reinterpret_cast<const std::uint32_t*>(block.scores);
  product.leftRowStride = 1;
  product.leftDepthStride = kScoreQueries;
  product.right = reinterpret_cast<const std::uint32_t*>(block.values);
  product.rightStride = block.rowFloats;
  product.result = output;
  product.resultStride = block.rowFloats;
  product.rows = nQueries;
  product.columns = block.rowFloats;
  product.depth = nPairs;
  multiply<BfloatSums>(product);
}

}  // namespace

void attendExpandedBf16(const KvGroup& group, const KvGroup& next, const QueryBlock& block) {
  if (isByteGroup(group, block)) return attendBytes(group, next, block);
  PairTile expanded[kGroupTokens / kRowUnit];
  float tokenScales[kGroupTokens];
  auto* keys = reinterpret_cast<std::uint32_t*>(block.keys);
  auto* values = reinterpret_cast<std::uint32_t*>(block.values);
  std::int64_t row = 0;
  for (std::int64_t i = 0; i < group.nTiles; ++i) {
    const KvTile& tile = group.tiles[i];
    expanded[i] = {pairKeys(tile, block, keys + row * block.rowFloats / 2, tokenScales + row), row,
                   tile.nTokens, tile.chunkToken};
    pairValues(tile, block, values + row / 2 * block.rowFloats);
    row += roundedUp(tile.nTokens, kRowUnit);
  }
  Prefetch prefetch(next, block);
  float tops[kScoreQueries];
  for (std::int64_t first = 0; first < block.nQueries; first += kScoreQueries) {
    const std::int64_t nQueries = smaller(kScoreQueries, block.nQueries - first);
    const std::int64_t nPairs =
        scoreGroup(expanded, group.nTiles, tokenScales, block, first, nQueries, prefetch, tops);
    if (nPairs == 0) continue;
    const bool rescales = softmaxPairs(block, first, nQueries, nPairs, block.queries + first, tops);
    addValues(block, first, nQueries, nPairs, rescales);
  }
}

void arrangeQueriesBf16(const float* rows, std::int64_t nQueries, std::int64_t headDim,
                        std::int64_t rowFloats, float* arranged) {
  constexpr std::int64_t kRow = kMaxHeadDim / 2;
  std::uint32_t words[4 * kRow];
  for (std::int64_t q = 0; q < roundedUp(nQueries, kRowUnit); q += 4) {
    const float* four[4];
    for (std::int64_t r = 0; r < 4; ++r) four[r] = rows + smaller(q + r, nQueries - 1) * rowFloats;
    pairRows<FloatRows>(four, headDim, words, kRow, arranged + q);
    const std::int64_t first = q / kScoreQueries * kScoreQueries;
    auto* part = reinterpret_cast<std::uint32_t*>(arranged + kExpandedQueries) +
                 first * headDim / 2 + (q - first);
    for (std::int64_t pair = 0; pair < headDim / 2; ++pair) {
      for (std::int64_t r = 0; r < 4; ++r) part[pair * kScoreQueries + r] = words[r * kRow + pair];
    }
  }
}

}  // namespace longhand::kernels
