#include "engine/model/weight_converter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "kernels/half.h"
#include "kernels/int8_weights.h"
#include "kernels/nf4.h"

namespace longhand::engine {
namespace {

using kernels::DataType;
using kernels::WeightView;

// Values of a chunk: 1 MiB of floats stay in the cache, and take a few milliseconds.
constexpr std::int64_t kChunkValues = 256 * 1024;

constexpr auto kBlockSize = static_cast<std::size_t>(kernels::kNf4BlockSize);  // int8's, too

std::size_t blocksOf(std::size_t nValues) { return (nValues + kBlockSize - 1) / kBlockSize; }

/// Rows of a chunk, such that every chunk begins at an NF4 block.
std::int64_t rowsOfChunk(std::int64_t cols) {
  const std::int64_t unit = kernels::kNf4BlockSize / std::gcd(kernels::kNf4BlockSize, cols);
  return std::max<std::int64_t>(1, kChunkValues / (cols * unit)) * unit;
}

std::uint16_t readHalf(const std::byte* at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Rows [first, first + count) as floats, [count, cols].
void readRows(const WeightView& view, std::int64_t first, std::int64_t count, float* output) {
  const std::int64_t n = count * view.cols;
  const std::byte* at = view.data + kernels::bytesOf(view.type, first * view.cols);
  switch (view.type) {
    case DataType::kF32:
      std::memcpy(output, at, kernels::bytesOf(view.type, n));
      break;
    case DataType::kF16:
      for (std::int64_t i = 0; i < n; ++i) output[i] = kernels::halfToFloat(readHalf(at + 2 * i));
      break;
    case DataType::kBF16:
      for (std::int64_t i = 0; i < n; ++i) output[i] = kernels::bfloatToFloat(readHalf(at + 2 * i));
      break;
    case DataType::kInt8:
    case DataType::kNf4:
      for (std::int64_t row = 0; row < count; ++row) {
        kernels::dequantizeRow(view, first + row, output + row * view.cols);
      }
      break;
  }
}

void checkFinite(std::span<const float> values, const SourceTensor& source) {
  if (std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) return;
  throw Error(ErrorCode::kFileDamaged, source.where + " holds values that are no finite numbers.",
              "Download the file again.");
}

void writeHalves(std::span<const float> values, std::byte* at, const SourceTensor& source) {
  constexpr std::uint16_t kInfinity = 0x7c00;
  for (const float value : values) {
    const std::uint16_t half = kernels::floatToHalf(value);
    if ((half & kInfinity) == kInfinity) {
      throw Error(ErrorCode::kUnsupportedModel,
                  source.where + " holds " + std::to_string(value) +
                      ", which is too large for 16-bit floating point.",
                  "Load the model with F32 or BF16 weights.");
    }
    std::memcpy(at, &half, sizeof half);
    at += sizeof half;
  }
}

void writeBfloats(std::span<const float> values, std::byte* at) {
  for (const float value : values) {
    const std::uint16_t bfloat = kernels::floatToBfloat(value);
    std::memcpy(at, &bfloat, sizeof bfloat);
    at += sizeof bfloat;
  }
}

/// Parts of an NF4 weight at `memory`.
struct Nf4Parts {
  Nf4Parts(const WeightTarget& target, const WeightView& view, std::byte* memory)
      : layout(weightLayout(target, view.rows, view.cols)),
        codes(reinterpret_cast<std::uint8_t*>(memory), layout.dataBytes),
        absmaxMemory(memory + layout.absmaxOffset),
        nestedMemory(memory + layout.nestedOffset) {}

  std::span<float> absmax() const {
    return {static_cast<float*>(static_cast<void*>(absmaxMemory)),
            static_cast<std::size_t>(layout.nBlocks)};
  }
  std::span<std::uint8_t> absmaxCodes() const {
    return {reinterpret_cast<std::uint8_t*>(absmaxMemory),
            static_cast<std::size_t>(layout.nBlocks)};
  }
  std::span<float> nestedAbsmax() const {
    return {static_cast<float*>(static_cast<void*>(nestedMemory)),
            static_cast<std::size_t>(layout.nNestedBlocks)};
  }

  WeightLayout layout;
  std::span<std::uint8_t> codes;
  std::byte* absmaxMemory;
  std::byte* nestedMemory;
};

/// Puts the absmax of all blocks where the target wants them.
void storeAbsmax(std::span<const float> absmax, bool doubleQuantization, const Nf4Parts& parts,
                 WeightView& view) {
  if (doubleQuantization) {
    view.nestedOffset = kernels::quantizeAbsmax(absmax, parts.absmaxCodes(), parts.nestedAbsmax());
    view.nestedCodebook = kernels::dynamicCodebook().data();
  } else if (absmax.data() != parts.absmax().data()) {
    std::copy(absmax.begin(), absmax.end(), parts.absmax().begin());
  }
}

/// Reads the source chunk by chunk, on several threads, and calls quantizeValues(values, first,
/// firstBlock) for each: `values` are finite, `first` is their index in the flattened matrix, and
/// they begin at block `firstBlock`.
template <typename QuantizeValues>
void forChunksOfBlocks(const SourceTensor& source, ChunkRunner& runner,
                       const QuantizeValues& quantizeValues) {
  static_assert(kernels::kNf4BlockSize == kernels::kInt8BlockSize);
  const WeightView& from = source.view;
  const std::int64_t step = rowsOfChunk(from.cols);
  runner.run((from.rows + step - 1) / step, source.fileBytes, [&](std::int64_t chunk) {
    const std::int64_t firstRow = chunk * step;
    const std::int64_t nRows = std::min(step, from.rows - firstRow);
    std::vector<float> values(static_cast<std::size_t>(nRows * from.cols));
    readRows(from, firstRow, nRows, values.data());
    checkFinite(values, source);
    const auto first = static_cast<std::size_t>(firstRow * from.cols);
    quantizeValues(std::span<const float>(values), first, first / kBlockSize);
  });
}

WeightView quantizeToNf4(const SourceTensor& source, const WeightTarget& target,
                         std::byte* destination, ChunkRunner& runner) {
  const WeightView& from = source.view;
  const Nf4Parts parts(target, from, destination);
  std::vector<float> ownAbsmax;  // double quantization needs the mean of all before any is stored
  if (target.doubleQuantization) ownAbsmax.resize(static_cast<std::size_t>(parts.layout.nBlocks));
  const std::span<float> absmax = target.doubleQuantization ? ownAbsmax : parts.absmax();
  forChunksOfBlocks(source, runner,
                    [&](std::span<const float> values, std::size_t first, std::size_t firstBlock) {
                      kernels::quantizeNf4(values,
                                           parts.codes.subspan(first / 2, (values.size() + 1) / 2),
                                           absmax.subspan(firstBlock, blocksOf(values.size())));
                    });
  WeightView view = viewOf(target, from.rows, from.cols, destination);
  view.codebook = kernels::kNf4Codebook.data();
  storeAbsmax(absmax, target.doubleQuantization, parts, view);
  return view;
}

WeightView quantizeToInt8(const SourceTensor& source, std::byte* destination, ChunkRunner& runner) {
  const WeightView& from = source.view;
  const WeightTarget target{DataType::kInt8};
  const WeightLayout layout = weightLayout(target, from.rows, from.cols);
  const std::span codes(reinterpret_cast<std::int8_t*>(destination), layout.dataBytes);
  const std::span scales(static_cast<float*>(static_cast<void*>(destination + layout.absmaxOffset)),
                         static_cast<std::size_t>(layout.nBlocks));
  forChunksOfBlocks(source, runner,
                    [&](std::span<const float> values, std::size_t first, std::size_t firstBlock) {
                      kernels::quantizeInt8(values, codes.subspan(first, values.size()),
                                            scales.subspan(firstBlock, blocksOf(values.size())));
                    });
  return viewOf(target, from.rows, from.cols, destination);
}

/// From NF4 to NF4: the codes stay.
WeightView repack(const SourceTensor& source, const WeightTarget& target, std::byte* destination,
                  ChunkRunner& runner) {
  const WeightView& from = source.view;
  const Nf4Parts parts(target, from, destination);
  std::memcpy(parts.codes.data(), from.data, parts.codes.size());
  WeightView view = viewOf(target, from.rows, from.cols, destination);
  view.codebook = from.codebook;
  const auto nBlocks = static_cast<std::size_t>(parts.layout.nBlocks);
  if (target.doubleQuantization && from.absmax == nullptr) {
    std::copy_n(from.absmaxCodes, nBlocks, parts.absmaxCodes().data());
    std::copy_n(from.nestedAbsmax, parts.nestedAbsmax().size(), parts.nestedAbsmax().data());
    view.nestedCodebook = from.nestedCodebook;
    view.nestedOffset = from.nestedOffset;
  } else {
    std::vector<float> absmax(nBlocks);
    for (std::size_t block = 0; block < nBlocks; ++block) {
      constexpr auto kNested = static_cast<std::size_t>(kernels::kNf4NestedBlockSize);
      absmax[block] = from.absmax != nullptr ? from.absmax[block]
                                             : from.nestedCodebook[from.absmaxCodes[block]] *
                                                       from.nestedAbsmax[block / kNested] +
                                                   from.nestedOffset;
    }
    checkFinite(absmax, source);
    storeAbsmax(absmax, target.doubleQuantization, parts, view);
  }
  runner.advance(source.fileBytes);
  return view;
}

WeightView convertPlain(const SourceTensor& source, DataType type, std::byte* destination,
                        ChunkRunner& runner) {
  const WeightView& from = source.view;
  const std::int64_t step = rowsOfChunk(from.cols);
  runner.run((from.rows + step - 1) / step, source.fileBytes, [&](std::int64_t chunk) {
    const std::int64_t firstRow = chunk * step;
    const std::int64_t nRows = std::min(step, from.rows - firstRow);
    std::byte* at = destination + kernels::bytesOf(type, firstRow * from.cols);
    if (from.type == type) {
      std::memcpy(at, from.data + kernels::bytesOf(type, firstRow * from.cols),
                  kernels::bytesOf(type, nRows * from.cols));
      return;
    }
    std::vector<float> values(static_cast<std::size_t>(nRows * from.cols));
    readRows(from, firstRow, nRows, values.data());
    checkFinite(values, source);
    if (type == DataType::kF32) {
      std::memcpy(at, values.data(), values.size() * sizeof(float));
    } else if (type == DataType::kF16) {
      writeHalves(values, at, source);
    } else {
      writeBfloats(values, at);
    }
  });
  return viewOf({type}, from.rows, from.cols, destination);
}

}  // namespace

kernels::WeightView convertWeight(const SourceTensor& source, const WeightTarget& target,
                                  std::byte* destination, ChunkRunner& runner) {
  WeightView view;
  if (target.type == DataType::kInt8) {
    view = quantizeToInt8(source, destination, runner);
  } else if (target.type != DataType::kNf4) {
    view = convertPlain(source, target.type, destination, runner);
  } else if (source.view.type == DataType::kNf4) {
    view = repack(source, target, destination, runner);
  } else {
    view = quantizeToNf4(source, target, destination, runner);
  }
  forgetMapped(source.bytes);
  return view;
}

}  // namespace longhand::engine
