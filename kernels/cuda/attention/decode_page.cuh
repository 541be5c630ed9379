#pragma once
// A page of the table as decode attention reads it, and where a kv head's parts lie in it.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/pages/kv_device.cuh"

namespace longhand::kernels::cuda {

/// A page of the table, loaded at once.
struct DecodePage {
  const std::byte* data = nullptr;
  unsigned format = 0;  // keyNbits, valueNbits, groupSize, scheme
  unsigned rest = 0;    // exactType, nothing, nTokens

  __device__ __forceinline__ static DecodePage load(const PageRef* page) {
    static_assert(offsetof(PageRef, format) == 8 && offsetof(PageRef, nTokens) == 14);
    DecodePage result;
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(page));
    memcpy(static_cast<void*>(&result), &words, sizeof words);
    return result;
  }
  /// The whole format in one register: scheme and exactType have less than 16 values each.
  __device__ unsigned formatKey() const { return format | rest << 28U; }
  __device__ int nTokens() const { return static_cast<int>(rest >> 16U); }
  __device__ PageFormat pageFormat() const {
    PageFormat result;
    result.keyNbits = static_cast<std::uint8_t>(format);
    result.valueNbits = static_cast<std::uint8_t>(format >> 8U);
    result.groupSize = static_cast<std::uint8_t>(format >> 16U);
    result.scheme = static_cast<QuantScheme>(format >> 24U);
    result.exactType = static_cast<DataType>(rest & 0xffU);
    return result;
  }
};
static_assert(sizeof(DecodePage) == sizeof(uint4));

/// Where a kv head's parts lie in pages of a format, in bytes. Neighbouring pages have the same.
struct alignas(16) HeadParts {
  std::uint32_t keys = 0;
  std::uint32_t values = 0;
  std::uint32_t keyScales = 0;
  std::uint32_t keyMins = 0;
  std::uint32_t valueScales = 0;
  std::uint32_t valueMins = 0;
  int keyBytes = 0;
  int valueBytes = 0;
  int keyScaleBytes = 0;  // 0 where there are none
  int valueScaleBytes = 0;

  __device__ static HeadParts of(const PageFormat& format, int nKvHeads, int kvHead, int headDim) {
    const PageParts parts = pageParts(format, nKvHeads, headDim);
    const int group = format.groupSize;
    const int exactBytes = group * headDim * (format.exactType == DataType::kF32 ? 4 : 2);
    HeadParts result;
    result.keyBytes = format.keyNbits == 16 ? exactBytes : parts.keyWords * group * 4;
    result.valueBytes = format.valueNbits == 16 ? exactBytes : parts.valueWords * headDim * 4;
    const auto at = [kvHead](std::uint32_t first, int headBytes) {
      return first + static_cast<std::uint32_t>(kvHead) * static_cast<std::uint32_t>(headBytes);
    };
    result.keys = at(parts.keyCodes, result.keyBytes);
    result.values = at(parts.valueCodes, result.valueBytes);
    // What the format lacks is never read; its place may be asked for (prefetch()), so it is that
    // of something else.
    const bool hasMins = format.scheme == QuantScheme::kAsymmetric;
    result.keyScaleBytes = format.keyNbits == 16 ? 0 : headDim * 2;
    result.valueScaleBytes = format.valueNbits == 16 ? 0 : parts.nValueGroups * group * 2;
    result.keyScales = at(parts.keyScales, result.keyScaleBytes);
    result.keyMins = hasMins ? at(parts.keyMins, result.keyScaleBytes) : result.keyScales;
    result.valueScales = at(parts.valueScales, result.valueScaleBytes);
    result.valueMins = hasMins ? at(parts.valueMins, result.valueScaleBytes) : result.valueScales;
    return result;
  }
};

}  // namespace longhand::kernels::cuda
