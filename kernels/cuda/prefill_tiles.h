#pragma once
// A tile of history as halves in shared memory: the only place where packed tokens are expanded in
// prefill. Written by all kPrefillThreads threads of a block; a barrier must follow.
//
// Keys stand as they are multiplied, one row a token. Values of codes stand transposed, one row a
// channel, since a word holds several tokens of one channel; exact values stand one row a token.
// Rows are 16 bytes longer than their numbers, so that the 8 rows that ldmatrix reads at once lie
// in different banks.

#include <cstdint>

#include "kernels/cuda/half_pairs.h"
#include "kernels/cuda/kv_device.h"
#include "kernels/cuda/ptx.h"

namespace longhand::kernels::cuda {

inline constexpr int kPrefillThreads = 128;
inline constexpr int kTilePadding = 8;  // halves behind a row

/// Loads one vector of kWords words.
template <int kWords>
__device__ __forceinline__ void loadWords(const void* source, unsigned (&words)[kWords]) {
  if constexpr (kWords == 2) {
    const uint2 loaded = *static_cast<const uint2*>(source);
    words[0] = loaded.x;
    words[1] = loaded.y;
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      const uint4 loaded =
          *reinterpret_cast<const uint4*>(static_cast<const __half*>(source) + 2 * i);
      words[i] = loaded.x;
      words[i + 1] = loaded.y;
      words[i + 2] = loaded.z;
      words[i + 3] = loaded.w;
    }
  }
}

template <int kWords>
__device__ __forceinline__ void storeWords(void* destination, const unsigned (&words)[kWords]) {
  if constexpr (kWords == 2) {
    *static_cast<uint2*>(destination) = make_uint2(words[0], words[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      *reinterpret_cast<uint4*>(static_cast<__half*>(destination) + 2 * i) =
          make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
    }
  }
}

/// The 32 / kNbits codes of a word as scale * (code - middle) + min, rounded once, in their order.
/// `scales` and `mins` (nullptr: zeros) hold one half for each code. Bits put below those of 1024.0
/// count in ones, so that 1024 + code needs no conversion.
template <int kNbits>
__device__ __forceinline__ void expandWord(std::uint32_t word, const __half* scales,
                                           const __half* mins, unsigned (&result)[16 / kNbits]) {
  constexpr unsigned kMagic = 0x64646464U;  // high bytes of 1024.0
  constexpr unsigned kMask = 0xff00ff00U | ((1U << kNbits) - 1U) * 0x00010001U;
  constexpr int kPairs = 16 / kNbits;
  unsigned scaleWords[kPairs];
  unsigned minWords[kPairs] = {};
  loadWords<kPairs>(scales, scaleWords);
  if (mins != nullptr) loadWords<kPairs>(mins, minWords);
  const float middle = mins == nullptr ? static_cast<float>(1 << (kNbits - 1)) : 0.0F;
  const __half2 offset = __float2half2_rn(1024.0F + middle);
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const std::uint32_t shifted = word >> (p / 2 * kNbits);
    const unsigned pair = __byte_perm(shifted, kMagic, p % 2 == 0 ? 0x4140U : 0x4342U) & kMask;
    const __half2 code = __hsub2(halvesOfWord(pair), offset);
    result[p] = wordOfHalves(__hfma2(code, halvesOfWord(scaleWords[p]), halvesOfWord(minWords[p])));
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

/// Tokens [firstToken, firstToken + kTokens) of a page's key codes; tokens that are not valid
/// become numbers too. keys [kTokens, kHeadDim + kTilePadding].
template <int kNbits, int kHeadDim, int kTokens>
__device__ __forceinline__ void expandKeys(const PageRef& page, const PageParts& parts, int kvHead,
                                           int firstToken, __half* keys) {
  constexpr int kPerWord = 32 / kNbits;
  constexpr int kWords = kHeadDim / kPerWord;
  constexpr int kItems = kWords * kTokens;
  constexpr int kBatch = 4;  // loads in flight
  const int group = page.format.groupSize;
  const auto* const words = reinterpret_cast<const std::uint32_t*>(page.data + parts.keyCodes) +
                            kvHead * kWords * group + firstToken;
  const auto* const scales =
      reinterpret_cast<const __half*>(page.data + parts.keyScales) + kvHead * kHeadDim;
  const auto* const mins =
      page.format.scheme == QuantScheme::kAsymmetric
          ? reinterpret_cast<const __half*>(page.data + parts.keyMins) + kvHead * kHeadDim
          : nullptr;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < kItems;
       first += kBatch * kPrefillThreads) {
    std::uint32_t loaded[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int item = first + i * kPrefillThreads;
      if (item < kItems && firstToken + item % kTokens < group) {
        loaded[i] = words[item / kTokens * group + item % kTokens];
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int item = first + i * kPrefillThreads;
      const int token = item % kTokens;
      if (item >= kItems || firstToken + token >= group) continue;
      const int channel = item / kTokens * kPerWord;
      unsigned pairs[16 / kNbits];
      expandWord<kNbits>(loaded[i], scales + channel, mins == nullptr ? nullptr : mins + channel,
                         pairs);
      storeWords(keys + token * (kHeadDim + kTilePadding) + channel, pairs);
    }
  }
}

/// Value codes likewise, zeros from token `nTokens` of the tile on. values
/// [kHeadDim, kTokens + kTilePadding].
template <int kNbits, int kHeadDim, int kTokens>
__device__ __forceinline__ void expandValues(const PageRef& page, const PageParts& parts,
                                             int kvHead, int firstToken, int nTokens,
                                             __half* values) {
  constexpr int kPerWord = 32 / kNbits;
  constexpr int kItems = kTokens / kPerWord * kHeadDim;
  constexpr int kBatch = 4;
  const int group = page.format.groupSize;
  const int nWords = min(kTokens, group - firstToken) / kPerWord;  // of tokens
  const auto* const words = reinterpret_cast<const std::uint32_t*>(page.data + parts.valueCodes) +
                            (kvHead * parts.valueWords + firstToken / kPerWord) * kHeadDim;
  const auto* const scales = reinterpret_cast<const __half*>(page.data + parts.valueScales);
  const bool hasMins = page.format.scheme == QuantScheme::kAsymmetric;
  const auto* const mins = reinterpret_cast<const __half*>(page.data + parts.valueMins);
  const int groupShift = group < kHeadDim ? __ffs(group) - 1 : 8;  // channel >> 8 is 0
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < kItems;
       first += kBatch * kPrefillThreads) {
    std::uint32_t loaded[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int item = first + i * kPrefillThreads;
      if (item < nWords * kHeadDim) loaded[i] = words[item];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int item = first + i * kPrefillThreads;
      if (item >= kItems) continue;
      const int channel = item % kHeadDim;
      const int token = item / kHeadDim * kPerWord;  // of the tile
      unsigned pairs[16 / kNbits] = {};
      if (token < nTokens) {
        const int scale =
            (kvHead * parts.nValueGroups + (channel >> groupShift)) * group + firstToken + token;
        expandWord<kNbits>(loaded[i], scales + scale, hasMins ? mins + scale : nullptr, pairs);
        if (token + kPerWord > nTokens) clearFrom(nTokens - token, pairs);
      }
      storeWords(values + channel * (kTokens + kTilePadding) + token, pairs);
    }
  }
}

/// Exact keys or values, [.., kHeadDim] from `numbers` on: nTokens rows, then zeros. F16 comes in
/// the background: waitCopies<0>() before the barrier. tile [kTokens, kHeadDim + kTilePadding].
template <int kHeadDim, int kTokens>
__device__ __forceinline__ void copyExactTile(DataType type, const std::byte* numbers,
                                              std::int64_t firstRow, int nTokens, __half* tile) {
  constexpr int kPieces = kHeadDim / 8;
  for (int item = static_cast<int>(threadIdx.x); item < kTokens * kPieces;
       item += kPrefillThreads) {
    const int token = item / kPieces;
    const int channel = item % kPieces * 8;
    const bool isValid = token < nTokens;
    __half* const destination = tile + token * (kHeadDim + kTilePadding) + channel;
    const std::int64_t source = (firstRow + (isValid ? token : 0)) * kHeadDim + channel;
    if (type == DataType::kF16) {
      copyAsync16(destination, reinterpret_cast<const __half*>(numbers) + source,
                  isValid ? 16U : 0U);
      continue;
    }
    uint4 packed = make_uint4(0, 0, 0, 0);
    if (isValid) {
      const auto* const floats =
          reinterpret_cast<const float4*>(reinterpret_cast<const float*>(numbers) + source);
      const float4 low = floats[0];
      const float4 high = floats[1];
      packed = make_uint4(packHalves(low.x, low.y), packHalves(low.z, low.w),
                          packHalves(high.x, high.y), packHalves(high.z, high.w));
    }
    *reinterpret_cast<uint4*>(destination) = packed;
  }
}

}  // namespace longhand::kernels::cuda
