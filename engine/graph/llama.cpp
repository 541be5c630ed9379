#include "engine/graph/llama.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/device_fault.h"
#include "engine/base/error.h"

namespace longhand::engine {
namespace {

using kernels::ExactSpan;
using kernels::KvView;
using kernels::MatrixView;

/// A chunk of the cache that is rolled back unless all went well.
class ChunkTransaction {
 public:
  ChunkTransaction(KvCache& cache, std::int64_t nTokens) : cache_(cache) {
    cache.beginChunk(nTokens);
  }
  ChunkTransaction(const ChunkTransaction&) = delete;
  ChunkTransaction& operator=(const ChunkTransaction&) = delete;
  ~ChunkTransaction() {
    if (!isCommitted_) cache_.rollbackChunk();
  }
  void commit() {
    cache_.commitChunk();
    isCommitted_ = true;
  }

 private:
  KvCache& cache_;
  bool isCommitted_ = false;
};

/// A decode step of the backend, where `isStep`.
class StepScope {
 public:
  StepScope(kernels::Backend& backend, bool isStep) : backend_(backend), isStep_(isStep) {
    if (isStep_) backend_.beginStep();
  }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;
  ~StepScope() {
    if (isStep_) backend_.endStep();
  }

 private:
  kernels::Backend& backend_;
  bool isStep_;
};

std::vector<float> downloadRows(kernels::Backend& backend, const MatrixView& rows) {
  std::vector<float> host(static_cast<std::size_t>(rows.rows * rows.cols));
  const void* source = rows.data;
  const std::span<std::byte> destination = std::as_writable_bytes(std::span(host));
  backend.download(destination.data(), static_cast<const std::byte*>(source), destination.size());
  return host;
}

}  // namespace

Llama::Llama(kernels::Backend& backend, MemoryLedger& ledger, const Model& model,
             const ModelConfig& config)
    : backend_(backend),
      ledger_(ledger),
      model_(model),
      config_(config),
      rope_(backend, ledger, config.rope, config.headDim) {}

bool Llama::forward(KvCache& cache, const Chunk& chunk) {
  assert(!chunk.tokens.empty());
  const auto nTokens = static_cast<std::int64_t>(chunk.tokens.size());
  const std::int64_t end = cache.length() + nTokens;
  cache.reserve(end, nTokens);
  prepareWorkspace(cache, chunk);
  rope_.prepare(cache.length(), nTokens, std::max(chunk.sequenceLength, end));

  ChunkTransaction transaction(cache, nTokens);
  {
    const StepScope step(backend_, nTokens == 1);
    if (!runLayers(cache, chunk)) return false;
  }
  if (!emitLogits(chunk)) return false;
  requireNoFault(backend_);
  transaction.commit();
  return true;
}

void Llama::prepareWorkspace(const KvCache& cache, const Chunk& chunk) {
  WorkspaceShape shape;
  shape.chunkTokens = static_cast<std::int64_t>(chunk.tokens.size());
  shape.tileTokens = tileTokensFor(config_, shape.chunkTokens, cache.length() + shape.chunkTokens,
                                   backend_.operationsPerSecond());
  shape.logits = chunk.logits;
  shape.exactType = cache.config().exactType;
  if (workspace_.has_value() && workspace_->shape == shape) return;
  workspace_.reset();  // first: two of them need not fit
  workspace_ = makeWorkspace(backend_, ledger_, config_, shape);
}

bool Llama::runLayers(KvCache& cache, const Chunk& chunk) {
  const LlamaWorkspace& w = *workspace_;
  const std::int64_t firstPosition = cache.length();
  backend_.embed(model_.embedding(), chunk.tokens, w.hidden);
  emitHidden(chunk, 0);

  // False when the chunk shall stop. The work before `doneTokens` of a layer is done; about a third
  // of a tile is attention, the rest is the MLP.
  const auto goOn = [&](std::int64_t layer, double doneTokens) {
    if (chunk.onProgress) {
      const double before = static_cast<double>(layer * w.shape.chunkTokens);
      chunk.onProgress((before + doneTokens) / static_cast<double>(config_.nLayers));
    }
    return !chunk.stop.stop_requested();
  };
  if (chunk.stop.stop_requested()) return false;
  for (std::int64_t layer = 0; layer < config_.nLayers; ++layer) {
    const LayerWeights& weights = model_.layers()[static_cast<std::size_t>(layer)];
    const KvView history = cache.view(layer);
    // A single token goes to its place in the cache at once: a copy fewer in each layer.
    const ExactSpan place = w.shape.chunkTokens == 1 ? cache.chunkPlace(layer) : ExactSpan{};
    const ExactSpan& chunkKv = place.nTokens > 0 ? place : w.chunkKv;
    for (std::int64_t first = 0; first < w.shape.chunkTokens; first += w.shape.tileTokens) {
      const std::int64_t count = std::min(w.shape.tileTokens, w.shape.chunkTokens - first);
      const auto done = static_cast<double>(first);
      const auto inTile = static_cast<double>(count);
      runAttention(weights, history, chunkKv, firstPosition, first, count);
      if (!goOn(layer, done + inTile / 3.0)) return false;
      runMlp(weights, first, count);
      if (!goOn(layer, done + inTile)) return false;
    }
    cache.append(layer, chunkKv);
    emitHidden(chunk, layer + 1);
  }
  return true;
}

/// Tokens [firstToken, firstToken + nTokens) of the chunk through a layer's attention.
void Llama::runAttention(const LayerWeights& layer, const KvView& history, const ExactSpan& chunkKv,
                         std::int64_t firstPosition, std::int64_t firstToken,
                         std::int64_t nTokens) {
  const LlamaWorkspace& w = *workspace_;
  const kernels::AttentionShape heads = attentionShape(config_);
  const float scoreScale = 1.0F / std::sqrt(static_cast<float>(config_.headDim));
  const float* cosSin = rope_.row(firstPosition + firstToken);
  const MatrixView x = w.hidden.slice(firstToken, nTokens);
  const MatrixView normed = w.normed.slice(0, nTokens);
  const MatrixView query = w.query.slice(0, nTokens);
  const MatrixView key = w.key.slice(0, nTokens);
  const MatrixView value = w.value.slice(0, nTokens);
  const MatrixView attention = w.attention.slice(0, nTokens);

  const kernels::Projection queryKeyValue[] = {
      {layer.query, query}, {layer.key, key}, {layer.value, value}};
  backend_.normMatmulEach(x, layer.attentionNorm, config_.rmsNormEpsilon, normed, queryKeyValue);
  backend_.ropeAndStore(heads, query, key, value, cosSin, chunkKv, firstToken);
  backend_.attend(heads, scoreScale, query, history, chunkKv, firstToken, attention);
  backend_.matmul(attention, layer.attentionOutput, x, true);
}

/// The same tokens through its MLP.
void Llama::runMlp(const LayerWeights& layer, std::int64_t firstToken, std::int64_t nTokens) {
  const LlamaWorkspace& w = *workspace_;
  const MatrixView x = w.hidden.slice(firstToken, nTokens);
  const MatrixView normed = w.normed.slice(0, nTokens);
  const MatrixView gate = w.gate.slice(0, nTokens);
  const MatrixView up = w.up.slice(0, nTokens);

  backend_.normGateUp(x, layer.mlpNorm, config_.rmsNormEpsilon, normed, {layer.gate, gate},
                      {layer.up, up});
  backend_.matmul(gate, layer.down, x, true);
}

void Llama::emitHidden(const Chunk& chunk, std::int64_t index) {
  if (chunk.onHidden) chunk.onHidden(index, downloadRows(backend_, workspace_->hidden));
}

/// Final norm and head, for the rows that are asked for, at most a tile at once.
bool Llama::emitLogits(const Chunk& chunk) {
  if (chunk.logits == LogitsWanted::kNone) return true;
  const LlamaWorkspace& w = *workspace_;
  const std::int64_t end = w.shape.chunkTokens;
  std::int64_t first = chunk.logits == LogitsWanted::kAll ? 0 : end - 1;
  for (; first < end; first += w.logits.rows) {
    if (chunk.stop.stop_requested()) return false;
    const std::int64_t count = std::min(w.logits.rows, end - first);
    const MatrixView normed = w.normed.slice(0, count);
    const MatrixView logits = w.logits.slice(0, count);
    const kernels::Projection head[] = {{model_.lmHead(), logits}};
    backend_.normMatmulEach(w.hidden.slice(first, count), model_.finalNorm(),
                            config_.rmsNormEpsilon, normed, head);
    if (chunk.nBestLogits > 0) {
      emitBestLogits(chunk, first, logits);
    } else if (chunk.onLogits) {
      chunk.onLogits(first, count, downloadRows(backend_, logits));
    }
  }
  return true;
}

void Llama::emitBestLogits(const Chunk& chunk, std::int64_t firstToken, const MatrixView& logits) {
  std::vector<kernels::ScoredToken> best(static_cast<std::size_t>(chunk.nBestLogits));
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    const std::int64_t count =
        backend_.topLogits(logits.data + row * logits.stride, logits.cols, best);
    if (chunk.onBestLogits) {
      chunk.onBestLogits(firstToken + row, std::span(best).first(static_cast<std::size_t>(count)));
    }
  }
}

}  // namespace longhand::engine
