#pragma once
// Reads Hugging Face folders: config.json and one or several .safetensors, plain or quantized by
// bitsandbytes to NF4.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/model/model_reader.h"
#include "engine/model/safetensors_file.h"

namespace longhand::engine {

class HfModelReader final : public ModelReader {
 public:
  /// Opens model.safetensors, or the shards that model.safetensors.index.json lists, or all
  /// model-*.safetensors. Throws Error: a shard is missing, a tensor stands in two shards, a bias
  /// or a layer beyond num_hidden_layers is there.
  explicit HfModelReader(const std::filesystem::path& folder);

  const ModelConfig& config() const override { return config_; }
  SourceTensor tensor(const WeightSpec& spec) const override;

  /// A tensor and the file it stands in.
  struct Place {
    const SafetensorsFile* file = nullptr;
    const FileTensor* tensor = nullptr;
  };
  /// Both nullptr when no file has the tensor.
  Place find(const std::string& name) const;

 private:
  void openShards(const std::filesystem::path& folder);
  void openIndexed(const std::filesystem::path& folder, const std::filesystem::path& indexPath);
  void add(const std::string& name, const SafetensorsFile& file, const FileTensor& tensor);
  void refuseUnknownWeights() const;

  ModelConfig config_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> places_;
};

}  // namespace longhand::engine
