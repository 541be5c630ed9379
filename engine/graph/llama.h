#pragma once
// The Llama graph (Touvron et al. 2023), written once for every backend.
//
// A chunk of tokens goes through layer by layer (all its tokens through layer 0, then through layer
// 1, ...), inside a layer by tiles of tokens. So the exact keys and values of ONE layer are enough
// for attention that is exact within the chunk, and quantization touches a chunk's tokens only when
// their layer is done. Decode is a chunk of one token through the same code.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>

#include "engine/base/memory_ledger.h"
#include "engine/cache/kv_cache.h"
#include "engine/graph/llama_workspace.h"
#include "engine/graph/rope.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace longhand::engine {

/// One chunk of work. Callbacks run on the caller's thread and may be empty; what they throw rolls
/// the chunk back and goes on to the caller.
struct Chunk {
  std::span<const std::int32_t> tokens;  // [n > 0], each in [0, vocabSize)
  /// Tokens of the whole prompt that this chunk is a part of: with dynamic RoPE scaling the
  /// frequencies depend on it, and then not on how the prompt is cut. 0: up to the chunk's end.
  std::int64_t sequenceLength = 0;
  LogitsWanted logits = LogitsWanted::kNone;
  /// Rows [firstToken, firstToken + nRows) of the chunk; logits [nRows, vocabSize] on the host.
  std::function<void(std::int64_t firstToken, std::int64_t nRows, std::span<const float> logits)>
      onLogits;
  /// With nBestLogits > 0, of each row that gets logits only that many are brought to the host,
  /// best first, as Backend::topLogits finds them, and onLogits is not called.
  std::int64_t nBestLogits = 0;
  std::function<void(std::int64_t token, std::span<const kernels::ScoredToken> best)> onBestLogits;
  /// Hidden states [n, hiddenSize] on the host: index 0 embeddings, l the output of layer l.
  std::function<void(std::int64_t index, std::span<const float> hidden)> onHidden;
  /// Tokens x layers done / layers, twice for each tile.
  std::function<void(double tokensDone)> onProgress;
  std::stop_token stop;  // asked as often
};

/// Not thread-safe. The backend, the ledger and the model must outlive it.
class Llama {
 public:
  /// `config` is the model's, where the user may have chosen another rope setting.
  Llama(kernels::Backend& backend, MemoryLedger& ledger, const Model& model,
        const ModelConfig& config);

  /// Computes the chunk's tokens behind those in the cache and adds them to it. False: cancelled;
  /// the cache is then as before. Throws Error kOutOfMemory or kDevice, with the cache as before.
  bool forward(KvCache& cache, const Chunk& chunk);

 private:
  void prepareWorkspace(const KvCache& cache, const Chunk& chunk);
  bool runLayers(KvCache& cache, const Chunk& chunk);
  void runAttention(const LayerWeights& layer, const kernels::KvView& history,
                    const kernels::ExactSpan& chunkKv, std::int64_t firstPosition,
                    std::int64_t firstToken, std::int64_t nTokens);
  void runMlp(const LayerWeights& layer, std::int64_t firstToken, std::int64_t nTokens);
  void emitHidden(const Chunk& chunk, std::int64_t index);
  bool emitLogits(const Chunk& chunk);
  void emitBestLogits(const Chunk& chunk, std::int64_t firstToken,
                      const kernels::MatrixView& logits);

  kernels::Backend& backend_;
  MemoryLedger& ledger_;
  const Model& model_;
  ModelConfig config_;
  RopeTable rope_;
  std::optional<LlamaWorkspace> workspace_;  // kept for the next chunk of the same shape
};

}  // namespace longhand::engine
