#pragma once
// A tile of history as halves in shared memory: the only place where packed tokens are expanded in
// prefill. All kPrefillThreads threads of a block first stage a tile, which starts copies in the
// background, and work on another one meanwhile; then they wait for their copies and expand it. A
// barrier must follow.
//
// Keys stand as they are multiplied, one row a token. Values of codes stand transposed, one row a
// channel, since a word holds several tokens of one channel; exact values stand one row a token.
// Rows are 16 bytes longer than their numbers, so that the 8 rows that ldmatrix reads at once lie
// in different banks.
//
// Codes are staged where their numbers will stand, so they need no room of their own. Four rows by
// 8 numbers (16 of 2 bits) are an item, which one thread does: it copies the item's words (4 rows
// in 16 bytes), scales and mins to the item's rows, reads them back and writes numbers over them.
// No other thread comes near, so that no barrier is needed in between.

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cuda/pages/kv_device.cuh"
#include "kernels/cuda/warp/half_pairs.cuh"
#include "kernels/cuda/warp/ptx.cuh"

namespace longhand::kernels::cuda {

inline constexpr int kPrefillThreads = 128;
inline constexpr int kTilePadding = 8;  // halves behind a row
inline constexpr int kItemRows = 4;

/// Calls function(i) for i = 0, ..., kCount - 1, each a constant.
template <int kCount, class Function>
__device__ __forceinline__ void forEachIndex(const Function& function) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (function(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

/// 2 * kPairs halves from a 16-byte aligned address.
template <int kPairs>
__device__ __forceinline__ void loadPairs(const __half* source, unsigned (&pairs)[kPairs]) {
#pragma unroll
  for (int p = 0; p < kPairs; p += 4) {
    const uint4 loaded = *reinterpret_cast<const uint4*>(source + 2 * p);
    pairs[p] = loaded.x;
    pairs[p + 1] = loaded.y;
    pairs[p + 2] = loaded.z;
    pairs[p + 3] = loaded.w;
  }
}

template <int kPairs>
__device__ __forceinline__ void storePairs(__half* destination, const unsigned (&pairs)[kPairs]) {
#pragma unroll
  for (int p = 0; p < kPairs; p += 4) {
    *reinterpret_cast<uint4*>(destination + 2 * p) =
        make_uint4(pairs[p], pairs[p + 1], pairs[p + 2], pairs[p + 3]);
  }
}

/// Zeros from number `count` on.
template <int kPairs>
__device__ __forceinline__ void clearFrom(int count, unsigned (&pairs)[kPairs]) {
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    if (2 * p >= count) {
      pairs[p] = 0;
    } else if (2 * p + 1 == count) {
      pairs[p] &= 0xffffU;
    }
  }
}

/// What takes 1024 away from a code, and the middle in the symmetric scheme.
template <int kNbits>
struct CodeOffsets {
  static constexpr int kShifts = 8 / kNbits;  // places of a code in its byte
  __half2 ofPlace[kShifts];

  __device__ __forceinline__ explicit CodeOffsets(bool hasMins) {
    const float middle = hasMins ? 0.0F : static_cast<float>(1 << (kNbits - 1));
#pragma unroll
    for (int s = 0; s < kShifts; ++s) {
      ofPlace[s] = __float2half2_rn(-1024.0F / static_cast<float>(1 << (s * kNbits)) - middle);
    }
  }
};

/// The 32 / kNbits codes of a word as scale * (code - middle) + min, rounded once, in their order;
/// a pair of scales and mins for each pair of codes. Bits put below those of 1024.0 count in ones,
/// so that 1024 + code * 2^k needs no conversion, and code follows exactly.
template <int kNbits>
__device__ __forceinline__ void expandWord(std::uint32_t word, const CodeOffsets<kNbits>& offsets,
                                           const unsigned* scales, const unsigned* mins,
                                           unsigned* result) {
  constexpr unsigned kMagic = 0x64646464U;  // high bytes of 1024.0
  const unsigned bytes[2] = {__byte_perm(word, kMagic, 0x4140U),
                             __byte_perm(word, kMagic, 0x4342U)};
#pragma unroll
  for (int p = 0; p < 16 / kNbits; ++p) {
    const int shift = p / 2 * kNbits;
    const unsigned mask = 0xff00ff00U | (((1U << kNbits) - 1U) << shift) * 0x00010001U;
    const __half2 bits = halvesOfWord(kNbits == 8 ? bytes[p % 2] : bytes[p % 2] & mask);
    const float unit = 1.0F / static_cast<float>(1 << shift);
    const __half2 offset = offsets.ofPlace[p / 2];
    const __half2 code =
        shift == 0 ? __hadd2(bits, offset) : __hfma2(bits, __float2half2_rn(unit), offset);
    result[p] = wordOfHalves(__hfma2(code, halvesOfWord(scales[p]), halvesOfWord(mins[p])));
  }
}

/// Where the codes of a tile lie in a page: words [kNumbers * kNbits / 32, wordStride] of a tile
/// whose row r has the codes of all words at [.., r]. Rows are tokens and numbers channels for
/// keys, the other way round for values.
struct CodeSource {
  const std::uint32_t* words;
  int wordStride;
  const __half* scales;  // of number n in row r: [(r >> scaleShift) * scaleStride + n]
  const __half* mins;    // likewise; nullptr: zeros
  int scaleShift;
  int scaleStride;
};

/// The items of a tile [kRows, kNumbers + kTilePadding] that a thread does: neighbours in a column
/// of items, so that they have their scales in common and lie at constant distances.
template <int kNbits, int kRows, int kNumbers>
struct CodeItems {
  static constexpr int kPerWord = 32 / kNbits;
  static constexpr int kWords = kNbits == 8 ? 2 : 1;      // of an item's row
  static constexpr int kItemNumbers = kWords * kPerWord;  // 8 or 16
  static constexpr int kPairs = kItemNumbers / 2;
  static constexpr int kStride = kNumbers + kTilePadding;
  static constexpr int kColumns = kNumbers / kItemNumbers;
  static constexpr int kInColumn = kRows / kItemRows;  // items
  static constexpr int kThreadsOfColumn = kPrefillThreads / kColumns;
  static constexpr int kOfThread = ceilDivide(kInColumn, kThreadsOfColumn);
  static constexpr bool kIsEven =
      kColumns * kThreadsOfColumn == kPrefillThreads && kThreadsOfColumn * kOfThread == kInColumn;

  int row;     // of the thread's first item
  int number;  // likewise; beyond the tile for a thread that has none

  __device__ __forceinline__ CodeItems() {
    const int thread = readThreadIndex();
    const bool isIdle = !kIsEven && thread >= kColumns * kThreadsOfColumn;
    row = thread / kColumns * kOfThread * kItemRows;
    number = isIdle ? kNumbers : thread % kColumns * kItemNumbers;
  }
  __device__ __forceinline__ bool isInside(int i, int nRows, int nNumbers) const {
    return row + i * kItemRows < nRows && number < nNumbers;
  }
};

/// Starts to copy what the first nRows by nNumbers numbers of a tile are made of.
template <int kNbits, int kRows, int kNumbers>
__device__ __forceinline__ void stageCodes(const CodeSource& source, int nRows, int nNumbers,
                                           __half* tile) {
  using Items = CodeItems<kNbits, kRows, kNumbers>;
  const Items items;
  __half* const place = tile + items.row * Items::kStride + items.number;
  const std::uint32_t* const words =
      source.words + items.number / Items::kPerWord * source.wordStride + items.row;
  const int scale = (items.row >> source.scaleShift) * source.scaleStride + items.number;
  constexpr int kRowBytes = 2 * Items::kStride;
  const auto stageItem = [&](auto i) {
    constexpr int kFirst = decltype(i)::value * kItemRows * kRowBytes;  // in the thread's rows
    copyAsync16At<kFirst, decltype(i)::value * kItemRows * 4>(place, words);
    if constexpr (Items::kWords == 2) {
      copyAsync16At<kFirst + kRowBytes, decltype(i)::value * kItemRows * 4>(
          place, words + source.wordStride);
    }
    if constexpr (i == 0) {
      constexpr int kScales = Items::kWords * kRowBytes;
      copyAsync16At<kScales, 0>(place, source.scales + scale);
      if constexpr (Items::kItemNumbers == 16) {
        copyAsync16At<kScales + 16, 16>(place, source.scales + scale);
      }
      if (source.mins == nullptr) return;
      copyAsync16At<kScales + kRowBytes, 0>(place, source.mins + scale);
      if constexpr (Items::kItemNumbers == 16) {
        copyAsync16At<kScales + kRowBytes + 16, 16>(place, source.mins + scale);
      }
    }
  };
  if (Items::kIsEven && nRows == kRows && nNumbers == kNumbers) {
    forEachIndex<Items::kOfThread>(stageItem);
  } else {
    forEachIndex<Items::kOfThread>([&](auto i) {
      if (items.isInside(i, min(kRows, nRows), nNumbers)) stageItem(i);
    });
  }
}

/// Turns what this thread's copies have brought into numbers; zeros from number nNumbers of a row
/// on. Rows that were not staged become any numbers.
template <int kNbits, int kRows, int kNumbers>
__device__ __forceinline__ void expandCodes(bool hasMins, int nNumbers, __half* tile) {
  using Items = CodeItems<kNbits, kRows, kNumbers>;
  constexpr int kPairs = Items::kPairs;
  const Items items;
  if (!Items::kIsEven && !items.isInside(0, kRows, kNumbers)) return;
  __half* const place = tile + items.row * Items::kStride + items.number;
  const CodeOffsets<kNbits> offsets(hasMins);
  unsigned scales[kPairs];
  unsigned mins[kPairs] = {};
  loadPairs(place + Items::kWords * Items::kStride, scales);
  if (hasMins) loadPairs(place + (Items::kWords + 1) * Items::kStride, mins);
#pragma unroll
  for (int i = 0; i < Items::kOfThread; ++i) {
    if (!Items::kIsEven && !items.isInside(i, kRows, kNumbers)) break;
    __half* const item = place + i * kItemRows * Items::kStride;
    unsigned words[Items::kWords][kItemRows];
#pragma unroll
    for (int w = 0; w < Items::kWords; ++w) loadPairs(item + w * Items::kStride, words[w]);
#pragma unroll
    for (int r = 0; r < kItemRows; ++r) {
      unsigned pairs[kPairs];
#pragma unroll
      for (int w = 0; w < Items::kWords; ++w) {
        const int first = w * (kPairs / Items::kWords);
        expandWord<kNbits>(words[w][r], offsets, scales + first, mins + first, pairs + first);
      }
      storePairs(item + r * Items::kStride, pairs);
    }
  }
  const int nValid = nNumbers - items.number;
  if (nNumbers == kNumbers || nValid >= Items::kItemNumbers) return;
#pragma unroll 1
  for (int r = 0; r < min(Items::kOfThread * kItemRows, kRows - items.row); ++r) {
    unsigned pairs[kPairs];
    loadPairs(place + r * Items::kStride, pairs);
    clearFrom(nValid, pairs);
    storePairs(place + r * Items::kStride, pairs);
  }
}

/// Tokens [firstToken, ..) of a page's key codes, for tiles [kTokens, kHeadDim].
template <int kNbits>
__device__ __forceinline__ CodeSource keySource(const PageRef& page, const PageParts& parts,
                                                int kvHead, int headDim, int firstToken) {
  const int group = page.format.groupSize;
  const auto* const words = reinterpret_cast<const std::uint32_t*>(page.data + parts.keyCodes);
  const auto* const scales = reinterpret_cast<const __half*>(page.data + parts.keyScales);
  const auto* const mins = reinterpret_cast<const __half*>(page.data + parts.keyMins);
  const bool hasMins = page.format.scheme == QuantScheme::kAsymmetric;
  return {words + kvHead * (headDim * kNbits / 32) * group + firstToken,
          group,
          scales + kvHead * headDim,
          hasMins ? mins + kvHead * headDim : nullptr,
          0,
          0};
}

/// The same of value codes, for tiles [kHeadDim, kTokens].
template <int kNbits>
__device__ __forceinline__ CodeSource valueSource(const PageRef& page, const PageParts& parts,
                                                  int kvHead, int headDim, int firstToken) {
  const int group = page.format.groupSize;
  const auto* const words = reinterpret_cast<const std::uint32_t*>(page.data + parts.valueCodes);
  const auto* const scales = reinterpret_cast<const __half*>(page.data + parts.valueScales);
  const auto* const mins = reinterpret_cast<const __half*>(page.data + parts.valueMins);
  const bool hasMins = page.format.scheme == QuantScheme::kAsymmetric;
  const int firstScale = kvHead * parts.nValueGroups * group + firstToken;
  return {words + (kvHead * parts.valueWords + firstToken * kNbits / 32) * headDim,
          headDim,
          scales + firstScale,
          hasMins ? mins + firstScale : nullptr,
          group < headDim ? __ffs(group) - 1 : 8,  // channel >> 8 is 0
          group};
}

/// Exact keys or values, [.., kHeadDim] from `numbers` on: nTokens rows, then zeros. F16 comes in
/// the background, floats (which only tests store) at once.
/// tile [kTokens, kHeadDim + kTilePadding].
template <int kHeadDim, int kTokens>
__device__ __forceinline__ void stageExact(DataType type, const std::byte* numbers,
                                           std::int64_t firstRow, int nTokens, __half* tile) {
  constexpr int kPieces = kHeadDim / 8;  // of 16 bytes in a row
  constexpr int kItems = kTokens * kPieces;
  const int thread = readThreadIndex();
  const auto placeOf = [&](int item) {
    return tile + item / kPieces * (kHeadDim + kTilePadding) + item % kPieces * 8;
  };
  if (type != DataType::kF16) {
    const float* const floats = reinterpret_cast<const float*>(numbers) + firstRow * kHeadDim;
#pragma unroll 1
    for (int i = thread; i < kItems * 8; i += kPrefillThreads) {
      const bool isValid = i / kHeadDim < nTokens;
      placeOf(i / 8)[i % 8] = halfInRange(isValid ? floats[i] : 0.0F);
    }
    return;
  }
  const __half* const halves = reinterpret_cast<const __half*>(numbers) + firstRow * kHeadDim;
  constexpr int kRoundRows = kPrefillThreads / kPieces;
  if (nTokens == kTokens && kPrefillThreads % kPieces == 0) {
    forEachIndex<kItems / kPrefillThreads>([&](auto i) {
      constexpr int kRow = decltype(i)::value * kRoundRows;
      copyAsync16At<2 * kRow*(kHeadDim + kTilePadding), 2 * kRow * kHeadDim>(placeOf(thread),
                                                                             halves + thread * 8);
    });
    return;
  }
#pragma unroll 1
  for (int item = thread; item < kItems; item += kPrefillThreads) {
    const bool isValid = item / kPieces < nTokens;
    copyAsync16(placeOf(item), halves + (isValid ? item * 8 : 0), isValid ? 16U : 0U);
  }
}

}  // namespace longhand::kernels::cuda
