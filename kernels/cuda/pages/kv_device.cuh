#pragma once
// Numbers of exact spans and of pages on the device, and where the parts of a page lie (the
// formulas of kernels/page_layout.h).

#include <cstdint>

#include "kernels/cuda/warp/portability.cuh"
#include "kernels/kv_types.h"

namespace longhand::kernels::cuda {

/// [nHeads, tokenCapacity, headDim] number at a flat index.
__device__ __forceinline__ float readExact(DataType type, const std::byte* numbers,
                                           std::int64_t index) {
  return type == DataType::kF32 ? reinterpret_cast<const float*>(numbers)[index]
                                : __half2float(reinterpret_cast<const __half*>(numbers)[index]);
}

__device__ __forceinline__ void writeExact(DataType type, std::byte* numbers, std::int64_t index,
                                           float value) {
  if (type == DataType::kF32) {
    reinterpret_cast<float*>(numbers)[index] = value;
  } else {
    reinterpret_cast<__half*>(numbers)[index] = __float2half_rn(value);
  }
}

/// Byte offsets of a page's parts; those the format lacks are never read.
struct PageParts {
  std::uint32_t keyCodes = 0;
  std::uint32_t valueCodes = 0;
  std::uint32_t keyScales = 0;
  std::uint32_t keyMins = 0;
  std::uint32_t valueScales = 0;
  std::uint32_t valueMins = 0;
  std::uint32_t totalBytes = 0;
  int keyWords = 0;        // per token and kv head
  int valueWords = 0;      // per channel and kv head
  int valueGroupSize = 0;  // channels
  int nValueGroups = 0;
};

__host__ __device__ inline PageParts pageParts(const PageFormat& format, int nKvHeads,
                                               int headDim) {
  const int group = format.groupSize;
  const bool hasMins = format.scheme == QuantScheme::kAsymmetric;
  PageParts parts;
  parts.valueGroupSize = group < headDim ? group : headDim;
  // Sizes of groups and of codes are powers of two: a division would cost some 20 instructions.
  const int groupShift = group == 32 ? 5 : group == 64 ? 6 : 7;
  parts.nValueGroups = group < headDim ? (headDim + group - 1) >> groupShift : 1;
  const auto aligned = [](int bytes) { return static_cast<std::uint32_t>((bytes + 63) / 64 * 64); };
  const int exactBytes = nKvHeads * group * headDim * (format.exactType == DataType::kF32 ? 4 : 2);
  std::uint32_t next = 0;
  if (format.keyNbits == 16) {
    next += aligned(exactBytes);
  } else {
    parts.keyWords = (headDim * format.keyNbits + 31) / 32;
    next += aligned(nKvHeads * parts.keyWords * group * 4);
  }
  parts.valueCodes = next;
  if (format.valueNbits == 16) {
    next += aligned(exactBytes);
  } else {
    parts.valueWords = group * format.valueNbits / 32;
    next += aligned(nKvHeads * parts.valueWords * headDim * 4);
  }
  if (format.keyNbits != 16) {
    const std::uint32_t bytes = aligned(nKvHeads * headDim * 2);
    parts.keyScales = next;
    parts.keyMins = next + bytes;
    next += hasMins ? 2 * bytes : bytes;
  }
  if (format.valueNbits != 16) {
    const std::uint32_t bytes = aligned(nKvHeads * parts.nValueGroups * group * 2);
    parts.valueScales = next;
    parts.valueMins = next + bytes;
    next += hasMins ? 2 * bytes : bytes;
  }
  parts.totalBytes = next;
  return parts;
}

/// Code `index` of a word: byte index % 4, bit (index / 4) * nbits of it.
__device__ __forceinline__ int codeShift(int nbits, int index) {
  return 8 * (index % 4) + nbits * (index / 4);
}

/// scale and min (0 in the symmetric scheme) of a group.
struct GroupScale {
  float scale;
  float min;
};

__device__ __forceinline__ GroupScale readScale(const std::byte* page, std::uint32_t scales,
                                                std::uint32_t mins, bool hasMins, int index) {
  const float scale = __half2float(reinterpret_cast<const __half*>(page + scales)[index]);
  return {scale,
          hasMins ? __half2float(reinterpret_cast<const __half*>(page + mins)[index]) : 0.0F};
}

/// The value of a code, rounded twice as the CPU does.
__device__ __forceinline__ float valueOfCode(int code, int nbits, bool isAsymmetric,
                                             GroupScale group) {
  if (isAsymmetric) {
    return __fadd_rn(__fmul_rn(static_cast<float>(code), group.scale), group.min);
  }
  return static_cast<float>(code - (1 << (nbits - 1))) * group.scale;
}

/// One number of a page's keys: any format, one load after the other.
__device__ inline float readPageKey(const PageRef& page, const PageParts& parts, int headDim,
                                    int kvHead, int token, int channel) {
  const PageFormat& format = page.format;
  const int group = format.groupSize;
  if (format.keyNbits == 16) {
    return readExact(format.exactType, page.data + parts.keyCodes,
                     (std::int64_t{kvHead} * group + token) * headDim + channel);
  }
  const int nbits = format.keyNbits;
  const int perWord = 32 / nbits;
  const auto* words = reinterpret_cast<const std::uint32_t*>(page.data + parts.keyCodes);
  const std::uint32_t word = words[(kvHead * parts.keyWords + channel / perWord) * group + token];
  const int code =
      static_cast<int>(word >> codeShift(nbits, channel % perWord)) & ((1 << nbits) - 1);
  const bool isAsymmetric = format.scheme == QuantScheme::kAsymmetric;
  return valueOfCode(code, nbits, isAsymmetric,
                     readScale(page.data, parts.keyScales, parts.keyMins, isAsymmetric,
                               kvHead * headDim + channel));
}

/// One number of a page's values.
__device__ inline float readPageValue(const PageRef& page, const PageParts& parts, int headDim,
                                      int kvHead, int token, int channel) {
  const PageFormat& format = page.format;
  const int group = format.groupSize;
  if (format.valueNbits == 16) {
    return readExact(format.exactType, page.data + parts.valueCodes,
                     (std::int64_t{kvHead} * group + token) * headDim + channel);
  }
  const int nbits = format.valueNbits;
  const int perWord = 32 / nbits;
  const auto* words = reinterpret_cast<const std::uint32_t*>(page.data + parts.valueCodes);
  const std::uint32_t word =
      words[(kvHead * parts.valueWords + token / perWord) * headDim + channel];
  const int code = static_cast<int>(word >> codeShift(nbits, token % perWord)) & ((1 << nbits) - 1);
  const bool isAsymmetric = format.scheme == QuantScheme::kAsymmetric;
  const int valueGroup = channel / parts.valueGroupSize;
  return valueOfCode(code, nbits, isAsymmetric,
                     readScale(page.data, parts.valueScales, parts.valueMins, isAsymmetric,
                               (kvHead * parts.nValueGroups + valueGroup) * group + token));
}

}  // namespace longhand::kernels::cuda
