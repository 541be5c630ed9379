#include "kernels/cuda/weights/tiled_matmul.h"

#include <algorithm>
#include <cassert>

#include "kernels/cuda/weights/weight_tiles.h"

namespace longhand::kernels::cuda {
namespace {

constexpr std::int64_t kHalfBytes = 2;

std::int64_t depthOf(std::int64_t cols) {
  return (cols + kHalfRowMultiple - 1) / kHalfRowMultiple * kHalfRowMultiple;
}

/// Halves that lie as the product wants them need no copy.
bool isHalfTile(const WeightView& weight) {
  return weight.type == DataType::kF16 && weight.cols % kHalfRowMultiple == 0 &&
         reinterpret_cast<std::uintptr_t>(weight.data) % 16 == 0;
}

std::int64_t rowsThatFit(std::size_t bytes, std::int64_t depth) {
  return static_cast<std::int64_t>(bytes) / (depth * kHalfBytes);
}

}  // namespace

bool TiledMatmul::start(const TiledMatmulOptions& options, cudaStream_t stream) {
  stream_ = stream;
  scratch_ = allocateDevice(options.scratchBytes);
  if (scratch_ == nullptr) return false;
  scratchBytes_ = options.scratchBytes;
  if (!options.usesCublas) return true;
  workspace_ = allocateDevice(options.workspaceBytes);
  if (workspace_ == nullptr) return false;
  cublas_ = Cublas::load(stream, workspace_.get(), options.workspaceBytes);
  if (cublas_ == nullptr) {
    workspace_ = nullptr;
  } else {
    workspaceBytes_ = options.workspaceBytes;
  }
  return true;
}

bool TiledMatmul::canMultiply(const WeightView& weight) const {
  const std::int64_t depth = depthOf(weight.cols);
  return weight.cols > 0 && rowsThatFit(weightBytes(), depth) > 0 &&
         rowsThatFit(inputBytes(), depth) > 0;
}

void TiledMatmul::multiply(const MatrixView& input, const WeightView& weight,
                           const MatrixView& output, bool accumulate) {
  assert(canMultiply(weight));
  const std::int64_t depth = depthOf(weight.cols);
  const bool isDirect = isHalfTile(weight);
  const std::int64_t tileRows =
      isDirect ? weight.rows : std::min(weight.rows, rowsThatFit(weightBytes(), depth));
  const std::int64_t tileTokens = std::min(input.rows, rowsThatFit(inputBytes(), depth));
  const bool isOneTile = tileTokens == input.rows;

  for (std::int64_t row = 0; row < weight.rows; row += tileRows) {
    const std::int64_t nRows = std::min(tileRows, weight.rows - row);
    const std::byte* tile = weight.data + row * depth * kHalfBytes;
    if (!isDirect) {
      launchExpandWeight(weight, row, nRows, depth, scratch_.get(), stream_);
      tile = scratch_.get();
    }
    for (std::int64_t token = 0; token < input.rows; token += tileTokens) {
      const MatrixView tokens = input.slice(token, std::min(tileTokens, input.rows - token));
      if (!isOneTile || row == 0) launchRoundRows(tokens, depth, inputScratch(), stream_);
      const HalfProduct product{
          inputScratch(), tile,      output.data + token * output.stride + row,
          tokens.rows,    nRows,     depth,
          output.stride,  accumulate};
      if (cublas_ == nullptr || !cublas_->multiply(product)) launchHalfGemm(product, stream_);
    }
  }
}

}  // namespace longhand::kernels::cuda
