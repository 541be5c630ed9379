#pragma once
// Products of matrices of narrow numbers: 16-bit pairs (vpdpwssd, vdpbf16ps) and bytes by fours
// (vpdpbusd), packed along the sum in 32-bit words. Included by kv_avx512_bf16.cpp only.

#include "kernels/cpu/kv/kv_common_inl.h"

namespace longhand::kernels {
namespace {

/// Two 16-bit numbers in each lane, the one with the lower index along the sum in the lower half.
using Pairs = __m512i;

/// Rows of a block of sums: 6 x 4 or 12 x 2 sums, the right vectors and a left one fit 32
/// registers.
constexpr int kMostRows = 12;

constexpr float kMaskedScore = -__builtin_huge_valf();

/// Length of an integer query or key: 2^15, less what rounding may add to a number of 256 channels.
constexpr float kIntegerLength = 32752.0F;
/// The same for codes, where min and scale times code may each be twice as long as their sum.
constexpr float kCodeLength = 24000.0F;
/// Added to squared lengths: 0 gets a finite scale, and longer vectors do not notice.
constexpr float kTinySquare = 1.0e-30F;

Pairs loadPairs(const std::uint32_t* p) { return _mm512_loadu_si512(p); }
void storePairs(std::uint32_t* p, Pairs v) { _mm512_storeu_si512(p, v); }

/// Lane i: (first[i], second[i]).
[[gnu::always_inline]] inline Pairs pairUp(Float first, Float second) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512bh halves = _mm512_cvtne2ps_pbh(second, first);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(halves));
}

[[gnu::always_inline]] inline Float dot(Float sum, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// --- Prefetch ----------------------------------------------------------------------------------

/// Brings the next group into the second-level cache, a few lines with each block of a product: a
/// burst of them would wait for memory, and so would the expansion without them.
class Prefetch {
 public:
  Prefetch(const KvGroup& group, const QueryBlock& block) {
    std::int64_t nLines = 0;
    for (std::int64_t i = 0; i < group.nTiles; ++i) {
      const KvTile& tile = group.tiles[i];
      const std::int64_t exactBytes =
          tile.nTokens * block.headDim * (tile.exactType == DataType::kF32 ? 4 : 2);
      const std::int64_t valueCodes = tile.nTokens * block.headDim * tile.valueNbits / 8;
      nLines +=
          add(tile.keys, tile.keyNbits == 16 ? exactBytes : tile.keyWords * tile.groupSize * 4);
      nLines += add(tile.values, tile.valueNbits == 16 ? exactBytes : valueCodes);
    }
    const std::int64_t nSteps =
        (block.nQueries + kScoreQueries - 1) / kScoreQueries * (kGroupTokens / kMostRows);
    linesPerStep_ = (nLines + nSteps - 1) / nSteps;
  }

  void step() {
    for (std::int64_t i = 0; i < linesPerStep_ && current_ < nRanges_; ++i) {
      Range& range = ranges_[current_];
      _mm_prefetch(range.at, _MM_HINT_T1);
      range.at += kLineBytes;
      if (range.at >= range.end) ++current_;
    }
  }

 private:
  static constexpr std::int64_t kLineBytes = 64;
  struct Range {
    const char* at;
    const char* end;
  };

  std::int64_t add(const std::byte* memory, std::int64_t bytes) {
    const char* at = reinterpret_cast<const char*>(memory);
    ranges_[nRanges_++] = {at, at + bytes};
    return (bytes + kLineBytes - 1) / kLineBytes;
  }

  Range ranges_[2 * kGroupTokens / kRowUnit];
  std::int64_t nRanges_ = 0;
  std::int64_t current_ = 0;
  std::int64_t linesPerStep_ = 0;
};

// --- Matrix products ---------------------------------------------------------------------------

/// left [rows, depth] * right [depth, columns], depth in words of two or four numbers. What is
/// nullptr is not read by the Sums at hand.
struct NarrowProduct {
  const std::uint32_t* left = nullptr;
  std::int64_t leftRowStride = 0;
  std::int64_t leftDepthStride = 0;
  const std::uint32_t* right = nullptr;
  std::int64_t rightStride = 0;
  float* result = nullptr;
  std::int64_t resultStride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // a multiple of kLanes
  std::int64_t depth = 0;
  const float* rowScales = nullptr;     // [rows]
  const float* rowConstants = nullptr;  // [rows]
  const float* rowFactors = nullptr;    // [rows]
  float* top = nullptr;                 // scores: [columns] raised to the largest results
  Prefetch* prefetch = nullptr;         // scores
};

/// result += products of bfloat16.
struct BfloatSums {
  using Sum = Float;
  static Sum begin(const float* result) { return Simd::load(result); }
  static Sum add(Sum sum, Pairs a, Pairs b) { return dot(sum, a, b); }
  static Float end(const NarrowProduct&, std::int64_t, std::int64_t, const float*, Sum sum) {
    return sum;
  }
  static constexpr bool kAreScores = false;
};

/// Sums of 32 bits.
struct WholeSums {
  /// GCC 12 takes __m512i for eight 64-bit numbers, and an accumulator of that type to the stack.
  using Sum = std::int32_t __attribute__((vector_size(64)));
  static Sum begin(const float*) { return Sum{}; }
  static Float toFloat(Sum sum) { return _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(sum)); }
};

/// result = rowScale * products of 16-bit integers.
struct IntegerSums : WholeSums {
  static Sum add(Sum sum, Pairs a, Pairs b) {
    return reinterpret_cast<Sum>(_mm512_dpwssd_epi32(reinterpret_cast<__m512i>(sum), a, b));
  }
  static Float end(const NarrowProduct& p, std::int64_t row, std::int64_t, const float*, Sum sum) {
    return Simd::multiply(toFloat(sum), Simd::broadcast(p.rowScales[row]));
  }
  static Float higher(Float a, Float b) { return Simd::max(a, b); }
  static constexpr bool kAreScores = true;
};

/// Products of bytes, unsigned on the left and signed on the right.
struct ByteSums : WholeSums {
  static Sum add(Sum sum, __m512i a, __m512i b) {
    return reinterpret_cast<Sum>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), a, b));
  }
};

/// result = products of bytes, 32-bit integers where floats are else. They are converted when they
/// are read again: here, that would compete with the products.
struct ByteScores : ByteSums {
  static Float end(const NarrowProduct&, std::int64_t, std::int64_t, const float*, Sum sum) {
    return reinterpret_cast<Float>(sum);
  }
  static Float higher(Float a, Float b) {
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  static constexpr bool kAreScores = true;
};

/// result = rowFactor * result + rowScale * products of bytes + rowConstant.
struct ByteOutputs : ByteSums {
  static Float end(const NarrowProduct& p, std::int64_t row, std::int64_t, const float* result,
                   Sum sum) {
    const Float before = Simd::multiplyAdd(Simd::load(result), Simd::broadcast(p.rowFactors[row]),
                                           Simd::broadcast(p.rowConstants[row]));
    return Simd::multiplyAdd(toFloat(sum), Simd::broadcast(p.rowScales[row]), before);
  }
  static constexpr bool kAreScores = false;
};

/// `p` by value, so that its fields stay in registers while results are stored. Constant indices do
/// the same for the sums.
template <typename Sums, int kRows, int kColumns>
[[gnu::always_inline]] inline void multiplyBlock(const NarrowProduct p, std::int64_t row,
                                                 std::int64_t column) {
  typename Sums::Sum sums[kRows][kColumns];
  float* result = p.result + row * p.resultStride + column;
  unrolled<kRows>([&](auto r) {
    unrolled<kColumns>(
        [&](auto c) { sums[r][c] = Sums::begin(result + r * p.resultStride + c * kLanes); });
  });
  const std::uint32_t* left = p.left + row * p.leftRowStride;
  const std::uint32_t* right = p.right + column;
  for (std::int64_t k = 0; k < p.depth; ++k) {
    __m512i rightRow[kColumns];
    for (int c = 0; c < kColumns; ++c) rightRow[c] = loadPairs(right + c * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const __m512i value = _mm512_set1_epi32(static_cast<int>(left[r * p.leftRowStride]));
      for (int c = 0; c < kColumns; ++c) sums[r][c] = Sums::add(sums[r][c], value, rightRow[c]);
    }
    left += p.leftDepthStride;
    right += p.rightStride;
  }
  Float tops[kColumns];
  unrolled<kColumns>([&](auto c) {
    tops[c] = Sums::kAreScores ? Simd::load(p.top + column + c * kLanes) : Simd::zero();
  });
  unrolled<kRows>([&](auto r) {
    unrolled<kColumns>([&](auto c) {
      float* to = result + r * p.resultStride + c * kLanes;
      const Float sum = Sums::end(p, row + r, column + c * kLanes, to, sums[r][c]);
      Simd::store(to, sum);
      if constexpr (Sums::kAreScores) tops[c] = Sums::higher(tops[c], sum);
    });
  });
  if constexpr (Sums::kAreScores) {
    unrolled<kColumns>([&](auto c) { Simd::store(p.top + column + c * kLanes, tops[c]); });
  }
}

template <typename Sums, int kColumns>
void multiplyColumns(const NarrowProduct& p, std::int64_t column) {
  constexpr int kRows = kColumns == 4 ? 6 : kMostRows;
  std::int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) {
    if constexpr (Sums::kAreScores) p.prefetch->step();
    multiplyBlock<Sums, kRows, kColumns>(p, row, column);
  }
  for (; row + 4 <= p.rows; row += 4) multiplyBlock<Sums, 4, kColumns>(p, row, column);
  for (; row + 2 <= p.rows; row += 2) multiplyBlock<Sums, 2, kColumns>(p, row, column);
  for (; row < p.rows; ++row) multiplyBlock<Sums, 1, kColumns>(p, row, column);
}

template <typename Sums>
void multiply(const NarrowProduct& p) {
  constexpr std::int64_t k4 = 4 * kLanes;
  constexpr std::int64_t k2 = 2 * kLanes;
  std::int64_t column = 0;
  for (; column + k4 <= p.columns; column += k4) multiplyColumns<Sums, 4>(p, column);
  for (; column + k2 <= p.columns; column += k2) multiplyColumns<Sums, 2>(p, column);
  for (; column < p.columns; column += kLanes) multiplyColumns<Sums, 1>(p, column);
}

// --- Queries and powers ------------------------------------------------------------------------

/// Queries as arrangeQueriesBf16() leaves them: first what an integer of each query stands for,
/// then [part of kScoreQueries queries][headDim / 2, kScoreQueries] pairs.
const std::uint32_t* queryPairs(const QueryBlock& block, std::int64_t first) {
  return reinterpret_cast<const std::uint32_t*>(block.queries + kExpandedQueries) +
         first * block.headDim / 2;
}

/// 2^x for x <= 0 with a relative error under 8e-5 (minimax polynomial), a twentieth of what
/// rounding to bfloat16 adds; below the range of float it is 0.
[[gnu::always_inline]] inline Float coarsePowerOfTwo(Float x) {
  const Float part = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // in [0, 1)
  Float power = Simd::broadcast(0.07802452F);
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.22606716F));
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.69583354F));
  power = Simd::multiplyAdd(power, part, Simd::broadcast(0.99992522F));
  return _mm512_scalef_ps(power, x);  // times 2^floor(x)
}

}  // namespace
}  // namespace longhand::kernels
