#include "engine/graph/llama_workspace.h"

#include <algorithm>

#include "engine/cache/kv_arena.h"
#include "engine/graph/rope.h"
#include "kernels/rounding.h"

namespace longhand::engine {
namespace {

using kernels::MatrixView;

constexpr std::uint64_t kAlignmentBytes = 64;
constexpr double kTileSeconds = 0.3;  // progress and cancel come twice in it
constexpr std::int64_t kMinTileTokens = 4;
constexpr std::int64_t kMaxTileTokens = 256;

/// Takes parts of one block of memory in turn; without memory it only counts.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  std::byte* take(std::uint64_t bytes) {
    std::byte* part = memory_ == nullptr ? nullptr : memory_ + usedBytes_;
    usedBytes_ += kernels::roundUp(bytes, kAlignmentBytes);
    return part;
  }
  MatrixView matrix(std::int64_t rows, std::int64_t cols) {
    void* data = take(static_cast<std::uint64_t>(rows * cols) * sizeof(float));
    return {static_cast<float*>(data), rows, cols, cols};
  }
  std::uint64_t usedBytes() const { return usedBytes_; }

 private:
  std::byte* memory_;
  std::uint64_t usedBytes_ = 0;
};

std::int64_t logitRows(const WorkspaceShape& shape) {
  switch (shape.logits) {
    case LogitsWanted::kNone:
      return 0;
    case LogitsWanted::kLast:
      return 1;
    case LogitsWanted::kAll:
      break;
  }
  return shape.tileTokens;
}

void layOut(LlamaWorkspace& workspace, const ModelConfig& config, Carver& carver) {
  const WorkspaceShape& shape = workspace.shape;
  const std::int64_t chunk = shape.chunkTokens;
  const std::int64_t tile = shape.tileTokens;
  const std::int64_t queryWidth = config.nHeads * config.headDim;
  const std::int64_t keyWidth = config.nKvHeads * config.headDim;
  const std::uint64_t kvBytes = kernels::bytesOf(shape.exactType, chunk * keyWidth);
  workspace.hidden = carver.matrix(chunk, config.hiddenSize);
  std::byte* keys = carver.take(kvBytes);
  std::byte* values = carver.take(kvBytes);
  workspace.chunkKv = {shape.exactType, keys, values, chunk, chunk};
  workspace.normed = carver.matrix(tile, config.hiddenSize);
  workspace.query = carver.matrix(tile, queryWidth);
  workspace.key = carver.matrix(tile, keyWidth);
  workspace.value = carver.matrix(tile, keyWidth);
  workspace.attention = carver.matrix(tile, queryWidth);
  workspace.gate = carver.matrix(tile, config.intermediateSize);
  workspace.up = carver.matrix(tile, config.intermediateSize);
  workspace.logits = carver.matrix(logitRows(shape), config.vocabSize);
}

}  // namespace

std::uint64_t workspaceBytes(const ModelConfig& config, const WorkspaceShape& shape) {
  LlamaWorkspace workspace;
  workspace.shape = shape;
  Carver counter(nullptr);
  layOut(workspace, config, counter);
  return counter.usedBytes();
}

std::uint64_t prefillChunkBytes(const ModelConfig& config, kernels::DataType exactType,
                                std::int64_t chunkTokens) {
  const WorkspaceShape shape{chunkTokens, std::min(chunkTokens, kMaxTileTokens),
                             LogitsWanted::kLast, exactType};
  return workspaceBytes(config, shape) + ropeTableBytes(config.headDim, chunkTokens);
}

LlamaWorkspace makeWorkspace(kernels::Backend& backend, MemoryLedger& ledger,
                             const ModelConfig& config, const WorkspaceShape& shape) {
  const std::uint64_t bytes = workspaceBytes(config, shape);
  requireFreeMemory(backend, bytes);
  LlamaWorkspace workspace;
  workspace.shape = shape;
  workspace.memory = BackendBuffer(backend, ledger, MemoryCategory::kWorkspace, bytes);
  Carver carver(workspace.memory.data());
  layOut(workspace, config, carver);
  return workspace;
}

std::int64_t tileTokensFor(const ModelConfig& config, std::int64_t chunkTokens, std::int64_t depth,
                           double operationsPerSecond) {
  const auto hidden = static_cast<double>(config.hiddenSize);
  const auto queryWidth = static_cast<double>(config.nHeads * config.headDim);
  const auto keyWidth = static_cast<double>(config.nKvHeads * config.headDim);
  const double weights = hidden * (2.0 * queryWidth + 2.0 * keyWidth) +
                         3.0 * hidden * static_cast<double>(config.intermediateSize);
  // One multiplication and one addition for each weight and each channel of a cached key or value.
  const double operations = 2.0 * weights + 4.0 * queryWidth * static_cast<double>(depth);
  const double fitting = operationsPerSecond * kTileSeconds / operations;
  const auto tile = static_cast<std::int64_t>(std::min(fitting, double{kMaxTileTokens}));
  const std::int64_t whole = tile / kMinTileTokens * kMinTileTokens;
  return std::min(chunkTokens, std::max(whole, kMinTileTokens));
}

}  // namespace longhand::engine
