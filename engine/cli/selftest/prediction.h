#pragma once
// How long the CUDA kernels should take on a device, from counted work:
//
//   a launch = max(bytes / (share * copy rate), operations / (share * matrix rate),
//                  instructions / (share * issue rate)) + latency
//
// with the shares and counts of kernels/cuda/kernel_costs.h. The device is a card's data sheet, or
// what a self-test has measured of the device at hand. What the model leaves out: the last, partly
// filled round of blocks of a launch, and too few bytes in flight, both of which cost most where a
// card is wide and a matrix small.

#include <array>
#include <cstdint>
#include <span>

#include "engine/cache/kv_cache_config.h"
#include "engine/cli/cards.h"
#include "engine/model/model_config.h"
#include "engine/model/weight_format.h"
#include "kernels/backend.h"

namespace longhand::engine::cli {

/// 0: unknown. Without a copy rate nothing is predicted; what needs another rate that is unknown is
/// taken to be free.
struct DeviceSpeed {
  double copyBytesPerSecond = 0.0;       // read and written
  double halfOperationsPerSecond = 0.0;  // of the best product; a multiply-add is two
  int computeMajor = 0;
  int nMultiprocessors = 0;
  double clockHz = 0.0;
};
DeviceSpeed speedOf(const Card& card);

/// What a time is made of.
enum class Limit : std::uint8_t { kMemory, kInstructions, kTensorCores, kLatency };
inline constexpr std::size_t kLimitCount = 4;

/// Seconds, by what they are spent on; all 0: nothing could be predicted.
struct Prediction {
  std::array<double, kLimitCount> secondsOf = {};

  double seconds() const;
  /// What most of the time goes to: "memory", "instructions", "tensor cores", "latency".
  const char* limit() const;
  Prediction& operator+=(const Prediction& other);
  Prediction operator*(double times) const;
};

/// A weight of a matrix product.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  WeightTarget target;
};

/// The matrices of one layer in the order of LayerWeights: query, key, value, attention output,
/// gate, up, down.
std::array<Matrix, 7> layerMatrices(const ModelConfig& config, WeightFormat format);
Matrix headMatrix(const ModelConfig& config, WeightFormat format);

class Predictor {
 public:
  Predictor(const DeviceSpeed& speed, ModelConfig config);

  Prediction copy(double bytes) const;
  /// One launch of all `matrices`, which share an input of up to 8 tokens; of more tokens, each by
  /// itself.
  Prediction product(std::span<const Matrix> matrices, std::int64_t nTokens) const;
  /// One layer's attention of `nTokens` queries behind `depth` tokens.
  Prediction attention(const KvCacheConfig& cache, std::int64_t depth, std::int64_t nTokens) const;
  /// Of one page of the last layer.
  Prediction packing(const KvCacheConfig& cache, kernels::QuantSolver solver) const;

  /// A token behind `depth` others, without the page that every 64th packs.
  Prediction decodeStep(WeightFormat weights, const KvCacheConfig& cache, std::int64_t depth) const;
  /// `nTokens` in one chunk behind `depth` others.
  Prediction prefill(WeightFormat weights, const KvCacheConfig& cache, std::int64_t depth,
                     std::int64_t nTokens) const;

 private:
  /// What one launch does.
  struct Work {
    double bytes = 0.0;
    double operations = 0.0;
    double operationShare = 1.0;
    double instructions = 0.0;
  };
  Prediction launch(const Work& work) const;
  Prediction tiledProduct(const Matrix& matrix, std::int64_t nTokens) const;
  Prediction decodeAttention(const KvCacheConfig& cache, std::int64_t depth,
                             std::int64_t nTokens) const;
  /// Norms, RoPE, SiLU and rounding of so many tokens in one layer of a prompt.
  Prediction elementwise(std::int64_t nTokens) const;

  DeviceSpeed speed_;
  ModelConfig config_;
  kernels::AttentionShape shape_;
};

}  // namespace longhand::engine::cli
