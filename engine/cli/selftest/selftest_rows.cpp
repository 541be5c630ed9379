#include "engine/cli/selftest/selftest_rows.h"

#include <algorithm>
#include <set>

#include "engine/cli/bench/random_inputs.h"
#include "engine/cli/options.h"
#include "engine/graph/llama.h"
#include "engine/session/step_cost.h"
#include "kernels/page_layout.h"

namespace longhand::engine::cli {

KvCacheConfig selftestCache(int keyNbits, int valueNbits) {
  KvCacheConfig config;
  config.keyNbits = keyNbits;
  config.valueNbits = valueNbits;
  config.groupSize = 64;
  config.residualLength = 128;
  return config;
}

SelftestRows::SelftestRows(const SelftestOptions& options, const DeviceSpeed& speed)
    : options_(options),
      config_(options.model),
      shape_(attentionShape(options.model)),
      predictor_(speed, options.model) {}

StageRow SelftestRows::copy(double bytes) const {
  return {"copy", "-", "read and written", 0, bytes, 0.0, predictor_.copy(bytes)};
}

std::vector<std::int64_t> SelftestRows::productTokens() const {
  std::set<std::int64_t> tokens = {1, 4, 8};
  if (options_.prefillTokens > 0) tokens.insert(options_.prefillTokens);
  return {tokens.begin(), tokens.end()};
}

/// One launch of all of them.
StageRow SelftestRows::product(const std::string& stage, const std::string& size,
                               WeightFormat format, const std::vector<Matrix>& matrices,
                               std::int64_t nTokens) const {
  StageRow row{stage, weightFormatName(format), size, nTokens};
  for (const Matrix& matrix : matrices) {
    row.bytes +=
        static_cast<double>(weightBytesRead(matrix.target, matrix.rows, matrix.cols).total());
    row.operations += 2.0 * static_cast<double>(matrix.rows * matrix.cols * nTokens);
  }
  row.predicted = predictor_.product(matrices, nTokens);
  return row;
}

std::vector<ProductRow> SelftestRows::products(WeightFormat format, std::int64_t nTokens) const {
  std::vector<ProductRow> rows;
  const std::array<Matrix, 7> layer = layerMatrices(config_, format);
  const auto add = [&](const char* size, std::vector<std::size_t> places, bool isOfEach) {
    ProductRow product{{}, std::move(places), isOfEach};
    for (const std::size_t place : product.matrices) {
      const Matrix matrix = place == kHeadMatrix ? headMatrix(config_, format) : layer.at(place);
      const StageRow one = this->product("matmul", size, format, {matrix}, nTokens);
      StageRow& sum = product.row;
      if (sum.stage.empty()) {
        sum = one;
        continue;
      }
      sum.bytes += one.bytes;
      sum.operations += one.operations;
      sum.predicted += one.predicted;
    }
    if (isOfEach) {
      const auto n = static_cast<double>(product.matrices.size());
      product.row.bytes /= n;
      product.row.operations /= n;
      product.row.predicted = product.row.predicted * (1.0 / n);
    }
    rows.push_back(std::move(product));
  };
  if (nTokens <= 8) {
    add("query to output", {0, 1, 2, 3}, true);
    add("gate, up", {4, 5}, true);
    add("down", {6}, true);
  }
  add("a layer", {0, 1, 2, 3, 4, 5, 6}, false);
  if (nTokens == 1) add("head", {kHeadMatrix}, true);
  return rows;
}

std::vector<StageRow> SelftestRows::fusedProducts(WeightFormat format) const {
  const std::array<Matrix, 7> m = layerMatrices(config_, format);
  return {product("norm + matmul each", "query, key, value", format, {m[0], m[1], m[2]}, 1),
          product("norm + gate + up", "gate, up", format, {m[4], m[5]}, 1)};
}

StageRow SelftestRows::attention(int keyNbits, int valueNbits, std::int64_t depth,
                                 std::int64_t nTokens) const {
  const KvCacheConfig cache = selftestCache(keyNbits, valueNbits);
  StageRow row{nTokens > 1 ? "prefill attention" : "decode attention",
               std::to_string(keyNbits) + "/" + std::to_string(valueNbits),
               "depth " + std::to_string(depth), nTokens};
  row.bytes = static_cast<double>(cacheBytesRead(cache, shape_, 1, depth).total() +
                                  exactBytes(shape_, kernels::DataType::kF16, nTokens));
  const auto cols = static_cast<double>(shape_.nHeads * shape_.headDim);
  const auto n = static_cast<double>(nTokens);
  row.operations = 4.0 * cols * n * (static_cast<double>(depth) + (n + 1.0) / 2.0);
  row.predicted = predictor_.attention(cache, depth, nTokens);
  row.nbits = keyNbits == valueNbits ? keyNbits : 0;
  row.depth = depth;
  return row;
}

std::int64_t SelftestRows::prefillQueries(int keyNbits, int valueNbits) const {
  const bool isUsual = keyNbits == valueNbits && keyNbits != 8;
  if (!isUsual || options_.prefillTokens <= 8) return 0;
  return std::min<std::int64_t>(1024, options_.prefillTokens);
}

StageRow SelftestRows::packing(int nbits, kernels::QuantSolver solver) const {
  const bool isHqq = solver == kernels::QuantSolver::kHqq;
  const KvCacheConfig cache = selftestCache(nbits, nbits);
  const kernels::PageFormat format = cache.pageFormat(0);
  StageRow row{"packing", std::to_string(nbits) + (isHqq ? " hqq" : " minmax"), "a page",
               format.groupSize};
  row.bytes =
      static_cast<double>(exactBytes(shape_, kernels::DataType::kF16, format.groupSize) +
                          kernels::pageLayout(format, shape_.nKvHeads, shape_.headDim).totalBytes);
  row.predicted = predictor_.packing(cache, solver);
  return row;
}

DecodeRow SelftestRows::decode(WeightFormat weights, int nbits, std::int64_t depth) const {
  const KvCacheConfig cache = selftestCache(nbits, nbits);
  const double bytes =
      static_cast<double>(weightBytesRead(config_, weights).total() +
                          cacheBytesRead(cache, shape_, config_.nLayers, depth).total());
  return {weights, nbits, depth, bytes, predictor_.decodeStep(weights, cache, depth)};
}

PrefillRow SelftestRows::prefill(WeightFormat weights, int nbits, std::int64_t depth,
                                 std::int64_t nTokens) const {
  return {weights,
          nbits,
          depth,
          nTokens,
          2.0 * prefillMultiplyAdds(config_, depth, nTokens),
          predictor_.prefill(weights, selftestCache(nbits, nbits), depth, nTokens)};
}

PlanRequest SelftestRows::plan(WeightFormat weights, int nbits, std::int64_t contextLength,
                               std::int64_t chunkTokens, std::uint64_t backendBytes) const {
  PlanRequest request;
  request.model = config_;
  request.weights = weights;
  request.cache = selftestCache(nbits, nbits);
  request.contextLength = contextLength;
  request.chunkTokens = chunkTokens;
  request.backendBytes = backendBytes;
  return request;
}

}  // namespace longhand::engine::cli
