// Attention of many queries in 16-bit numbers: AVX-512 with VNNI and BF16, compiled with flags of
// its own (CMakeLists.txt). The rest of that path is AVX-512 VNNI's.
//
// vpdpwssd and vdpbf16ps add two products of 16-bit numbers to each of sixteen sums: twice the rate
// of float. As in kv_prefill_impl.h, with pairs of neighbours along the sum in each 32-bit word:
//   scores [tokens, queries] = keys [tokens, channel pairs] * queries^T [channel pairs, queries]
//   output [queries, channels] += probabilities [queries, token pairs] * values [token pairs, ...]
// A whole group of tiles (kGroupTokens) is expanded once for a block of queries, and goes through
// one softmax for each kScoreQueries of them.
//
// Scores decide exponentially and sum outlier channels, so they get integers: each query and key is
// scaled to length kIntegerLength, hence no sum can leave 32 bits (Cauchy and Schwarz), and the
// error of a score is about 2^-16 |q| |k|. Probabilities and values are bfloat16 (relative error
// 2^-9), and their sums float.

#include "kernels/cpu/kv_simd_avx512.h"
//
#include "kernels/cpu/kv_common_impl.h"

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
[[gnu::always_inline]] inline Pairs pairUp(F first, F second) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512bh halves = _mm512_cvtne2ps_pbh(second, first);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(halves));
}

[[gnu::always_inline]] inline Pairs pairUpIntegers(F first, F second) {
  return _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_cvtps_epi32(first),
                                 _mm512_slli_epi32(_mm512_cvtps_epi32(second), 16));
}

[[gnu::always_inline]] inline F dot(F sum, Pairs a, Pairs b) {
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

/// left [rows, depth] * right [depth, columns], depth in pairs.
struct PairProduct {
  const std::uint32_t* left;
  std::int64_t leftRowStride;
  std::int64_t leftDepthStride;
  const std::uint32_t* right;
  std::int64_t rightStride;
  float* result;
  std::int64_t resultStride;
  std::int64_t rows;
  std::int64_t columns;  // a multiple of kLanes
  std::int64_t depth;
  const float* rowScales;  // integers only: [rows]
  float* top;              // integers only: [columns] raised to the largest results
  Prefetch* prefetch;      // integers only
};

/// result += products of bfloat16.
struct BfloatSums {
  using Sum = F;
  static Sum begin(const PairProduct&, const float* result) { return Simd::load(result); }
  static Sum add(Sum sum, Pairs a, Pairs b) { return dot(sum, a, b); }
  static F end(const PairProduct&, std::int64_t, Sum sum) { return sum; }
  static constexpr bool kHasTop = false;
};

/// result = rowScale * products of integers.
struct IntegerSums {
  using Sum = __m512i;
  static Sum begin(const PairProduct&, const float*) { return _mm512_setzero_si512(); }
  static Sum add(Sum sum, Pairs a, Pairs b) { return _mm512_dpwssd_epi32(sum, a, b); }
  static F end(const PairProduct& p, std::int64_t row, Sum sum) {
    return Simd::mul(_mm512_cvtepi32_ps(sum), Simd::set(p.rowScales[row]));
  }
  static constexpr bool kHasTop = true;
};

template <typename Sums, int kRows, int kColumns>
[[gnu::always_inline]] inline void multiplyBlock(const PairProduct& p, std::int64_t row,
                                                 std::int64_t column) {
  typename Sums::Sum sums[kRows][kColumns];
  float* result = p.result + row * p.resultStride + column;
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      sums[r][c] = Sums::begin(p, result + r * p.resultStride + c * kLanes);
    }
  }
  const std::uint32_t* left = p.left + row * p.leftRowStride;
  const std::uint32_t* right = p.right + column;
  for (std::int64_t k = 0; k < p.depth; ++k) {
    Pairs rightRow[kColumns];
    for (int c = 0; c < kColumns; ++c) rightRow[c] = loadPairs(right + c * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Pairs value = _mm512_set1_epi32(static_cast<int>(left[r * p.leftRowStride]));
      for (int c = 0; c < kColumns; ++c) sums[r][c] = Sums::add(sums[r][c], value, rightRow[c]);
    }
    left += p.leftDepthStride;
    right += p.rightStride;
  }
  for (int c = 0; c < kColumns; ++c) {
    F top = Simd::zero();
    if constexpr (Sums::kHasTop) top = Simd::load(p.top + column + c * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const F sum = Sums::end(p, row + r, sums[r][c]);
      Simd::store(result + r * p.resultStride + c * kLanes, sum);
      if constexpr (Sums::kHasTop) top = Simd::max(top, sum);
    }
    if constexpr (Sums::kHasTop) Simd::store(p.top + column + c * kLanes, top);
  }
}

template <typename Sums, int kColumns>
void multiplyColumns(const PairProduct& p, std::int64_t column) {
  constexpr int kRows = kColumns == 4 ? 6 : kMostRows;
  std::int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) {
    if constexpr (Sums::kHasTop) p.prefetch->step();
    multiplyBlock<Sums, kRows, kColumns>(p, row, column);
  }
  for (; row + 4 <= p.rows; row += 4) multiplyBlock<Sums, 4, kColumns>(p, row, column);
  for (; row + 2 <= p.rows; row += 2) multiplyBlock<Sums, 2, kColumns>(p, row, column);
  for (; row < p.rows; ++row) multiplyBlock<Sums, 1, kColumns>(p, row, column);
}

template <typename Sums>
void multiply(const PairProduct& p) {
  constexpr std::int64_t k4 = 4 * kLanes;
  constexpr std::int64_t k2 = 2 * kLanes;
  std::int64_t column = 0;
  for (; column + k4 <= p.columns; column += k4) multiplyColumns<Sums, 4>(p, column);
  for (; column + k2 <= p.columns; column += k2) multiplyColumns<Sums, 2>(p, column);
  for (; column < p.columns; column += kLanes) multiplyColumns<Sums, 1>(p, column);
}

// --- Expansion ---------------------------------------------------------------------------------

/// Integer keys of one tile as the left side of a product.
struct PairKeys {
  std::uint32_t* words;
  std::int64_t rowStride;    // from token to token
  std::int64_t depthStride;  // from channel pair to channel pair
};

/// Four rows of numbers to integers of the length kIntegerLength, two to a word: rows [4, headDim]
/// to words [4, wordStride]. `scales` [4]: what an integer stands for.
template <typename Rows>
[[gnu::always_inline]] inline void pairRows(const typename Rows::Element* const* rows,
                                            std::int64_t headDim, std::uint32_t* words,
                                            std::int64_t wordStride, float* scales) {
  F squares[4] = {Simd::zero(), Simd::zero(), Simd::zero(), Simd::zero()};
  for (std::int64_t c = 0; c < headDim; c += kLanes) {
    for (int r = 0; r < 4; ++r) {
      const F numbers = loadUpTo<Rows>(rows[r] + c, headDim - c);
      squares[r] = Simd::fma(numbers, numbers, squares[r]);
    }
  }
  float sums[4];
  Simd::reduceAdd4(squares[0], squares[1], squares[2], squares[3], sums);
  const __m128 lengths = _mm_sqrt_ps(_mm_add_ps(_mm_loadu_ps(sums), _mm_set1_ps(kTinySquare)));
  _mm_storeu_ps(scales, _mm_mul_ps(lengths, _mm_set1_ps(1.0F / kIntegerLength)));
  float inverses[4];
  _mm_storeu_ps(inverses, _mm_div_ps(_mm_set1_ps(kIntegerLength), lengths));
  for (int r = 0; r < 4; ++r) {
    const F inverse = Simd::set(inverses[r]);
    std::uint32_t* to = words + r * wordStride;
    for (std::int64_t c = 0; c < headDim; c += kLanes) {
      const F numbers = Simd::mul(loadUpTo<Rows>(rows[r] + c, headDim - c), inverse);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + c / 2),
                          _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(numbers)));
    }
  }
}

/// Exact keys: [tokens rounded up to 4, rowFloats / 2]; what rounds up repeats the last token.
template <typename Rows>
void pairExactKeys(const KvTile& tile, const QueryBlock& block, std::uint32_t* words,
                   float* scales) {
  const auto* keys = rowsOf<Rows>(tile.keys);
  for (std::int64_t t = 0; t < tile.nTokens; t += 4) {
    const typename Rows::Element* rows[4];
    for (std::int64_t r = 0; r < 4; ++r) {
      rows[r] = keys + smaller(t + r, tile.nTokens - 1) * block.headDim;
    }
    pairRows<Rows>(rows, block.headDim, words + t * block.rowFloats / 2, block.rowFloats / 2,
                   scales + t);
  }
}

/// Length that no key of the page exceeds.
template <int kNbits>
float longestKey(const KvTile& tile, std::int64_t headDim) {
  F squares = Simd::zero();
  for (std::int64_t c = 0; c < headDim; c += kLanes) {
    const F scale = loadUpTo<HalfRows>(tile.keyScales + c, headDim - c);
    const F min = tile.keyMins != nullptr ? loadUpTo<HalfRows>(tile.keyMins + c, headDim - c)
                                          : Simd::mul(scale, Simd::set(symmetricMin(kNbits)));
    const F max = Simd::fma(scale, Simd::set(static_cast<float>((1 << kNbits) - 1)), min);
    const F most = Simd::max(Simd::abs(min), Simd::abs(max));
    squares = Simd::fma(most, most, squares);
  }
  return __builtin_sqrtf(Simd::reduceAdd(squares) + kTinySquare);
}

/// The bytes of each word that hold codes 4s + kFirst and 4s + kFirst + 1 (page_layout.h), as the
/// upper or the lower bytes of the two halves.
template <int kFirst, bool kUpper>
[[gnu::always_inline]] inline Pairs spreadBytes(Pairs words) {
  constexpr int kEach = kUpper ? (kFirst + 1) << 24 | 0x800000 | kFirst << 8 | 0x80
                               : static_cast<int>(0x80008000U) | (kFirst + 1) << 16 | kFirst;
  const __m128i order =
      _mm_add_epi8(_mm_set1_epi32(kEach), _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
  return _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order));
}

/// Codes: [channel pairs, tokens rounded up to kRowUnit]. A key is min + (code 2^(16-nbits) scale)
/// / 2^16 in 16-bit integers, with the scale times 2^nbits: under two units of rounding.
template <int kNbits>
PairKeys pairKeyCodes(const KvTile& tile, std::int64_t headDim, std::uint32_t* words,
                      float* tokenScales) {
  constexpr int kPerWord = 32 / kNbits;
  constexpr int kMask = static_cast<int>(0x01010101U * (0x100U - (0x100U >> kNbits)));
  const std::int64_t depthStride = roundedUp(tile.nTokens, kRowUnit);
  const float length = longestKey<kNbits>(tile, headDim);
  const F unit = Simd::set(kCodeLength / length);
  for (std::int64_t t = 0; t < tile.nTokens; t += kLanes) {
    Simd::store(tokenScales + t, Simd::set(length / kCodeLength));
  }
  for (std::int64_t w = 0; w < tile.keyWords; ++w) {
    const std::int64_t first = w * kPerWord;
    const std::int64_t count = smaller(kPerWord, headDim - first);
    const F scale = Simd::mul(loadUpTo<HalfRows>(tile.keyScales + first, count), unit);
    const F min = tile.keyMins != nullptr
                      ? Simd::mul(loadUpTo<HalfRows>(tile.keyMins + first, count), unit)
                      : Simd::mul(scale, Simd::set(symmetricMin(kNbits)));
    // The product is rounded down; half a unit in the minimum makes up for it.
    std::uint32_t scales[kRowUnit / 2];
    std::uint32_t mins[kRowUnit / 2];
    const F factor = Simd::set(static_cast<float>(1 << kNbits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(scales),
                        _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(Simd::mul(scale, factor))));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(mins),
                        _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(Simd::add(min, Simd::set(0.5F)))));
    const std::byte* codes = tile.keys + w * tile.groupSize * 4;
    for (std::int64_t t = 0; t < tile.nTokens; t += kLanes) {
      const Pairs row = Simd::loadWords(codes + t * 4);
      unrolled<8 / kNbits>([&](auto slice) {
        const Pairs bytes = Simd::maskBits(_mm512_slli_epi32(row, 8 - kNbits * (slice + 1)),
                                           static_cast<std::uint32_t>(kMask));
        unrolled<2>([&](auto half) {
          constexpr int pair = 2 * slice + half;
          if (2 * pair < count) {
            const Pairs code = spreadBytes<2 * half, true>(bytes);
            const Pairs product =
                _mm512_mulhi_epu16(code, _mm512_set1_epi32(static_cast<int>(scales[pair])));
            storePairs(words + (first / 2 + pair) * depthStride + t,
                       _mm512_add_epi16(product, _mm512_set1_epi32(static_cast<int>(mins[pair]))));
          }
        });
      });
    }
  }
  return {words, 1, depthStride};
}

/// `scales` [nTokens rounded up to kRowUnit]: what an integer of each token stands for.
PairKeys pairKeys(const KvTile& tile, const QueryBlock& block, std::uint32_t* words,
                  float* scales) {
  switch (tile.keyNbits) {
    case 8:
      return pairKeyCodes<8>(tile, block.headDim, words, scales);
    case 4:
      return pairKeyCodes<4>(tile, block.headDim, words, scales);
    case 2:
      return pairKeyCodes<2>(tile, block.headDim, words, scales);
    default:
      if (tile.exactType == DataType::kF16) {
        pairExactKeys<HalfRows>(tile, block, words, scales);
      } else {
        pairExactKeys<FloatRows>(tile, block, words, scales);
      }
      return {words, block.rowFloats / 2, 1};
  }
}

/// Exact values: [token pairs, rowFloats].
template <typename Rows>
void pairExactValues(const KvTile& tile, const QueryBlock& block, std::uint32_t* words) {
  const auto* row = rowsOf<Rows>(tile.values);
  for (std::int64_t t = 0; t < tile.nTokens; t += 2) {
    const bool isPair = t + 1 < tile.nTokens;
    for (std::int64_t c = 0; c < block.headDim; c += kLanes) {
      const std::int64_t n = block.headDim - c;
      const F first = loadUpTo<Rows>(row + c, n);
      const F second = isPair ? loadUpTo<Rows>(row + block.headDim + c, n) : Simd::zero();
      storePairs(words + c, pairUp(first, second));
    }
    row += 2 * block.headDim;
    words += block.rowFloats;
  }
}

template <int kNbits>
void pairValueCodes(const KvTile& tile, const QueryBlock& block, std::uint32_t* words) {
  constexpr int kPerWord = 32 / kNbits;
  const F ascending = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (std::int64_t t = 0; t < tile.nTokens; t += kPerWord) {
    const std::byte* codes = tile.values + t / kPerWord * block.headDim * 4;
    const std::int64_t count = smaller(kPerWord, tile.nTokens - t);
    for (std::int64_t group = 0; group < tile.nValueGroups; ++group) {
      // 0 beyond the valid tokens: their scales may be anything.
      float scales[kRowUnit];
      float mins[kRowUnit];
      const std::int64_t at = group * tile.groupSize + t;
      const F scale = loadUpTo<HalfRows>(tile.valueScales + at, count);
      Simd::store(scales, scale);
      Simd::store(mins, tile.valueMins != nullptr
                            ? loadUpTo<HalfRows>(tile.valueMins + at, count)
                            : Simd::mul(scale, Simd::set(symmetricMin(kNbits))));
      // Up to 4 bits: what each code stands for, of the first token of a pair, then of the second.
      Pairs tables[kPerWord / 2];
      for (int pair = 0; pair < kPerWord / 2; ++pair) {
        const F a = Simd::fma(ascending, Simd::set(scales[2 * pair]), Simd::set(mins[2 * pair]));
        const F b =
            Simd::fma(ascending, Simd::set(scales[2 * pair + 1]), Simd::set(mins[2 * pair + 1]));
        tables[pair] = reinterpret_cast<Pairs>(_mm512_cvtne2ps_pbh(b, a));
      }
      std::int64_t c = group * tile.valueGroupSize;
      const std::int64_t end = smaller(c + tile.valueGroupSize, block.headDim);
      for (; c < end; c += kLanes) {
        const Pairs row = end - c >= kLanes ? Simd::loadWords(codes + c * 4)
                                            : Simd::loadWordsPartial(codes + c * 4, end - c);
        unrolled<kPerWord / 2>([&](auto pair) {
          if (2 * pair < count) {
            Pairs values;
            if constexpr (kNbits == 8) {
              values =
                  pairUp(Simd::fma(codeValue<8, 2 * pair>(row), Simd::set(scales[2 * pair]),
                                   Simd::set(mins[2 * pair])),
                         Simd::fma(codeValue<8, 2 * pair + 1>(row), Simd::set(scales[2 * pair + 1]),
                                   Simd::set(mins[2 * pair + 1])));
            } else {
              const Pairs shifted = _mm512_srli_epi32(row, pair / 2 * kNbits);
              const Pairs index =
                  _mm512_or_si512(Simd::maskBits(spreadBytes<pair % 2 * 2, false>(shifted),
                                                 0x00010001U * ((1U << kNbits) - 1U)),
                                  _mm512_set1_epi32(0x00100000));
              values = _mm512_permutexvar_epi16(index, tables[pair]);
            }
            storePairs(words + (t / 2 + pair) * block.rowFloats + c, values);
          }
        });
      }
    }
  }
}

/// [token pairs, rowFloats], 0 up to the next multiple of kRowUnit tokens.
void pairValues(const KvTile& tile, const QueryBlock& block, std::uint32_t* words) {
  switch (tile.valueNbits) {
    case 8:
      pairValueCodes<8>(tile, block, words);
      break;
    case 4:
      pairValueCodes<4>(tile, block, words);
      break;
    case 2:
      pairValueCodes<2>(tile, block, words);
      break;
    default:
      if (tile.exactType == DataType::kF16) {
        pairExactValues<HalfRows>(tile, block, words);
      } else {
        pairExactValues<FloatRows>(tile, block, words);
      }
  }
  const std::int64_t last = roundedUp(tile.nTokens, kRowUnit) / 2;
  for (std::int64_t pair = (tile.nTokens + 1) / 2; pair < last; ++pair) {
    for (std::int64_t c = 0; c < block.rowFloats; c += kLanes) {
      storePairs(words + pair * block.rowFloats + c, _mm512_setzero_si512());
    }
  }
}

// --- Softmax -----------------------------------------------------------------------------------

/// 2^x for x <= 0 with a relative error under 8e-5 (minimax polynomial), a twentieth of what
/// rounding to bfloat16 adds; below the range of float it is 0.
[[gnu::always_inline]] inline F coarsePowerOfTwo(F x) {
  const F part = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // in [0, 1)
  F power = Simd::set(0.07802452F);
  power = Simd::fma(power, part, Simd::set(0.22606716F));
  power = Simd::fma(power, part, Simd::set(0.69583354F));
  power = Simd::fma(power, part, Simd::set(0.99992522F));
  return _mm512_scalef_ps(power, x);  // times 2^floor(x)
}

/// Scores [2 * nPairs, kScoreQueries], still to be multiplied with queryScales[q], to probabilities
/// in their place, [nPairs, kScoreQueries] pairs. Returns whether earlier sums must be multiplied
/// with block.factor[q].
bool softmaxPairs(const QueryBlock& block, std::int64_t firstQuery, std::int64_t nQueries,
                  std::int64_t nPairs, const float* queryScales, const float* tops) {
  const Pairs ones = _mm512_set1_epi32(0x3f803f80);
  bool rescales = false;
  for (std::int64_t q = 0; q < nQueries; q += kLanes) {
    const std::int64_t query = firstQuery + q;
    const F before = Simd::load(block.largest + query);
    const F scale = Simd::load(queryScales + q);
    const F top = Simd::max(before, Simd::mul(Simd::load(tops + q), scale));
    const F factor = powerOfTwo(Simd::sub(before, top));
    rescales = rescales || Simd::reduceMax(Simd::sub(top, before)) > 0.0F;
    F sum = Simd::mul(Simd::load(block.sum + query), factor);
    const F minusTop = Simd::sub(Simd::zero(), top);
    float* scores = block.scores + q;
    auto* pairs = reinterpret_cast<std::uint32_t*>(scores);
    for (std::int64_t pair = 0; pair < nPairs; ++pair) {
      const F first = coarsePowerOfTwo(Simd::fma(Simd::load(scores), scale, minusTop));
      const F second =
          coarsePowerOfTwo(Simd::fma(Simd::load(scores + kScoreQueries), scale, minusTop));
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

/// Queries as arrangeQueriesBf16() leaves them: first what an integer of each query stands for,
/// then [part of kScoreQueries queries][headDim / 2, kScoreQueries] pairs.
const std::uint32_t* queryPairs(const QueryBlock& block, std::int64_t first) {
  return reinterpret_cast<const std::uint32_t*>(block.queries + kExpandedQueries) +
         first * block.headDim / 2;
}

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
    F top = Simd::load(tops + q);
    float* scores = block.scores + tile.firstRow * kScoreQueries + q;
    for (std::int64_t t = 0; t < nTokens; ++t) {
      const __m512i token = _mm512_set1_epi32(static_cast<int>(tile.chunkToken + t));
      const F score = _mm512_mask_blend_ps(_mm512_cmpgt_epi32_mask(seen, token),
                                           Simd::set(kMaskedScore), Simd::load(scores));
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
    Simd::store(tops + q, Simd::set(kMaskedScore));
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
        Simd::store(block.scores + end * kScoreQueries + q, Simd::set(kMaskedScore));
      }
    }
    float ignored[kScoreQueries];
    PairProduct product;
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
      Simd::store(block.scores + end * kScoreQueries + q, Simd::set(kMaskedScore));
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
  PairProduct product;
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
  product.rowScales = nullptr;
  product.top = nullptr;
  product.prefetch = nullptr;
  multiply<BfloatSums>(product);
}

}  // namespace

void attendExpandedBf16(const KvGroup& group, const KvGroup& next, const QueryBlock& block) {
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
