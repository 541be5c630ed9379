#pragma once
// Codes of a page to floats, whole tiles at a time. Product and sum are exact or rounded once, so
// the results are those of dequantize() bit for bit.

#include "kernels/cpu/kv/kv_common_inl.h"

namespace longhand::kernels {
namespace {

inline float halfAt(const std::uint16_t* p) {
  float lanes[kLanes];
  Simd::store(lanes, Simd::loadHalfPartial(p, 1));
  return lanes[0];
}

template <int kNbits>
void expandKeyCodes(const KvTile& tile, std::int64_t headDim, float* byChannel) {
  constexpr int kPerWord = 32 / kNbits;
  for (std::int64_t w = 0; w < tile.keyWords; ++w) {
    float scales[kPerWord] = {};
    float mins[kPerWord] = {};
    const std::int64_t first = w * kPerWord;
    const std::int64_t count = smaller(kPerWord, headDim - first);
    for (std::int64_t i = 0; i < count; ++i) {
      scales[i] = halfAt(tile.keyScales + first + i);
      mins[i] = tile.keyMins != nullptr ? halfAt(tile.keyMins + first + i)
                                        : scales[i] * symmetricMin(kNbits);
    }
    const std::byte* words = tile.keys + w * tile.groupSize * 4;
    for (std::int64_t t = 0; t < tile.nTokens; t += kLanes) {
      const Words row = Simd::loadWords(words + t * 4);
      unrolled<kPerWord>([&](auto i) {
        if (i < count) {
          Simd::store(byChannel + (first + i) * kMaxTileTokens + t,
                      Simd::multiplyAdd(codeValue<kNbits, i>(row), Simd::broadcast(scales[i]),
                                        Simd::broadcast(mins[i])));
        }
      });
    }
  }
}

template <int kNbits>
void expandValueCodes(const KvTile& tile, std::int64_t headDim, std::int64_t rowFloats,
                      float* rows) {
  constexpr int kPerWord = 32 / kNbits;
  for (std::int64_t t = 0; t < tile.nTokens; t += kPerWord) {
    const std::byte* words = tile.values + t / kPerWord * headDim * 4;
    const std::int64_t count = smaller(kPerWord, tile.nTokens - t);
    for (std::int64_t group = 0; group < tile.nValueGroups; ++group) {
      float scales[kPerWord] = {};
      float mins[kPerWord] = {};
      const std::int64_t parameters = group * tile.groupSize + t;
      for (std::int64_t i = 0; i < count; ++i) {
        scales[i] = halfAt(tile.valueScales + parameters + i);
        mins[i] = tile.valueMins != nullptr ? halfAt(tile.valueMins + parameters + i)
                                            : scales[i] * symmetricMin(kNbits);
      }
      const std::int64_t firstChannel = group * tile.valueGroupSize;
      const std::int64_t end = smaller(firstChannel + tile.valueGroupSize, headDim);
      for (std::int64_t c = firstChannel; c < end; c += kLanes) {
        const Words row = end - c >= kLanes ? Simd::loadWords(words + c * 4)
                                            : Simd::loadWordsPartial(words + c * 4, end - c);
        unrolled<kPerWord>([&](auto i) {
          if (i < count) {
            Simd::store(rows + (t + i) * rowFloats + c,
                        Simd::multiplyAdd(codeValue<kNbits, i>(row), Simd::broadcast(scales[i]),
                                          Simd::broadcast(mins[i])));
          }
        });
      }
    }
  }
}

void expandKeys(const KvTile& tile, std::int64_t headDim, float* byChannel) {
  switch (tile.keyNbits) {
    case 8:
      return expandKeyCodes<8>(tile, headDim, byChannel);
    case 4:
      return expandKeyCodes<4>(tile, headDim, byChannel);
    default:
      return expandKeyCodes<2>(tile, headDim, byChannel);
  }
}

void expandValues(const KvTile& tile, std::int64_t headDim, std::int64_t rowFloats, float* rows) {
  switch (tile.valueNbits) {
    case 8:
      return expandValueCodes<8>(tile, headDim, rowFloats, rows);
    case 4:
      return expandValueCodes<4>(tile, headDim, rowFloats, rows);
    default:
      return expandValueCodes<2>(tile, headDim, rowFloats, rows);
  }
}

/// Exact rows [nTokens, headDim] to [nTokens, rowFloats] floats, padding 0.
template <typename Rows>
void expandExactRows(const std::byte* memory, std::int64_t nTokens, std::int64_t headDim,
                     std::int64_t rowFloats, float* rows) {
  const auto* source = rowsOf<Rows>(memory);
  for (std::int64_t t = 0; t < nTokens; ++t) {
    for (std::int64_t c = 0; c < rowFloats; c += kLanes) {
      const std::int64_t n = headDim - c;
      Simd::store(rows + c, n > 0 ? loadUpTo<Rows>(source + c, n) : Simd::zero());
    }
    source += headDim;
    rows += rowFloats;
  }
}

void floatsToHalves(const float* source, std::uint16_t* destination, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Simd::storeHalf(destination + i, Simd::load(source + i));
  if (i < count) {
    std::uint16_t rest[kLanes];
    Simd::storeHalf(rest, Simd::loadPartial(source + i, count - i));
    for (std::int64_t k = 0; i < count; ++i, ++k) destination[i] = rest[k];
  }
}

void halvesToFloats(const std::uint16_t* source, float* destination, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Simd::store(destination + i, Simd::loadHalf(source + i));
  if (i < count) {
    float rest[kLanes];
    Simd::store(rest, Simd::loadHalfPartial(source + i, count - i));
    for (std::int64_t k = 0; i < count; ++i, ++k) destination[i] = rest[k];
  }
}

}  // namespace
}  // namespace longhand::kernels
