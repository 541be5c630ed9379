#include "engine/model/model_config.h"

#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/error_words.h"
#include "engine/base/mapped_file.h"

#include <nlohmann/json.hpp>

namespace longhand::engine {
namespace {

using Json = nlohmann::json;

// Bounds that no Llama model comes near, and whose products fit 64 bits by far.
constexpr std::int64_t kLargestWidth = 1 << 20;
constexpr std::int64_t kLargestCount = 4096;  // of layers and of heads
constexpr std::int64_t kLargestVocabulary = 1 << 24;
constexpr std::int64_t kLargestLength = 1 << 30;
constexpr std::int64_t kLargestHeadDim = 256;  // what the attention kernels are built for
constexpr std::size_t kConfigLimitBytes = 16U << 20U;

/// The fields of one JSON object, each checked when it is read. Absent and null are the same.
class Fields {
 public:
  /// `prefix` is the path of the object inside the file: "" or "rope_scaling.".
  Fields(const Json& object, std::string file, std::string prefix)
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const Json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool has(const char* name) const { return find(name) != nullptr; }

  std::int64_t integer(const char* name, std::int64_t smallest, std::int64_t largest) const {
    const Json* value = find(name);
    if (value == nullptr) damaged(name, "is missing");
    return checkedInteger(name, *value, smallest, largest);
  }
  std::int64_t integer(const char* name, std::int64_t smallest, std::int64_t largest,
                       std::int64_t otherwise) const {
    return has(name) ? integer(name, smallest, largest) : otherwise;
  }
  double number(const char* name, double smallest, double largest, double otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) damaged(name, "must be a number");
    const auto result = value->get<double>();
    if (!(result >= smallest && result <= largest)) {
      damaged(name, "is " + value->dump() + ", which is out of range");
    }
    return result;
  }
  bool boolean(const char* name, bool otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) damaged(name, "must be true or false");
    return value->get<bool>();
  }
  std::string text(const char* name, const std::string& otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) damaged(name, "must be a text");
    return value->get<std::string>();
  }
  /// One id, or a list of ids.
  std::vector<std::int32_t> tokens(const char* name, std::int64_t vocabSize) const {
    std::vector<std::int32_t> result;
    const Json* value = find(name);
    if (value == nullptr) return result;
    const auto add = [&](const Json& id) {
      result.push_back(static_cast<std::int32_t>(checkedInteger(name, id, 0, vocabSize - 1)));
    };
    if (value->is_array()) {
      for (const Json& id : *value) add(id);
    } else {
      add(*value);
    }
    return result;
  }
  /// The fields of an object inside this one.
  Fields inside(const char* name) const {
    const Json* value = find(name);
    if (value == nullptr || !value->is_object()) damaged(name, "must be an object");
    return {*value, file_, prefix_ + name + "."};
  }

  [[noreturn]] void damaged(const std::string& name, const std::string& reason) const {
    throw Error(ErrorCode::kFileDamaged, file_ + ": " + prefix_ + name + " " + reason + ".",
                "Download the file again.");
  }
  [[noreturn]] void unsupported(const std::string& name, const std::string& reason) const {
    throw Error(ErrorCode::kUnsupportedModel, file_ + ": " + prefix_ + name + " " + reason + ".",
                "Longhand runs Llama models (Llama 1 and 2, TinyLlama and their kin).");
  }

 private:
  std::int64_t checkedInteger(const char* name, const Json& value, std::int64_t smallest,
                              std::int64_t largest) const {
    if (!value.is_number_integer()) damaged(name, "must be a whole number");
    const bool isTooLarge =
        value.is_number_unsigned() &&
        value.get<std::uint64_t>() >
            static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const std::int64_t result = isTooLarge ? 0 : value.get<std::int64_t>();
    if (isTooLarge || result < smallest || result > largest) {
      damaged(name, "is " + value.dump() + "; it must be between " + std::to_string(smallest) +
                        " and " + std::to_string(largest));
    }
    return result;
  }

  const Json& object_;
  std::string file_;
  std::string prefix_;
};

Json parseObject(const std::string& text, const std::string& file) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw Error(ErrorCode::kFileDamaged,
                file + " is not valid JSON at byte " + std::to_string(error.byte) + ".",
                "Download the file again.");
  } catch (const Json::exception&) {
    throw Error(ErrorCode::kFileDamaged, file + " holds a number that is too large.",
                "Download the file again.");
  }
  if (!json.is_object()) {
    throw Error(ErrorCode::kFileDamaged, file + " is not a JSON object.",
                "Download the file again.");
  }
  return json;
}

/// mscale(s) = 0.1 m ln(factor) + 1: the attention temperature of the YaRN paper, section 3.4, with
/// the weight m that some configs give apart for the numerator and the denominator.
double yarnScale(double factor, double weight) { return 0.1 * weight * std::log(factor) + 1.0; }

void readYarn(const Fields& fields, RopeConfig& rope) {
  constexpr double kLargestBeta = 1e6;
  rope.betaFast = fields.number("beta_fast", 1e-6, kLargestBeta, rope.betaFast);
  rope.betaSlow = fields.number("beta_slow", 1e-6, kLargestBeta, rope.betaSlow);
  if (rope.betaFast < rope.betaSlow) fields.damaged("beta_fast", "is below beta_slow");
  if (!fields.boolean("truncate", true)) {
    fields.unsupported("truncate", "is false; this kind of YaRN is not supported");
  }
  // The ratio of the lengths wins over `factor`, which published configs often round; unless the
  // lengths say nothing because max_position_embeddings was never raised.
  if (rope.originalMaxPositionEmbeddings > 0 &&
      rope.maxPositionEmbeddings > rope.originalMaxPositionEmbeddings) {
    rope.factor = static_cast<double>(rope.maxPositionEmbeddings) /
                  static_cast<double>(rope.originalMaxPositionEmbeddings);
  } else if (!fields.has("factor")) {
    fields.damaged("factor", "is missing");
  }
  constexpr double kLargestAttentionFactor = 100.0;
  if (fields.has("attention_factor")) {
    rope.attentionFactor = fields.number("attention_factor", 1e-3, kLargestAttentionFactor, 1.0);
  } else if (fields.has("mscale") && fields.has("mscale_all_dim")) {
    const double above = fields.number("mscale", 0.0, kLargestAttentionFactor, 1.0);
    const double below = fields.number("mscale_all_dim", 0.0, kLargestAttentionFactor, 1.0);
    rope.attentionFactor = yarnScale(rope.factor, above) / yarnScale(rope.factor, below);
  }
}

/// `fields` are those of rope_scaling, or of rope_parameters (transformers 5).
void readRopeScaling(const Fields& fields, bool typeIsOptional, RopeConfig& rope) {
  const char* typeField = fields.has("rope_type") || !fields.has("type") ? "rope_type" : "type";
  if (!fields.has(typeField) && !typeIsOptional) fields.damaged("rope_type", "is missing");
  const std::string type = fields.text(typeField, "default");
  if (type == "default") return;
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "dynamic") {
    rope.scaling = RopeScaling::kDynamic;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
  } else {
    fields.unsupported(
        typeField, "is " + quotedName(type) + "; supported are default, linear, dynamic and yarn");
  }
  constexpr double kLargestFactor = 65536.0;
  rope.factor = fields.number("factor", 1.0, kLargestFactor, 1.0);
  rope.originalMaxPositionEmbeddings =
      fields.integer("original_max_position_embeddings", 1, kLargestLength, 0);
  if (rope.scaling == RopeScaling::kYarn) {
    readYarn(fields, rope);
  } else if (!fields.has("factor")) {
    fields.damaged("factor", "is missing");
  }
}

RopeConfig readRope(const Fields& fields, std::int64_t trainedLength) {
  constexpr double kLargestTheta = 1e15;
  RopeConfig rope;
  rope.maxPositionEmbeddings = trainedLength;
  rope.theta = fields.number("rope_theta", 1.0, kLargestTheta, rope.theta);
  if (fields.has("rope_parameters")) {
    const Fields parameters = fields.inside("rope_parameters");
    rope.theta = parameters.number("rope_theta", 1.0, kLargestTheta, rope.theta);
    readRopeScaling(parameters, /*typeIsOptional=*/true, rope);
  } else if (fields.has("rope_scaling")) {
    readRopeScaling(fields.inside("rope_scaling"), /*typeIsOptional=*/false, rope);
  }
  return rope;
}

void checkArchitecture(const Fields& fields) {
  const std::string type = fields.text("model_type", "");
  if (type.empty()) fields.damaged("model_type", "is missing");
  if (type != "llama") fields.unsupported("model_type", "is " + quotedName(type) + ", not 'llama'");
  const std::string activation = fields.text("hidden_act", "silu");
  if (activation != "silu") {
    fields.unsupported("hidden_act", "is " + quotedName(activation) + "; supported is silu");
  }
  for (const char* name : {"attention_bias", "mlp_bias"}) {
    if (fields.boolean(name, false)) {
      fields.unsupported(name, "is true; biases are not supported");
    }
  }
}

void readHeads(const Fields& fields, ModelConfig& config) {
  config.nHeads = fields.integer("num_attention_heads", 1, kLargestCount);
  config.nKvHeads = fields.integer("num_key_value_heads", 1, kLargestCount, config.nHeads);
  if (config.nHeads % config.nKvHeads != 0) {
    fields.damaged("num_key_value_heads", "is " + std::to_string(config.nKvHeads) +
                                              ", which does not divide num_attention_heads (" +
                                              std::to_string(config.nHeads) + ")");
  }
  if (fields.has("head_dim")) {
    config.headDim = fields.integer("head_dim", 1, kLargestWidth);
  } else {
    if (config.hiddenSize % config.nHeads != 0) {
      fields.damaged("hidden_size", "is " + std::to_string(config.hiddenSize) +
                                        ", no multiple of num_attention_heads (" +
                                        std::to_string(config.nHeads) + "), and there is no " +
                                        "head_dim");
    }
    config.headDim = config.hiddenSize / config.nHeads;
  }
  if (config.headDim % 2 != 0 || config.headDim > kLargestHeadDim) {
    fields.unsupported("head_dim", "is " + std::to_string(config.headDim) +
                                       "; supported are even numbers up to " +
                                       std::to_string(kLargestHeadDim));
  }
}

void readQuantization(const Fields& fields, ModelConfig& config) {
  if (!fields.has("quantization_config")) return;
  const Fields quantization = fields.inside("quantization_config");
  const std::string method = quantization.text("quant_method", "bitsandbytes");
  if (method != "bitsandbytes") {
    quantization.unsupported(
        "quant_method", "is " + quotedName(method) + "; supported is bitsandbytes with 4 bits");
  }
  const bool is4Bit =
      quantization.boolean("load_in_4bit", false) || quantization.boolean("_load_in_4bit", false);
  const bool is8Bit =
      quantization.boolean("load_in_8bit", false) || quantization.boolean("_load_in_8bit", false);
  if (!is4Bit) {
    if (is8Bit) {
      quantization.unsupported("load_in_8bit", "is true; supported is bitsandbytes with 4 bits");
    }
    return;  // settings of a trainer; the weights are plain
  }
  const std::string type = quantization.text("bnb_4bit_quant_type", "nf4");
  if (type != "nf4") {
    quantization.unsupported("bnb_4bit_quant_type",
                             "is " + quotedName(type) + "; supported is nf4");
  }
  config.isBitsAndBytes4Bit = true;
}

/// Everything but generation_config.json. `file` is for messages.
ModelConfig parseConfig(const std::string& text, const std::string& file) {
  const Json json = parseObject(text, file);
  const Fields fields(json, file, "");
  checkArchitecture(fields);
  ModelConfig config;
  config.hiddenSize = fields.integer("hidden_size", 1, kLargestWidth);
  config.intermediateSize = fields.integer("intermediate_size", 1, kLargestWidth);
  config.nLayers = fields.integer("num_hidden_layers", 1, kLargestCount);
  config.vocabSize = fields.integer("vocab_size", 1, kLargestVocabulary);
  constexpr std::int64_t kLlamaLength = 2048;  // the default of transformers' LlamaConfig
  config.trainedLength = fields.integer("max_position_embeddings", 1, kLargestLength, kLlamaLength);
  readHeads(fields, config);
  constexpr double kLlamaEpsilon = 1e-6;  // likewise
  config.rmsNormEpsilon =
      static_cast<float>(fields.number("rms_norm_eps", 1e-30, 1.0, kLlamaEpsilon));
  config.rope = readRope(fields, config.trainedLength);
  config.tiedEmbeddings = fields.boolean("tie_word_embeddings", false);
  const auto bos = fields.tokens("bos_token_id", config.vocabSize);
  if (!bos.empty()) config.bosToken = bos.front();
  config.eosTokens = fields.tokens("eos_token_id", config.vocabSize);
  if (config.eosTokens.empty() && config.vocabSize > 2) config.eosTokens = {2};
  readQuantization(fields, config);
  return config;
}

}  // namespace

ModelConfig parseModelConfig(const std::string& json, const std::string& name) {
  ModelConfig config = parseConfig(json, name);
  config.name = name;
  return config;
}

ModelConfig readModelConfig(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) {
    throw Error(ErrorCode::kFileNotFound,
                "The model folder " + folder.string() + " does not exist.",
                "Check the path of the model.");
  }
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw Error(ErrorCode::kFileUnreadable, folder.string() + " is a file, not a model folder.",
                "Give the folder that holds config.json and the .safetensors files.");
  }
  const std::filesystem::path path = folder / "config.json";
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(ErrorCode::kFileNotFound, "The folder " + folder.string() + " has no config.json.",
                "Give the folder of a Hugging Face Llama model.");
  }
  ModelConfig config = parseConfig(readTextFile(path, kConfigLimitBytes), path.string());
  config.name = std::filesystem::weakly_canonical(folder, ignored).filename().string();
  const std::filesystem::path generation = folder / "generation_config.json";
  if (std::filesystem::exists(generation, ignored)) {
    const Json json = parseObject(readTextFile(generation, kConfigLimitBytes), generation.string());
    const Fields fields(json, generation.string(), "");
    const auto eosTokens = fields.tokens("eos_token_id", config.vocabSize);
    if (!eosTokens.empty()) config.eosTokens = eosTokens;
  }
  return config;
}

ModelConfig shapeConfig(const std::string& shape) {
  struct Shape {
    const char* name;
    std::int64_t hiddenSize, intermediateSize, nLayers, nHeads, nKvHeads, trainedLength;
  };
  constexpr std::array<Shape, 3> kShapes = {{{"llama-2-7b", 4096, 11008, 32, 32, 32, 4096},
                                             {"llama-2-13b", 5120, 13824, 40, 40, 40, 4096},
                                             {"tinyllama-1.1b", 2048, 5632, 22, 32, 4, 2048}}};
  std::string names;
  for (const Shape& known : kShapes) {
    if (shape == known.name) {
      ModelConfig config;
      config.name = shape;
      config.hiddenSize = known.hiddenSize;
      config.intermediateSize = known.intermediateSize;
      config.nLayers = known.nLayers;
      config.nHeads = known.nHeads;
      config.nKvHeads = known.nKvHeads;
      config.headDim = known.hiddenSize / known.nHeads;
      config.vocabSize = 32000;
      config.trainedLength = known.trainedLength;
      config.rope.maxPositionEmbeddings = known.trainedLength;
      config.eosTokens = {2};
      return config;
    }
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  throw Error(ErrorCode::kInvalidArgument, "There is no shape " + quotedName(shape) + ".",
              "Choose one of: " + names + ".");
}

kernels::AttentionShape attentionShape(const ModelConfig& config) {
  return {config.nHeads, config.nKvHeads, config.headDim};
}

}  // namespace longhand::engine
