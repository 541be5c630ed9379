#include "engine/cli/selftest/prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/graph/llama.h"
#include "engine/graph/llama_workspace.h"
#include "engine/model/weight_specs.h"
#include "engine/session/step_cost.h"
#include "kernels/cuda/kernel_costs.h"
#include "kernels/page_layout.h"

namespace longhand::engine::cli {
namespace {

namespace costs = kernels::cuda::costs;

constexpr std::int64_t kMostMatvecTokens = 8;
constexpr std::int64_t kMostDecodeQueries = 32;  // of a kv head
constexpr std::int64_t kNf4Rows = 32;            // that a block makes at once

double asDouble(std::int64_t value) { return static_cast<double>(value); }

double ceilOf(std::int64_t value, std::int64_t divisor) {
  return asDouble((value + divisor - 1) / divisor);
}

double bytesRead(const Matrix& matrix) {
  return static_cast<double>(weightBytesRead(matrix.target, matrix.rows, matrix.cols).total());
}

/// Of a product with up to 8 tokens, but for what each block does once.
double productInstructions(const Matrix& matrix, std::int64_t nTokens) {
  const double numbers = asDouble(matrix.rows * matrix.cols);
  switch (matrix.target.type) {
    case kernels::DataType::kNf4: {
      const costs::Nf4Instructions cost = costs::nf4Instructions(nTokens);
      const double turn = cost.turn + cost.turnOfToken * asDouble(nTokens);
      return ceilOf(matrix.rows, kNf4Rows) *
             (ceilOf(matrix.cols, cost.chunkCols) * turn + cost.warps * cost.rows);
    }
    case kernels::DataType::kInt8:
      return costs::kInt8Row.of(nTokens) * numbers / 1024.0;
    case kernels::DataType::kF16:
    case kernels::DataType::kBF16:
    case kernels::DataType::kF32:
      break;
  }
  return costs::kHalfRow.of(nTokens) * numbers / 1024.0;
}

}  // namespace

DeviceSpeed speedOf(const Card& card) {
  return {costs::kCopyShare * card.bytesPerSecond,
          card.bestHalfShare * card.halfOperationsPerSecond, card.computeMajor,
          card.nMultiprocessors, card.clockHz};
}

double Prediction::seconds() const {
  return std::accumulate(secondsOf.begin(), secondsOf.end(), 0.0);
}

const char* Prediction::limit() const {
  constexpr std::array<const char*, kLimitCount> kNames = {"memory", "instructions", "tensor cores",
                                                           "latency"};
  return kNames[static_cast<std::size_t>(std::ranges::max_element(secondsOf) - secondsOf.begin())];
}

Prediction& Prediction::operator+=(const Prediction& other) {
  for (std::size_t i = 0; i < kLimitCount; ++i) secondsOf[i] += other.secondsOf[i];
  return *this;
}

Prediction Prediction::operator*(double times) const {
  Prediction result = *this;
  for (double& seconds : result.secondsOf) seconds *= times;
  return result;
}

std::array<Matrix, 7> layerMatrices(const ModelConfig& config, WeightFormat format) {
  std::array<Matrix, 7> matrices;
  std::size_t n = 0;
  for (const WeightSpec& spec : weightSpecs(config)) {
    if (spec.role != WeightRole::kLinear || spec.layer != 0) continue;
    matrices.at(n++) = {spec.rows, spec.cols, chooseTarget(format, spec, {})};
  }
  return matrices;
}

Matrix headMatrix(const ModelConfig& config, WeightFormat format) {
  WeightSpec head;
  head.role = config.tiedEmbeddings ? WeightRole::kEmbedding : WeightRole::kHead;
  head.rows = config.vocabSize;
  head.cols = config.hiddenSize;
  return {head.rows, head.cols, chooseTarget(format, head, {})};
}

Predictor::Predictor(const DeviceSpeed& speed, ModelConfig config)
    : speed_(speed), config_(std::move(config)), shape_(attentionShape(config_)) {}

Prediction Predictor::launch(const Work& work) const {
  Prediction result;
  if (speed_.copyBytesPerSecond <= 0.0) return result;
  const auto at = [&](Limit limit) -> double& {
    return result.secondsOf[static_cast<std::size_t>(limit)];
  };
  const auto secondsFor = [](double amount, double rate) {
    return rate > 0.0 ? amount / rate : 0.0;
  };
  const double memory = secondsFor(work.bytes, costs::kMemoryShare * speed_.copyBytesPerSecond);
  const double tensorCores =
      secondsFor(work.operations, work.operationShare * speed_.halfOperationsPerSecond);
  const double issueRate = costs::kSchedulers * speed_.nMultiprocessors * speed_.clockHz;
  const double instructions = secondsFor(work.instructions, costs::kIssueShare * issueRate);
  const double most = std::max({memory, tensorCores, instructions});
  at(most == memory         ? Limit::kMemory
     : most == instructions ? Limit::kInstructions
                            : Limit::kTensorCores) = most;
  at(Limit::kLatency) = costs::kLaunchSeconds;
  return result;
}

Prediction Predictor::copy(double bytes) const {
  return launch({bytes * costs::kMemoryShare});  // which is a copy's own rate
}

Prediction Predictor::product(std::span<const Matrix> matrices, std::int64_t nTokens) const {
  Prediction result;
  if (nTokens > kMostMatvecTokens) {
    for (const Matrix& matrix : matrices) result += tiledProduct(matrix, nTokens);
    return result;
  }
  Work work;
  double nf4Groups = 0.0;
  for (const Matrix& matrix : matrices) {
    work.bytes += bytesRead(matrix);
    work.instructions += productInstructions(matrix, nTokens);
    if (matrix.target.type == kernels::DataType::kNf4) nf4Groups += ceilOf(matrix.rows, kNf4Rows);
  }
  const costs::Nf4Instructions nf4 = costs::nf4Instructions(nTokens);
  const double nf4Blocks = std::min(nf4Groups, nf4.blocks * speed_.nMultiprocessors);
  work.instructions += nf4Blocks * nf4.warps * nf4.once;
  return launch(work);
}

/// kernels/cuda/weights/tiled_matmul.h: input and weight become halves, then the product.
Prediction Predictor::tiledProduct(const Matrix& matrix, std::int64_t nTokens) const {
  const double numbers = asDouble(matrix.rows * matrix.cols);
  Prediction result;
  if (matrix.target.type != kernels::DataType::kF16) {
    result += launch({bytesRead(matrix) + 2.0 * numbers});
  }
  result += launch({6.0 * asDouble(matrix.cols * nTokens)});
  result += launch({0.0, 2.0 * numbers * asDouble(nTokens), costs::kProductShare});
  return result;
}

Prediction Predictor::attention(const KvCacheConfig& cache, std::int64_t depth,
                                std::int64_t nTokens) const {
  if (nTokens * (shape_.nHeads / shape_.nKvHeads) <= kMostDecodeQueries) {
    return decodeAttention(cache, depth, nTokens);
  }
  const double cols = asDouble(shape_.nHeads * shape_.headDim);
  const double n = asDouble(nTokens);
  const kernels::PageFormat format = cache.pageFormat(config_.nLayers - 1);
  const bool isExact = format.keyNbits == 16 && format.valueNbits == 16;
  const double pairsWithChunk = n * (n + 1.0) / 2.0;
  const double pairs = n * asDouble(depth) + pairsWithChunk;
  const double exactShare =
      isExact ? 1.0 : pairsWithChunk / pairs;  // the chunk itself is of 16 bits
  double share = costs::kPrefillAttentionShare;
  if (speed_.computeMajor >= 9) {
    share = 1.0 / (exactShare / costs::kPrefillAttentionShareHopperExact +
                   (1.0 - exactShare) / costs::kPrefillAttentionShareHopper);
  }
  const double bytes = static_cast<double>(cacheBytesRead(cache, shape_, 1, depth).total());
  return launch({bytes, 4.0 * cols * pairs, share});
}

Prediction Predictor::decodeAttention(const KvCacheConfig& cache, std::int64_t depth,
                                      std::int64_t nTokens) const {
  constexpr double kPageTokens = 64.0;
  constexpr std::int64_t kQueriesAtOnce = 4;
  const kernels::PageFormat format = cache.pageFormat(config_.nLayers - 1);
  const CacheTokens tokens = cacheTokens(cache, depth);
  const std::int64_t nQueries = nTokens * (shape_.nHeads / shape_.nKvHeads);
  const double rounds = ceilOf(nQueries, kQueriesAtOnce);
  const double channels = ceilOf(shape_.headDim, 32) / 4.0;
  const double further = costs::kPageOfQuery * asDouble(nQueries - 1);

  const bool isCodes = format.keyNbits < 16 || format.valueNbits < 16;
  const double ofPage = isCodes ? costs::kPageOfCodes : costs::kPageOfNumbers;
  const double perToken = (costs::pageInstructions(format.keyNbits).keys +
                           costs::pageInstructions(format.valueNbits).values) /
                          kPageTokens;
  const costs::PageInstructions exact = costs::pageInstructions(16);
  const double perExactToken = (exact.keys + exact.values + costs::kPageOfNumbers) / kPageTokens;

  Work work;
  const double pages = asDouble(tokens.pages);
  const double packed = pages * format.groupSize;
  work.instructions = pages * (ofPage + further) + rounds * channels * packed * perToken;
  work.instructions += rounds * asDouble(tokens.exact + nTokens) * perExactToken;
  work.instructions *= asDouble(shape_.nKvHeads);
  work.bytes = static_cast<double>(cacheBytesRead(cache, shape_, 1, depth).total());
  return launch(work);
}

Prediction Predictor::packing(const KvCacheConfig& cache, kernels::QuantSolver solver) const {
  const kernels::PageFormat format = cache.pageFormat(config_.nLayers - 1);
  const double numbers = 2.0 * asDouble(shape_.nKvHeads * shape_.headDim * format.groupSize);
  const bool isHqq = solver == kernels::QuantSolver::kHqq;
  Work work;
  work.bytes =
      2.0 * numbers +
      static_cast<double>(kernels::pageLayout(format, shape_.nKvHeads, shape_.headDim).totalBytes);
  const double slots = speed_.computeMajor == 9 ? costs::kDoubleSlotsHopper : costs::kDoubleSlots;
  const double hqq = costs::kPackHqq + slots * costs::kPackHqqDoubles;
  work.instructions = numbers / 32.0 * (isHqq ? hqq : costs::kPackMinMax);
  return launch(work);
}

Prediction Predictor::decodeStep(WeightFormat weights, const KvCacheConfig& cache,
                                 std::int64_t depth) const {
  const std::array<Matrix, 7> matrices = layerMatrices(config_, weights);
  const std::span<const Matrix> all(matrices);
  Prediction layer = product(all.first(3), 1);
  layer += launch({});  // RoPE and store
  layer += attention(cache, depth, 1);
  layer += product(all.subspan(3, 1), 1);
  layer += product(all.subspan(4, 2), 1);
  layer += product(all.subspan(6, 1), 1);
  Prediction step = layer * asDouble(config_.nLayers);
  const Matrix head = headMatrix(config_, weights);
  step += launch({});  // embedding
  step += product({&head, 1}, 1);
  if (speed_.copyBytesPerSecond > 0.0) {
    step.secondsOf[static_cast<std::size_t>(Limit::kLatency)] +=
        costs::kTopLogitsSeconds + costs::kStepSeconds;
  }
  return step;
}

Prediction Predictor::elementwise(std::int64_t nTokens) const {
  const double hidden = asDouble(config_.hiddenSize);
  const double heads = asDouble(shape_.headDim * (shape_.nHeads + shape_.nKvHeads));
  // Two norms, read and written; queries and keys turned in place, keys and values stored; gate and
  // up read, one written.
  const double floats = 4.0 * hidden + 2.0 * heads + 3.0 * asDouble(config_.intermediateSize);
  Prediction result = launch({4.0 * floats * asDouble(nTokens)});
  for (int i = 0; i < 3; ++i) result += launch({});
  return result;
}

Prediction Predictor::prefill(WeightFormat weights, const KvCacheConfig& cache, std::int64_t depth,
                              std::int64_t nTokens) const {
  // Backend::operationsPerSecond() of this device, by which the graph chooses its tiles.
  const double operationsPerSecond = 0.4 * 1024.0 * speed_.nMultiprocessors * speed_.clockHz;
  const std::int64_t tile = tileTokensFor(
      config_, nTokens, depth + nTokens,
      operationsPerSecond > 0.0 ? operationsPerSecond : 0.5 * speed_.halfOperationsPerSecond);
  const std::array<Matrix, 7> matrices = layerMatrices(config_, weights);
  Prediction result = product(matrices, tile);
  result += elementwise(tile);
  const double nTiles = asDouble(nTokens) / asDouble(tile);
  result = result * nTiles;
  // Each tile's attention is a launch of its own; together they do the work of one of all tokens.
  result += attention(cache, depth, nTokens);
  result += launch({}) * (nTiles - 1.0);
  const CacheTokens before = cacheTokens(cache, depth);
  const CacheTokens after = cacheTokens(cache, depth + nTokens);
  if (cache.keyNbits < 16 || cache.valueNbits < 16) {
    result += packing(cache, cache.solver) * asDouble(after.pages - before.pages);
  }
  result = result * asDouble(config_.nLayers);
  const Matrix head = headMatrix(config_, weights);
  result += product({&head, 1}, 1);
  return result;
}

}  // namespace longhand::engine::cli
