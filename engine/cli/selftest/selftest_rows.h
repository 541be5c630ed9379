#pragma once
// What a self-test's parts b and c go through, with the work and the predicted time of each: the
// same rows for a run on a device and for a prediction without one.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/cli/selftest/prediction.h"
#include "engine/cli/selftest/selftest.h"
#include "engine/memory_plan.h"

namespace longhand::engine::cli {

/// One operation, or a few in turn.
struct StageRow {
  std::string stage;   // "matmul", "decode attention", ...
  std::string format;  // "nf4", "4/2"
  std::string size;    // "a layer", "depth 4096"
  std::int64_t tokens = 0;
  double bytes = 0.0;       // read and written, of one call
  double operations = 0.0;  // a multiply-add is two
  Prediction predicted = {};
  // Of attention with as many bits for keys as for values; else 0.
  int nbits = 0;
  std::int64_t depth = 0;
};

/// Products of one kind of matrix, or of all of a layer.
struct ProductRow {
  StageRow row;
  /// Places in layerMatrices(); kHeadMatrix is the head.
  std::vector<std::size_t> matrices;
  bool isOfEach = true;  // a call is one of the matrices; else all of them
};
inline constexpr std::size_t kHeadMatrix = 7;

/// Decode with one cache at one depth.
struct DecodeRow {
  WeightFormat weights = WeightFormat::kNf4;
  int nbits = 0;
  std::int64_t depth = 0;
  double bytes = 0.0;  // of a token
  Prediction predicted;
};

/// A section of a prompt.
struct PrefillRow {
  WeightFormat weights = WeightFormat::kNf4;
  int nbits = 0;
  std::int64_t depth = 0;
  std::int64_t tokens = 0;
  double operations = 0.0;
  Prediction predicted;
};

/// Groups of 64, a residual of 128.
KvCacheConfig selftestCache(int keyNbits, int valueNbits);

/// What is gone through, in order.
inline constexpr std::array kSelftestFormats = {WeightFormat::kNf4, WeightFormat::kF16,
                                                WeightFormat::kInt8};
inline constexpr std::array kSelftestCaches = {std::pair{16, 16}, std::pair{8, 8}, std::pair{4, 4},
                                               std::pair{4, 2}, std::pair{2, 2}};
inline constexpr std::array kSelftestPackings = {
    std::pair{8, kernels::QuantSolver::kMinMax}, std::pair{4, kernels::QuantSolver::kMinMax},
    std::pair{2, kernels::QuantSolver::kMinMax}, std::pair{4, kernels::QuantSolver::kHqq}};
inline constexpr std::array kDecodeNbits = {4, 16, 2, 8};  // with NF4 weights
/// Tokens of decode that a context has room for behind the depth.
inline constexpr std::int64_t kMostSteps = 200;

/// Makes rows for one model and device.
class SelftestRows {
 public:
  SelftestRows(const SelftestOptions& options, const DeviceSpeed& speed);

  StageRow copy(double bytes) const;
  /// 1, 4, 8 and the tokens of a section, each once.
  std::vector<std::int64_t> productTokens() const;
  std::vector<ProductRow> products(WeightFormat format, std::int64_t nTokens) const;
  /// The graph's own calls for one token: query, key and value; gate and up.
  std::vector<StageRow> fusedProducts(WeightFormat format) const;
  StageRow attention(int keyNbits, int valueNbits, std::int64_t depth, std::int64_t nTokens) const;
  /// Queries of prefill attention with these bits; 0: it is not measured.
  std::int64_t prefillQueries(int keyNbits, int valueNbits) const;
  StageRow packing(int nbits, kernels::QuantSolver solver) const;

  DecodeRow decode(WeightFormat weights, int nbits, std::int64_t depth) const;
  PrefillRow prefill(WeightFormat weights, int nbits, std::int64_t depth,
                     std::int64_t nTokens) const;
  /// Everything that a context takes, read in chunks, beside the backend's own memory.
  PlanRequest plan(WeightFormat weights, int nbits, std::int64_t contextLength,
                   std::int64_t chunkTokens, std::uint64_t backendBytes) const;

 private:
  StageRow product(const std::string& stage, const std::string& size, WeightFormat format,
                   const std::vector<Matrix>& matrices, std::int64_t nTokens) const;

  const SelftestOptions& options_;
  const ModelConfig& config_;
  kernels::AttentionShape shape_;
  Predictor predictor_;
};

}  // namespace longhand::engine::cli
