#include "kernels/nf4.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/half.h"

namespace longhand::kernels {

const std::array<float, 16> kNf4Codebook = {-1.0F,
                                            -0.6961928009986877F,
                                            -0.5250730514526367F,
                                            -0.39491748809814453F,
                                            -0.28444138169288635F,
                                            -0.18477343022823334F,
                                            -0.09105003625154495F,
                                            0.0F,
                                            0.07958029955625534F,
                                            0.16093020141124725F,
                                            0.24611230194568634F,
                                            0.33791524171829224F,
                                            0.44070982933044434F,
                                            0.5626170039176941F,
                                            0.7229568362236023F,
                                            1.0F};

namespace {

// Mapped model files need not be aligned, hence memcpy.
float readFloat(const std::byte* at) {
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint16_t readHalf(const std::byte* at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

constexpr std::uint8_t kPaddingCode = 7;  // stands for 0

/// Points half-way between neighbouring values of a codebook.
template <std::size_t kCount>
std::array<float, kCount - 1> midpointsOf(const std::array<float, kCount>& codebook) {
  std::array<float, kCount - 1> midpoints;
  for (std::size_t i = 0; i + 1 < kCount; ++i) {
    midpoints[i] = (codebook[i] + codebook[i + 1]) / 2.0F;
  }
  return midpoints;
}

float largestMagnitude(std::span<const float> values) {
  float largest = 0.0F;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

/// A value equal to a midpoint takes the lower code.
template <std::size_t kCount>
std::uint8_t nearestCode(const std::array<float, kCount>& midpoints, float value) {
  return static_cast<std::uint8_t>(std::ranges::lower_bound(midpoints, value) - midpoints.begin());
}

float reciprocalOrZero(float absmax) { return absmax > 0.0F ? 1.0F / absmax : 0.0F; }

std::array<float, 256> makeDynamicCodebook() {
  // For each decade 10^(k-6) the means of 2^k equal slices of [0.1, 1], with both signs; then 0
  // and 1. Formed in the number types bitsandbytes uses, so that the table is the same.
  std::array<float, 256> codebook{};
  std::size_t count = 0;
  codebook[count++] = 0.0F;
  codebook[count++] = 1.0F;
  for (int decade = 0; decade < 7; ++decade) {
    const int slices = 1 << decade;
    const double step = (1.0 - 0.1) / slices;
    const auto edge = [&](int i) {
      return static_cast<float>(i == slices ? 1.0 : static_cast<double>(i) * step + 0.1);
    };
    const float factor = static_cast<float>(std::pow(10.0, decade - 6));
    for (int i = 0; i < slices; ++i) {
      const float value = factor * ((edge(i) + edge(i + 1)) / 2.0F);
      codebook[count++] = value;
      codebook[count++] = -value;
    }
  }
  assert(count == codebook.size());
  std::ranges::sort(codebook);
  return codebook;
}

float nf4At(const WeightView& weight, std::int64_t index) {
  const auto byte = std::to_integer<unsigned>(weight.data[index / 2]);
  const unsigned code = index % 2 == 0 ? byte >> 4U : byte & 15U;
  const std::int64_t block = index / kNf4BlockSize;
  const float absmax = weight.absmax != nullptr
                           ? weight.absmax[block]
                           : weight.nestedCodebook[weight.absmaxCodes[block]] *
                                     weight.nestedAbsmax[block / kNf4NestedBlockSize] +
                                 weight.nestedOffset;
  return weight.codebook[code] * absmax;
}

}  // namespace

const std::array<float, 256>& dynamicCodebook() {
  static const std::array<float, 256> codebook = makeDynamicCodebook();
  return codebook;
}

void quantizeNf4(std::span<const float> values, std::span<std::uint8_t> codes,
                 std::span<float> absmax) {
  static const auto midpoints = midpointsOf(kNf4Codebook);
  constexpr auto kBlock = static_cast<std::size_t>(kNf4BlockSize);
  assert(codes.size() == (values.size() + 1) / 2);
  assert(absmax.size() == (values.size() + kBlock - 1) / kBlock);
  for (std::size_t block = 0; block < absmax.size(); ++block) {
    const std::size_t first = block * kBlock;
    const auto part = values.subspan(first, std::min(kBlock, values.size() - first));
    absmax[block] = largestMagnitude(part);
    const float inverse = reciprocalOrZero(absmax[block]);
    // Counting against every midpoint has no branch, so it runs in SIMD: a search in the table is
    // mispredicted all the time, and made loading take 5 times as long.
    std::array<float, kBlock> scaled{};
    for (std::size_t i = 0; i < part.size(); ++i) scaled[i] = part[i] * inverse;
    std::array<std::uint32_t, kBlock> counts{};
    for (const float midpoint : midpoints) {
      for (std::size_t i = 0; i < kBlock; ++i) counts[i] += midpoint < scaled[i] ? 1U : 0U;
    }
    if (part.size() % 2 != 0) counts[part.size()] = kPaddingCode;
    for (std::size_t i = 0; i < part.size(); i += 2) {
      codes[(first + i) / 2] = static_cast<std::uint8_t>(counts[i] << 4U | counts[i + 1]);
    }
  }
}

float quantizeAbsmax(std::span<const float> absmax, std::span<std::uint8_t> absmaxCodes,
                     std::span<float> nestedAbsmax) {
  static const auto midpoints = midpointsOf(dynamicCodebook());
  constexpr auto kBlock = static_cast<std::size_t>(kNf4NestedBlockSize);
  assert(!absmax.empty() && absmaxCodes.size() == absmax.size());
  assert(nestedAbsmax.size() == (absmax.size() + kBlock - 1) / kBlock);
  double sum = 0.0;
  for (const float value : absmax) sum += static_cast<double>(value);
  const float offset = static_cast<float>(sum / static_cast<double>(absmax.size()));
  for (std::size_t block = 0; block < nestedAbsmax.size(); ++block) {
    const std::size_t first = block * kBlock;
    const std::size_t end = std::min(first + kBlock, absmax.size());
    float largest = 0.0F;
    for (std::size_t i = first; i < end; ++i) {
      largest = std::max(largest, std::fabs(absmax[i] - offset));
    }
    nestedAbsmax[block] = largest;
    const float inverse = reciprocalOrZero(largest);
    for (std::size_t i = first; i < end; ++i) {
      absmaxCodes[i] = nearestCode(midpoints, (absmax[i] - offset) * inverse);
    }
  }
  return offset;
}

float weightAt(const WeightView& weight, std::int64_t row, std::int64_t col) {
  assert(row >= 0 && row < weight.rows && col >= 0 && col < weight.cols);
  const std::int64_t index = row * weight.cols + col;
  switch (weight.type) {
    case DataType::kF32:
      return readFloat(weight.data + index * 4);
    case DataType::kF16:
      return halfToFloat(readHalf(weight.data + index * 2));
    case DataType::kBF16:
      return bfloatToFloat(readHalf(weight.data + index * 2));
    case DataType::kNf4:
      return nf4At(weight, index);
    case DataType::kInt8:
      return static_cast<float>(static_cast<std::int8_t>(weight.data[index])) *
             weight.scales[index / kInt8BlockSize];
  }
  return 0.0F;
}

void dequantizeRow(const WeightView& weight, std::int64_t row, float* output) {
  for (std::int64_t col = 0; col < weight.cols; ++col) output[col] = weightAt(weight, row, col);
}

}  // namespace longhand::kernels
