#include "engine/memory_plan.h"

#include <algorithm>

#include "engine/cache/kv_cache.h"
#include "engine/graph/llama.h"
#include "engine/graph/llama_workspace.h"
#include "engine/model/weight_format.h"
#include "engine/model/weight_specs.h"
#include "engine/session/session.h"

namespace longhand::engine {
namespace {

/// A chunk below this gains little memory and costs much time: what a context must leave room for.
constexpr std::int64_t kSmallestUsefulChunk = 256;

std::uint64_t plannedWeightBytes(const ModelConfig& config, WeightFormat format) {
  if (format == WeightFormat::kAuto && !config.isBitsAndBytes4Bit && autoQuantizes(config)) {
    format = WeightFormat::kNf4;
  }
  std::uint64_t bytes = 0;
  for (const WeightSpec& spec : weightSpecs(config)) {
    WeightTarget source;  // F16, the usual type of files
    if (config.isBitsAndBytes4Bit && spec.role == WeightRole::kLinear) {
      source = {kernels::DataType::kNf4, true};
    }
    const WeightTarget target =
        chooseTarget(formatOfSpec(format, spec, config.isBitsAndBytes4Bit), spec, source);
    bytes += weightLayout(target, spec.rows, spec.cols).totalBytes;
  }
  return bytes;
}

/// The largest value in [1, high] for which `fits` (which is monotonic) holds; 0 if none.
template <typename Fits>
std::int64_t largestFitting(std::int64_t high, const Fits& fits) {
  std::int64_t low = 0;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

MemoryUse planMemory(const PlanRequest& request) {
  const ModelConfig& model = request.model;
  const kernels::AttentionShape shape = attentionShape(model);
  const std::int64_t chunk = request.chunkTokens == 0
                                 ? request.contextLength
                                 : std::min(request.chunkTokens, request.contextLength);
  MemoryUse use = kvCacheUse(request.cache, shape, model.nLayers, request.contextLength, chunk);
  use[MemoryCategory::kWeights] =
      request.weightBytes != 0 ? request.weightBytes : plannedWeightBytes(model, request.weights);
  const kernels::DataType exactType = request.cache.exactType;
  std::uint64_t chunkBytes = prefillChunkBytes(model, exactType, chunk);
  if (chunk < request.contextLength) {  // the next one overwrites the residual of the first
    const std::int64_t next = std::min(chunk, request.contextLength - chunk);
    chunkBytes = std::max(chunkBytes, prefillChunkBytes(model, exactType, next) +
                                          kvUndoBytes(request.cache, shape, model.nLayers));
  }
  use[MemoryCategory::kWorkspace] += chunkBytes + request.backendBytes;
  return use;
}

std::int64_t largestContext(const PlanRequest& request, std::uint64_t totalBytes) {
  PlanRequest plan = request;
  if (plan.weightBytes == 0) plan.weightBytes = plannedWeightBytes(plan.model, plan.weights);
  if (plan.chunkTokens == 0) plan.chunkTokens = kSmallestUsefulChunk;
  // Without a sliding window every token costs more than a byte; with one nothing grows with the
  // context, and what a Session allows is the limit.
  std::int64_t most = kMaxContextLength;
  if (plan.cache.slidingWindow == 0 && totalBytes < static_cast<std::uint64_t>(most)) {
    most = static_cast<std::int64_t>(totalBytes);
  }
  return largestFitting(most, [&](std::int64_t context) {
    plan.contextLength = context;
    return planMemory(plan).total() <= totalBytes;
  });
}

std::int64_t largestChunk(const PlanRequest& request, std::uint64_t totalBytes) {
  PlanRequest plan = request;
  if (plan.weightBytes == 0) plan.weightBytes = plannedWeightBytes(plan.model, plan.weights);
  const auto fits = [&](std::int64_t chunk) {
    plan.chunkTokens = chunk;
    return planMemory(plan).total() <= totalBytes;
  };
  // The whole context in one chunk needs no copy of the residual, so it is asked apart.
  if (fits(request.contextLength)) return request.contextLength;
  return largestFitting(request.contextLength - 1, fits);
}

}  // namespace longhand::engine
