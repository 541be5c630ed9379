#pragma once
// A loaded Llama model: its config and its weights in the memory of one backend.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/base/memory_ledger.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"

namespace longhand::engine {

/// kAuto keeps the file's own type for models under 1 GiB in 16 bits, and takes NF4 above.
enum class WeightFormat { kAuto, kF32, kF16, kBF16, kNf4, kNf4NoDoubleQuantization, kInt8 };

struct LayerWeights {
  const float* attentionNorm = nullptr;  // [hidden]
  kernels::WeightView query;             // [nHeads * headDim, hidden]
  kernels::WeightView key;               // [nKvHeads * headDim, hidden]
  kernels::WeightView value;             // [nKvHeads * headDim, hidden]
  kernels::WeightView attentionOutput;   // [hidden, nHeads * headDim]
  const float* mlpNorm = nullptr;        // [hidden]
  kernels::WeightView gate;              // [intermediate, hidden]
  kernels::WeightView up;                // [intermediate, hidden]
  kernels::WeightView down;              // [hidden, intermediate]
};

/// Called while loading, at least four times a second: bytes done and in all.
using LoadProgress = std::function<void(std::uint64_t doneBytes, std::uint64_t totalBytes)>;

/// Immutable once loaded. Owns its buffers and file mappings; the backend and the ledger must
/// outlive it.
class Model {
 public:
  virtual ~Model() = default;

  const ModelConfig& config() const { return config_; }
  WeightFormat weightFormat() const { return weightFormat_; }
  const kernels::WeightView& embedding() const {
    return embedding_;
  }                                                              // [vocab, hidden], 16 or 32 bit
  const kernels::WeightView& lmHead() const { return lmHead_; }  // [vocab, hidden]
  const float* finalNorm() const { return finalNorm_; }          // [hidden]
  const std::vector<LayerWeights>& layers() const { return layers_; }
  std::uint64_t weightBytes() const { return weightBytes_; }
  /// Of the names, shapes and a sample of the weights: for fingerprints of saved sessions.
  std::uint64_t fingerprint() const { return fingerprint_; }

 protected:
  ModelConfig config_;
  WeightFormat weightFormat_ = WeightFormat::kAuto;
  kernels::WeightView embedding_;
  kernels::WeightView lmHead_;
  const float* finalNorm_ = nullptr;
  std::vector<LayerWeights> layers_;
  std::uint64_t weightBytes_ = 0;
  std::uint64_t fingerprint_ = 0;
};

/// Loads a Hugging Face folder (plain or bitsandbytes 4-bit). Throws Error, naming file, tensor and
/// reason; kCancelled when `stop` is requested.
std::unique_ptr<Model> loadModel(const std::filesystem::path& folder, WeightFormat format,
                                 kernels::Backend& backend, MemoryLedger& ledger,
                                 const LoadProgress& progress, std::stop_token stop);

/// Bytes of the weights when loadModel() has loaded them, from the headers of the files alone.
/// Throws as loadModel().
std::uint64_t weightBytesOf(const std::filesystem::path& folder, WeightFormat format);

/// Random weights of the config's shape, made in memory: the same for the same seed.
/// Throws Error kOutOfMemory, kCancelled.
std::unique_ptr<Model> makeRandomModel(const ModelConfig& config, WeightFormat format,
                                       std::uint64_t seed, kernels::Backend& backend,
                                       MemoryLedger& ledger, std::stop_token stop = {});
/// The same with matrices in all layers that are the backend's copies of the first layer's, in
/// memory of their own: 13 GiB on a device within a second or two, for measuring its speed.
std::unique_ptr<Model> makeRepeatedModel(const ModelConfig& config, WeightFormat format,
                                         std::uint64_t seed, kernels::Backend& backend,
                                         MemoryLedger& ledger, std::stop_token stop = {});

}  // namespace longhand::engine
