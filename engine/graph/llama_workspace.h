#pragma once
// The memory a chunk needs while it goes through the layers. Its size is what a memory plan
// forecasts, from the same lines that lay it out.

#include <cstdint>

#include "engine/base/memory_ledger.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"
#include "kernels/kv_types.h"

namespace longhand::engine {

/// Which positions of a chunk get logits.
enum class LogitsWanted { kNone, kLast, kAll };

struct WorkspaceShape {
  std::int64_t chunkTokens = 0;
  std::int64_t tileTokens = 0;
  LogitsWanted logits = LogitsWanted::kNone;
  kernels::DataType exactType = kernels::DataType::kF16;  // of the cache

  bool operator==(const WorkspaceShape&) const = default;
};

struct LlamaWorkspace {
  WorkspaceShape shape;
  BackendBuffer memory;

  kernels::MatrixView hidden;     // [chunk, hiddenSize]
  kernels::ExactSpan chunkKv;     // keys and values of one layer: [nKvHeads, chunk, headDim] each
  kernels::MatrixView normed;     // [tile, hiddenSize]
  kernels::MatrixView query;      // [tile, nHeads * headDim]
  kernels::MatrixView key;        // [tile, nKvHeads * headDim]
  kernels::MatrixView value;      // [tile, nKvHeads * headDim]
  kernels::MatrixView attention;  // [tile, nHeads * headDim]
  kernels::MatrixView gate;       // [tile, intermediateSize]
  kernels::MatrixView up;         // [tile, intermediateSize]
  kernels::MatrixView logits;     // [tile, or 1, or 0, vocabSize]
};

/// Throws Error kOutOfMemory.
LlamaWorkspace makeWorkspace(kernels::Backend& backend, MemoryLedger& ledger,
                             const ModelConfig& config, const WorkspaceShape& shape);
std::uint64_t workspaceBytes(const ModelConfig& config, const WorkspaceShape& shape);
/// The most that a prefill chunk allocates: workspace with the largest tile and the logits of the
/// last position, and the rope table.
std::uint64_t prefillChunkBytes(const ModelConfig& config, kernels::DataType exactType,
                                std::int64_t chunkTokens);

/// Tokens that go through a layer at once, so that a tile takes about 0.3 seconds: fewer
/// where the tokens before them (`depth`) make attention long.
std::int64_t tileTokensFor(const ModelConfig& config, std::int64_t chunkTokens, std::int64_t depth,
                           double operationsPerSecond);

}  // namespace longhand::engine
