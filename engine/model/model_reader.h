#pragma once
// A model's files as a source of tensors. One implementation for each format on disk; the loader
// knows only this interface, so a further format (GGUF) is one more class here.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/model/weight_specs.h"
#include "kernels/types.h"

namespace longhand::engine {

/// One tensor on the host, as its file holds it. Valid as long as its reader, and `tables` as long
/// as this object (moving it keeps them).
struct SourceTensor {
  kernels::WeightView view;          // `data` may be misaligned for its type, float tables are not
  std::span<const std::byte> bytes;  // what view.data points to
  std::uint64_t fileBytes = 0;       // with absmax and tables
  std::string where;                 // "model.safetensors: tensor 'x'", for messages
  std::vector<std::vector<float>> tables;  // copies of tables that the file holds misaligned
};

/// Immutable; any thread may use it. Owns the mappings that its tensors point into.
class ModelReader {
 public:
  ModelReader() = default;
  ModelReader(const ModelReader&) = delete;
  ModelReader& operator=(const ModelReader&) = delete;
  virtual ~ModelReader() = default;

  virtual const ModelConfig& config() const = 0;
  /// Throws Error naming file, tensor and reason when the tensor is missing, has another shape or a
  /// type that is no weight's. kNorm gives a plain type.
  virtual SourceTensor tensor(const WeightSpec& spec) const = 0;
};

/// Recognizes the format of a model folder. Throws Error when there is none or the files do not
/// belong together.
std::unique_ptr<ModelReader> openModelReader(const std::filesystem::path& folder);

}  // namespace longhand::engine
