#pragma once
// Attention of many queries to one tile, as FlashAttention does it (Dao et al. 2022): the tile
// becomes floats once for up to kExpandedQueries queries; kScoreQueries of them at a time
//   scores [tokens, queries] = keys [tokens, channels] * queries^T [channels, queries]
//   output [queries, channels] += probabilities [queries, tokens] * values [tokens, channels]
// Scores stand with the queries along the register, so the softmax over tokens needs no horizontal
// operation and exact keys need no transposition; the left operands are read number by number and
// may have any strides.

#include "kernels/cpu/kv/kv_common_inl.h"
#include "kernels/cpu/kv/kv_expand_inl.h"

namespace longhand::kernels {
namespace {

/// result (+)= left [rows, depth] * right [depth, columns].
struct Product {
  const float* left;
  std::int64_t leftRowStride;
  std::int64_t leftDepthStride;
  const float* right;
  std::int64_t rightStride;
  float* result;
  std::int64_t resultStride;
  std::int64_t rows;
  std::int64_t columns;  // a multiple of kLanes
  std::int64_t depth;
  bool accumulate;
};

template <int kRows, int kColumns>
[[gnu::always_inline]] inline void multiplyBlock(const Product& p, std::int64_t row,
                                                 std::int64_t column) {
  Float sums[kRows][kColumns];
  float* result = p.result + row * p.resultStride + column;
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      sums[r][c] =
          p.accumulate ? Simd::load(result + r * p.resultStride + c * kLanes) : Simd::zero();
    }
  }
  const float* left = p.left + row * p.leftRowStride;
  const float* right = p.right + column;
  for (std::int64_t k = 0; k < p.depth; ++k) {
    Float rightRow[kColumns];
    for (int c = 0; c < kColumns; ++c) rightRow[c] = Simd::load(right + c * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Float value = Simd::broadcast(left[r * p.leftRowStride]);
      for (int c = 0; c < kColumns; ++c)
        sums[r][c] = Simd::multiplyAdd(value, rightRow[c], sums[r][c]);
    }
    left += p.leftDepthStride;
    right += p.rightStride;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      Simd::store(result + r * p.resultStride + c * kLanes, sums[r][c]);
    }
  }
}

/// All rows of one block column; what kRows leaves over is done by smaller blocks.
template <int kColumns>
void multiplyColumns(const Product& p, std::int64_t column) {
  constexpr int kRows = Simd::kGemmRows;
  std::int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) multiplyBlock<kRows, kColumns>(p, row, column);
  for (; row + 2 <= p.rows; row += 2) multiplyBlock<2, kColumns>(p, row, column);
  for (; row < p.rows; ++row) multiplyBlock<1, kColumns>(p, row, column);
}

void multiply(const Product& p) {
  constexpr int kColumns = Simd::kGemmColumns;
  std::int64_t column = 0;
  for (; column + kColumns * kLanes <= p.columns; column += kColumns * kLanes) {
    multiplyColumns<kColumns>(p, column);
  }
  for (; column < p.columns; column += kLanes) multiplyColumns<1>(p, column);
}

/// Queries [first, first + nQueries) of a block and the tokens of a tile that any of them sees.
struct ScoreBlock {
  std::int64_t first;
  std::int64_t nQueries;  // a multiple of kRowUnit, at most kScoreQueries
  std::int64_t nTokens;   // 0: the tile is in the future of all
  bool isMasked;          // the queries see different numbers of tokens
};

inline ScoreBlock scoreBlock(const KvTile& tile, const QueryBlock& block, std::int64_t first) {
  ScoreBlock part = {first, smaller(kScoreQueries, block.nQueries - first), tile.nTokens, false};
  if (tile.chunkToken == KvTile::kNoChunk) return part;
  const std::int64_t most = block.seen[first + part.nQueries - 1] - tile.chunkToken;
  part.nTokens = most > 0 ? smaller(most, tile.nTokens) : 0;
  part.isMasked = block.seen[first] - tile.chunkToken < part.nTokens;
  return part;
}

/// Scores to probabilities; block.factor[q] is what earlier sums must be multiplied with. Returns
/// whether any factor is not 1.
bool softmaxColumns(const KvTile& tile, const ScoreBlock& part, const QueryBlock& block) {
  bool rescales = false;
  for (std::int64_t q = 0; q < part.nQueries; q += kLanes) {
    float* scores = block.scores + q;
    const std::int64_t query = part.first + q;
    const Float before = Simd::load(block.largest + query);
    Float top = before;
    for (std::int64_t t = 0; t < part.nTokens; ++t) {
      Float score = Simd::load(scores + t * kScoreQueries);
      if (part.isMasked) {
        score = Simd::keepVisible(score, block.seen + query,
                                  static_cast<std::int32_t>(tile.chunkToken + t));
        Simd::store(scores + t * kScoreQueries, score);
      }
      top = Simd::max(top, score);
    }
    const Float factor = powerOfTwo(Simd::subtract(before, top));
    rescales = rescales || Simd::largest(Simd::subtract(top, before)) > 0.0F;
    Float sum = Simd::multiply(Simd::load(block.sum + query), factor);
    for (std::int64_t t = 0; t < part.nTokens; ++t) {
      float* at = scores + t * kScoreQueries;
      const Float probability = powerOfTwo(Simd::subtract(Simd::load(at), top));
      Simd::store(at, probability);
      sum = Simd::add(sum, probability);
    }
    Simd::store(block.largest + query, top);
    Simd::store(block.sum + query, sum);
    Simd::store(block.factor + query, factor);
  }
  return rescales;
}

/// Left side of keys * queries^T.
Product expandedKeys(const KvTile& tile, const QueryBlock& block) {
  Product product = {};
  product.left = block.keys;
  product.leftRowStride = block.rowFloats;
  product.leftDepthStride = 1;
  if (tile.keyNbits != 16) {
    expandKeys(tile, block.headDim, block.keys);
    product.leftRowStride = 1;
    product.leftDepthStride = kMaxTileTokens;
  } else if (tile.exactType == DataType::kF16) {
    expandExactRows<HalfRows>(tile.keys, tile.nTokens, block.headDim, block.rowFloats, block.keys);
  } else {
    product.left = rowsOf<FloatRows>(tile.keys);
    product.leftRowStride = block.headDim;
  }
  product.rightStride = kScoreQueries;
  product.result = block.scores;
  product.resultStride = kScoreQueries;
  product.depth = block.headDim;
  return product;
}

/// Right side of probabilities * values.
Product expandedValues(const KvTile& tile, const QueryBlock& block) {
  Product product = {};
  product.right = block.values;
  product.rightStride = block.rowFloats;
  if (tile.valueNbits != 16) {
    expandValues(tile, block.headDim, block.rowFloats, block.values);
  } else if (tile.exactType == DataType::kF16) {
    expandExactRows<HalfRows>(tile.values, tile.nTokens, block.headDim, block.rowFloats,
                              block.values);
  } else if (block.headDim == block.rowFloats) {
    product.right = rowsOf<FloatRows>(tile.values);
  } else {
    expandExactRows<FloatRows>(tile.values, tile.nTokens, block.headDim, block.rowFloats,
                               block.values);
  }
  product.left = block.scores;
  product.leftRowStride = 1;
  product.leftDepthStride = kScoreQueries;
  product.resultStride = block.rowFloats;
  product.columns = block.rowFloats;
  product.accumulate = true;
  return product;
}

void attendTile(const KvTile& tile, const QueryBlock& block) {
  Product scores = expandedKeys(tile, block);
  Product output = expandedValues(tile, block);
  for (std::int64_t first = 0; first < block.nQueries; first += kScoreQueries) {
    const ScoreBlock part = scoreBlock(tile, block, first);
    if (part.nTokens == 0) continue;
    scores.right = block.queries + first * block.headDim;
    scores.rows = part.nTokens;
    scores.columns = part.nQueries;
    multiply(scores);
    if (softmaxColumns(tile, part, block)) {
      for (std::int64_t q = first; q < first + part.nQueries; ++q) {
        scaleRow(block.output + q * block.rowFloats, block.rowFloats, block.factor[q]);
      }
    }
    output.result = block.output + first * block.rowFloats;
    output.rows = part.nQueries;
    output.depth = part.nTokens;
    multiply(output);
  }
}

void attendExpanded(const KvGroup& group, const KvGroup&, const QueryBlock& block) {
  for (std::int64_t i = 0; i < group.nTiles; ++i) attendTile(group.tiles[i], block);
}

/// [nQueries, rowFloats] to [part of kScoreQueries queries][headDim, kScoreQueries].
void arrangeQueries(const float* rows, std::int64_t nQueries, std::int64_t headDim,
                    std::int64_t rowFloats, float* arranged) {
  for (std::int64_t first = 0; first < nQueries; first += kScoreQueries) {
    float* part = arranged + first * headDim;
    for (std::int64_t q = 0; q < kScoreQueries; ++q) {
      const float* row = rows + (first + q) * rowFloats;
      const bool isQuery = first + q < nQueries;
      for (std::int64_t c = 0; c < headDim; ++c) {
        part[c * kScoreQueries + q] = isQuery ? row[c] : 0.0F;
      }
    }
  }
}

}  // namespace
}  // namespace longhand::kernels
