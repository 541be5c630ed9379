#pragma once
// What config.json and generation_config.json say about a Llama model.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/kv_types.h"

namespace longhand::engine {

enum class RopeScaling { kNone, kLinear, kDynamic, kYarn };

/// Rotary position embedding. Spellings of config.json that map here: shared/reference/README.md.
struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  std::int64_t maxPositionEmbeddings = 0;          // M of the dynamic formula
  std::int64_t originalMaxPositionEmbeddings = 0;  // 0: not given
  double betaFast = 32.0;                          // YaRN
  double betaSlow = 1.0;                           // YaRN
  std::optional<double> attentionFactor;           // YaRN; else 0.1 ln(factor) + 1

  bool operator==(const RopeConfig&) const = default;
};

struct ModelConfig {
  std::string name;  // of the folder, for people
  std::int64_t hiddenSize = 0;
  std::int64_t intermediateSize = 0;
  std::int64_t nLayers = 0;
  std::int64_t nHeads = 0;
  std::int64_t nKvHeads = 0;
  std::int64_t headDim = 0;
  std::int64_t vocabSize = 0;
  std::int64_t trainedLength = 0;  // max_position_embeddings
  float rmsNormEpsilon = 1e-5F;
  RopeConfig rope;
  bool tiedEmbeddings = false;  // lm_head is the embedding table
  std::int32_t bosToken = 1;
  std::vector<std::int32_t> eosTokens;  // generation_config.json wins over config.json
  bool isBitsAndBytes4Bit = false;      // weights are pre-quantized
};

/// Reads `folder`/config.json and, where it exists, generation_config.json. Throws Error
/// (kFileNotFound, kFileDamaged with the field's name, kUnsupportedModel with the reason).
ModelConfig readModelConfig(const std::filesystem::path& folder);
/// The same from the text of a config.json alone (`name` is for messages).
ModelConfig parseModelConfig(const std::string& json, const std::string& name);

/// Dimensions of a well-known model: "llama-2-7b", "llama-2-13b" or "tinyllama-1.1b". Throws
/// kInvalidArgument with the list of names.
ModelConfig shapeConfig(const std::string& shape);

/// What attention is told of the model.
kernels::AttentionShape attentionShape(const ModelConfig& config);

}  // namespace longhand::engine
