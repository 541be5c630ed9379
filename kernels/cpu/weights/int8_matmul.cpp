#include "kernels/cpu/weights/int8_matmul.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "kernels/rounding.h"

namespace longhand::kernels {
namespace {

// Blocks of a panel that are expanded at a time: 64 rows x 8 blocks are 32 KiB of bytes, which stay
// in L1 beside the inputs of 6 tokens (3 KiB).
constexpr std::int64_t kTileBlocks = 8;
// With fewer panels than this, tokens are split as well, so that 16 threads are busy ...
constexpr std::int64_t kWantedItems = 32;
// ... but not so far that expanding the weight again for each part would cost much (about as much
// as 5 tokens).
constexpr std::int64_t kMinPartTokens = 96;
// Tokens that a thread rounds at a time.
constexpr std::int64_t kQuantizeNumbers = 16 * 1024;

// step * absmax (or scale) of `count` blocks from `firstBlock` (of the flattened matrix) on, to
// every `stride`-th number of `scales`.
void expandScales(const WeightView& weight, float step, std::int64_t firstBlock, std::int64_t count,
                  std::int64_t stride, float* scales) {
  const float* const plain = weight.type == DataType::kInt8 ? weight.scales : weight.absmax;
  if (plain != nullptr) {
    for (std::int64_t b = 0; b < count; ++b) scales[b * stride] = step * plain[firstBlock + b];
    return;
  }
  const std::uint8_t* const codes = weight.absmaxCodes + firstBlock;
  const float* const codebook = weight.nestedCodebook;
  const float offset = step * weight.nestedOffset;
  for (std::int64_t b = 0; b < count;) {
    const std::int64_t nested = (firstBlock + b) / kNf4NestedBlockSize;
    const float factor = step * weight.nestedAbsmax[nested];
    const std::int64_t end = std::min(count, (nested + 1) * kNf4NestedBlockSize - firstBlock);
    for (; b < end; ++b) scales[b * stride] = codebook[codes[b]] * factor + offset;
  }
}

}  // namespace

Int8Codebook roundCodebook(const float* codebook) {
  double largest = 0;
  for (int i = 0; i < 16; ++i) largest = std::max(largest, std::abs(double{codebook[i]}));
  Int8Codebook best;
  if (largest == 0) {
    best.bytes.fill(128);
    return best;
  }
  double leastError = 0;
  constexpr int kCandidates = 1024;
  for (int candidate = 0; candidate < kCandidates; ++candidate) {
    const double step = largest / (64.0 + 63.0 * (candidate + 1) / kCandidates);
    Int8Codebook rounded;
    rounded.step = static_cast<float>(step);
    double error = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      const double number = std::nearbyint(double{codebook[i]} / step);
      error += std::pow(number * step - double{codebook[i]}, 2);
      rounded.bytes[i] = static_cast<std::uint8_t>(128 + static_cast<int>(number));
    }
    if (candidate > 0 && error >= leastError) continue;
    leastError = error;
    best = rounded;
  }
  return best;
}

struct Int8Matmul::Slab {
  Int8Input input;  // of all blocks
  const WeightView& weight;
  MatrixView output;
  bool accumulate;
};

void* Int8Matmul::Scratch::reserve(std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(ceilDivide(bytes, std::ssize(Line{}.bytes)));
  if (lines_.size() < count) lines_.resize(count);
  return lines_.data();
}

Int8Matmul::Int8Matmul(const Int8Kernels& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), panels_(static_cast<std::size_t>(pool.threads())) {}

bool Int8Matmul::accepts(const WeightView& weight) {
  static_assert(kNf4BlockSize == kInt8BlockSize);
  return isQuantized(weight.type) && weight.cols % kNf4BlockSize == 0;
}

void Int8Matmul::multiply(const MatrixView& input, std::span<const Projection> projections,
                          bool accumulate) {
  for (std::int64_t first = 0; first < input.rows; first += kSlabTokens) {
    const std::int64_t count = std::min(kSlabTokens, input.rows - first);
    const Int8Input bytes = quantize(input.slice(first, count));
    for (const auto& [weight, output] : projections) {
      assert(accepts(weight) && input.cols == weight.cols && output.cols == weight.rows);
      if (weight.type == DataType::kNf4) prepareCodebook(weight.codebook);
      multiplySlab({bytes, weight, output.slice(first, count), accumulate});
    }
  }
}

void Int8Matmul::prepareCodebook(const float* codebook) {
  if (codebookStep_ != 0 && std::equal(codebook_.begin(), codebook_.end(), codebook)) return;
  std::copy_n(codebook, 16, codebook_.begin());
  const Int8Codebook rounded = roundCodebook(codebook);
  codebookBytes_ = rounded.bytes;
  codebookStep_ = rounded.step;
}

Int8Input Int8Matmul::quantize(const MatrixView& input) {
  const std::int64_t nBlocks = input.cols / kNf4BlockSize;
  const std::int64_t count = nBlocks * input.rows;
  Int8Input bytes;
  bytes.values = static_cast<std::int8_t*>(values_.reserve(count * kNf4BlockSize));
  bytes.scales = static_cast<float*>(scales_.reserve(count * std::int64_t{sizeof(float)}));
  bytes.corrections =
      static_cast<std::int32_t*>(corrections_.reserve(count * std::int64_t{sizeof(std::int32_t)}));
  bytes.nBlocks = nBlocks;
  bytes.nTokens = input.rows;
  const std::int64_t grain =
      ceilDivide(kQuantizeNumbers, input.cols * kernels_.groupTokens) * kernels_.groupTokens;
  pool_.parallelFor(input.rows, grain, [&](int, std::int64_t first, std::int64_t last) {
    kernels_.quantizeInput(input.data, input.stride, bytes, first, last);
  });
  return bytes;
}

void Int8Matmul::multiplySlab(const Slab& slab) {
  const std::int64_t nTokens = slab.output.rows;
  const std::int64_t nGroups = ceilDivide(nTokens, kernels_.groupTokens);
  const std::int64_t nPanels = ceilDivide(slab.weight.rows, kernels_.panelRows);
  const std::int64_t nParts = std::max<std::int64_t>(
      1, std::min(ceilDivide(kWantedItems, nPanels), nTokens / kMinPartTokens));
  const auto firstTokenOf = [&](std::int64_t part) {
    return std::min(nTokens, nGroups * part / nParts * kernels_.groupTokens);
  };
  pool_.parallelFor(nPanels * nParts, 1, [&](int thread, std::int64_t first, std::int64_t last) {
    for (std::int64_t item = first; item < last; ++item) {
      const std::int64_t part = item % nParts;
      multiplyItem(slab, item / nParts, firstTokenOf(part), firstTokenOf(part + 1),
                   panels_[static_cast<std::size_t>(thread)]);
    }
  });
}

void Int8Matmul::multiplyItem(const Slab& slab, std::int64_t panel, std::int64_t firstToken,
                              std::int64_t lastToken, Scratch& scratch) const {
  const WeightView& weight = slab.weight;
  const std::int64_t nBlocks = weight.cols / kNf4BlockSize;
  const std::int64_t panelRows = kernels_.panelRows;
  const std::int64_t firstRow = panel * panelRows;
  const std::int64_t nRows = std::min(panelRows, weight.rows - firstRow);
  const std::int64_t weightBytes = kTileBlocks * kNf4BlockSize * panelRows;
  const std::int64_t scaleBytes = kTileBlocks * panelRows * std::int64_t{sizeof(float)};
  auto* const bytes = static_cast<std::uint8_t*>(scratch.reserve(weightBytes + scaleBytes));
  auto* const scales = static_cast<float*>(static_cast<void*>(bytes + weightBytes));
  const auto* const codes = static_cast<const std::uint8_t*>(static_cast<const void*>(weight.data));

  const bool isNf4 = weight.type == DataType::kNf4;
  const std::int64_t blockBytes = static_cast<std::int64_t>(bytesOf(weight.type, kNf4BlockSize));
  const std::int64_t rowBytes = nBlocks * blockBytes;
  // The panel that this thread will most likely take next is as many away as there are threads.
  const std::int64_t nextPanelRow = firstRow + pool_.threads() * panelRows;
  const auto tileAt = [&](std::int64_t row, std::int64_t block) {
    return Int8Prefetch{
        .codes = codes + row * rowBytes + block * blockBytes,
        .rowBytes = rowBytes,
        .nRows = std::clamp<std::int64_t>(weight.rows - row, 0, panelRows),
        .count = std::min(kTileBlocks, nBlocks - block) * blockBytes,
    };
  };
  const auto expandPanel = isNf4 ? kernels_.expandNf4Panel : kernels_.expandInt8Panel;

  for (std::int64_t firstBlock = 0; firstBlock < nBlocks; firstBlock += kTileBlocks) {
    const std::int64_t tileBlocks = std::min(kTileBlocks, nBlocks - firstBlock);
    expandPanel({.codes = codes + firstRow * rowBytes + firstBlock * blockBytes,
                 .rowBytes = rowBytes,
                 .nRows = nRows,
                 .nBlocks = tileBlocks,
                 .codebook = codebookBytes_.data()},
                bytes);
    for (std::int64_t r = 0; r < panelRows; ++r) {
      const std::int64_t row = firstRow + std::min(r, nRows - 1);
      expandScales(weight, isNf4 ? codebookStep_ : 1.0F, row * nBlocks + firstBlock, tileBlocks,
                   panelRows, scales + r);
    }
    kernels_.multiplyPanel({.weights = bytes,
                            .weightScales = scales,
                            .nRows = nRows,
                            .nBlocks = tileBlocks,
                            .input = slab.input,
                            .firstBlock = firstBlock,
                            .firstToken = firstToken,
                            .lastToken = lastToken,
                            .output = slab.output.data + firstRow,
                            .outputStride = slab.output.stride,
                            .accumulate = slab.accumulate || firstBlock > 0,
                            .next = firstBlock + kTileBlocks < nBlocks
                                        ? tileAt(firstRow, firstBlock + kTileBlocks)
                                        : tileAt(nextPanelRow, 0)});
  }
}

}  // namespace longhand::kernels
