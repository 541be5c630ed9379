#pragma once
// Keys and values of tiles, exact or codes, as 16-bit numbers side by side in 32-bit words: what
// kv_avx512_bf16.cpp multiplies, which is the only one to include this.

#include "kernels/cpu/kv/kv_narrow_product_inl.h"

namespace longhand::kernels {
namespace {

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
  Float squares[4] = {Simd::zero(), Simd::zero(), Simd::zero(), Simd::zero()};
  for (std::int64_t c = 0; c < headDim; c += kLanes) {
    for (int r = 0; r < 4; ++r) {
      const Float numbers = loadUpTo<Rows>(rows[r] + c, headDim - c);
      squares[r] = Simd::multiplyAdd(numbers, numbers, squares[r]);
    }
  }
  float sums[4];
  Simd::sum4(squares[0], squares[1], squares[2], squares[3], sums);
  const __m128 lengths = _mm_sqrt_ps(_mm_add_ps(_mm_loadu_ps(sums), _mm_set1_ps(kTinySquare)));
  _mm_storeu_ps(scales, _mm_mul_ps(lengths, _mm_set1_ps(1.0F / kIntegerLength)));
  float inverses[4];
  _mm_storeu_ps(inverses, _mm_div_ps(_mm_set1_ps(kIntegerLength), lengths));
  for (int r = 0; r < 4; ++r) {
    const Float inverse = Simd::broadcast(inverses[r]);
    std::uint32_t* to = words + r * wordStride;
    for (std::int64_t c = 0; c < headDim; c += kLanes) {
      const Float numbers = Simd::multiply(loadUpTo<Rows>(rows[r] + c, headDim - c), inverse);
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
  Float squares = Simd::zero();
  for (std::int64_t c = 0; c < headDim; c += kLanes) {
    const Float scale = loadUpTo<HalfRows>(tile.keyScales + c, headDim - c);
    const Float min = tile.keyMins != nullptr
                          ? loadUpTo<HalfRows>(tile.keyMins + c, headDim - c)
                          : Simd::multiply(scale, Simd::broadcast(symmetricMin(kNbits)));
    const Float max =
        Simd::multiplyAdd(scale, Simd::broadcast(static_cast<float>((1 << kNbits) - 1)), min);
    const Float most = Simd::max(Simd::abs(min), Simd::abs(max));
    squares = Simd::multiplyAdd(most, most, squares);
  }
  return __builtin_sqrtf(Simd::sum(squares) + kTinySquare);
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
  const Float unit = Simd::broadcast(kCodeLength / length);
  for (std::int64_t t = 0; t < tile.nTokens; t += kLanes) {
    Simd::store(tokenScales + t, Simd::broadcast(length / kCodeLength));
  }
  for (std::int64_t w = 0; w < tile.keyWords; ++w) {
    const std::int64_t first = w * kPerWord;
    const std::int64_t count = smaller(kPerWord, headDim - first);
    const Float scale = Simd::multiply(loadUpTo<HalfRows>(tile.keyScales + first, count), unit);
    const Float min = tile.keyMins != nullptr
                          ? Simd::multiply(loadUpTo<HalfRows>(tile.keyMins + first, count), unit)
                          : Simd::multiply(scale, Simd::broadcast(symmetricMin(kNbits)));
    // The product is rounded down; half a unit in the minimum makes up for it.
    std::uint32_t scales[kRowUnit / 2];
    std::uint32_t mins[kRowUnit / 2];
    const Float factor = Simd::broadcast(static_cast<float>(1 << kNbits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(scales),
                        _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(Simd::multiply(scale, factor))));
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(mins),
        _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(Simd::add(min, Simd::broadcast(0.5F)))));
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
      const Float first = loadUpTo<Rows>(row + c, n);
      const Float second = isPair ? loadUpTo<Rows>(row + block.headDim + c, n) : Simd::zero();
      storePairs(words + c, pairUp(first, second));
    }
    row += 2 * block.headDim;
    words += block.rowFloats;
  }
}

template <int kNbits>
void pairValueCodes(const KvTile& tile, const QueryBlock& block, std::uint32_t* words) {
  constexpr int kPerWord = 32 / kNbits;
  const Float ascending = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (std::int64_t t = 0; t < tile.nTokens; t += kPerWord) {
    const std::byte* codes = tile.values + t / kPerWord * block.headDim * 4;
    const std::int64_t count = smaller(kPerWord, tile.nTokens - t);
    for (std::int64_t group = 0; group < tile.nValueGroups; ++group) {
      // 0 beyond the valid tokens: their scales may be anything.
      float scales[kRowUnit];
      float mins[kRowUnit];
      const std::int64_t at = group * tile.groupSize + t;
      const Float scale = loadUpTo<HalfRows>(tile.valueScales + at, count);
      Simd::store(scales, scale);
      Simd::store(mins, tile.valueMins != nullptr
                            ? loadUpTo<HalfRows>(tile.valueMins + at, count)
                            : Simd::multiply(scale, Simd::broadcast(symmetricMin(kNbits))));
      // Up to 4 bits: what each code stands for, of the first token of a pair, then of the second.
      Pairs tables[kPerWord / 2];
      for (int pair = 0; pair < kPerWord / 2; ++pair) {
        const Float a = Simd::multiplyAdd(ascending, Simd::broadcast(scales[2 * pair]),
                                          Simd::broadcast(mins[2 * pair]));
        const Float b = Simd::multiplyAdd(ascending, Simd::broadcast(scales[2 * pair + 1]),
                                          Simd::broadcast(mins[2 * pair + 1]));
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
              values = pairUp(
                  Simd::multiplyAdd(codeValue<8, 2 * pair>(row), Simd::broadcast(scales[2 * pair]),
                                    Simd::broadcast(mins[2 * pair])),
                  Simd::multiplyAdd(codeValue<8, 2 * pair + 1>(row),
                                    Simd::broadcast(scales[2 * pair + 1]),
                                    Simd::broadcast(mins[2 * pair + 1])));
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

}  // namespace
}  // namespace longhand::kernels
