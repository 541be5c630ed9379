#include "engine/session/step_cost.h"

#include <algorithm>

#include "engine/cache/kv_arena.h"
#include "engine/graph/llama.h"
#include "engine/model/weight_format.h"
#include "engine/model/weight_specs.h"

namespace longhand::engine {
namespace {

void add(DecodeBytes& sum, const DecodeBytes& part) {
  sum.weights += part.weights;
  sum.weightScales += part.weightScales;
  sum.kvCodes += part.kvCodes;
  sum.kvScales += part.kvScales;
  sum.kvExact += part.kvExact;
}

}  // namespace

DecodeBytes weightBytesRead(const kernels::WeightView& weight) {
  return weightBytesRead(targetOf(weight), weight.rows, weight.cols);
}

DecodeBytes weightBytesRead(const WeightTarget& target, std::int64_t rows, std::int64_t cols) {
  const WeightLayout layout = weightLayout(target, rows, cols);
  DecodeBytes bytes;
  bytes.weights = layout.dataBytes;
  const auto nBlocks = static_cast<std::uint64_t>(layout.nBlocks);
  const auto nNestedBlocks = static_cast<std::uint64_t>(layout.nNestedBlocks);
  bytes.weightScales =
      target.doubleQuantization ? nBlocks + nNestedBlocks * sizeof(float) : nBlocks * sizeof(float);
  return bytes;
}

DecodeBytes weightBytesRead(const Model& model) {
  DecodeBytes sum = weightBytesRead(model.lmHead());
  const std::uint64_t normBytes =
      static_cast<std::uint64_t>(model.config().hiddenSize) * sizeof(float);
  sum.weights += normBytes;
  if (!model.config().tiedEmbeddings) {  // else the row is one of the head's
    sum.weights += kernels::bytesOf(model.embedding().type, model.embedding().cols);
  }
  for (const LayerWeights& layer : model.layers()) {
    sum.weights += 2 * normBytes;
    for (const kernels::WeightView* weight :
         {&layer.query, &layer.key, &layer.value, &layer.attentionOutput, &layer.gate, &layer.up,
          &layer.down}) {
      add(sum, weightBytesRead(*weight));
    }
  }
  return sum;
}

DecodeBytes weightBytesRead(const ModelConfig& config, WeightFormat format) {
  DecodeBytes sum;
  for (const WeightSpec& spec : weightSpecs(config)) {
    const WeightTarget target = chooseTarget(format, spec, {});
    // One row of a table that is not the head as well.
    const bool isLookedUp = spec.role == WeightRole::kEmbedding && !config.tiedEmbeddings;
    add(sum, weightBytesRead(target, isLookedUp ? 1 : spec.rows, spec.cols));
  }
  return sum;
}

CacheTokens cacheTokens(const KvCacheConfig& config, std::int64_t nTokens) {
  const std::int64_t sink = std::min(nTokens, config.sinkLength);
  const std::int64_t behind = nTokens - sink;
  CacheTokens tokens;
  tokens.pages = std::max<std::int64_t>(0, behind - config.residualLength) / config.groupSize;
  tokens.exact = nTokens - tokens.pages * config.groupSize;
  return tokens;
}

DecodeBytes cacheBytesRead(const KvCacheConfig& config, const kernels::AttentionShape& shape,
                           std::int64_t nLayers, std::int64_t nTokens) {
  const CacheTokens tokens = cacheTokens(config, nTokens);
  DecodeBytes bytes;
  for (std::int64_t layer = 0; layer < nLayers; ++layer) {
    const MemoryUse page = pageUse(config.pageFormat(layer), shape);
    const auto nPages = static_cast<std::uint64_t>(tokens.pages);
    bytes.kvCodes += nPages * page[MemoryCategory::kKvCodes];
    bytes.kvScales += nPages * page[MemoryCategory::kKvScales];
    bytes.kvExact +=
        nPages * page[MemoryCategory::kKvExact] +
        2 * kernels::bytesOf(config.exactType, shape.nKvHeads * shape.headDim * tokens.exact);
  }
  return bytes;
}

DecodeBytes cacheBytesRead(const KvCache& cache, const kernels::AttentionShape& shape,
                           std::int64_t nLayers) {
  DecodeBytes bytes;
  for (std::int64_t layer = 0; layer < nLayers; ++layer) {
    MemoryUse one;
    const kernels::PageFormat* format = nullptr;
    for (const kernels::PageRef& page : cache.pages(layer)) {
      if (format == nullptr || !(*format == page.format)) one = pageUse(page.format, shape);
      format = &page.format;
      bytes.kvCodes += one[MemoryCategory::kKvCodes];
      bytes.kvScales += one[MemoryCategory::kKvScales];
      bytes.kvExact += one[MemoryCategory::kKvExact];
    }
    for (const kernels::ExactSpan& span : cache.view(layer).exact) {
      bytes.kvExact +=
          2 * kernels::bytesOf(span.type, shape.nKvHeads * shape.headDim * span.nTokens);
    }
  }
  return bytes;
}

DecodeBytes decodeBytes(const Model& model, const KvCache& cache) {
  DecodeBytes bytes = weightBytesRead(model);
  add(bytes, cacheBytesRead(cache, attentionShape(model.config()), model.config().nLayers));
  return bytes;
}

double prefillMultiplyAdds(const ModelConfig& config, std::int64_t depth, std::int64_t nTokens) {
  double matrices = 0.0;  // for one token
  const double head = static_cast<double>(config.vocabSize * config.hiddenSize);
  for (const WeightSpec& spec : weightSpecs(config)) {
    if (spec.role == WeightRole::kLinear) matrices += static_cast<double>(spec.rows * spec.cols);
  }
  const auto n = static_cast<double>(nTokens);
  const double seen = n * (static_cast<double>(depth) + (n + 1.0) / 2.0);  // pairs of tokens
  const auto channels = static_cast<double>(config.nLayers * config.nHeads * config.headDim);
  return n * matrices + head + 2.0 * channels * seen;
}

}  // namespace longhand::engine
