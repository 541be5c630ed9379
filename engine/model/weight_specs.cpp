#include "engine/model/weight_specs.h"

namespace longhand::engine {

std::vector<WeightSpec> weightSpecs(const ModelConfig& config) {
  const std::int64_t hidden = config.hiddenSize;
  const std::int64_t intermediate = config.intermediateSize;
  const std::int64_t queryRows = config.nHeads * config.headDim;
  const std::int64_t keyRows = config.nKvHeads * config.headDim;
  std::vector<WeightSpec> specs;
  specs.push_back(
      {"model.embed_tokens.weight", WeightRole::kEmbedding, config.vocabSize, hidden, -1, {}, {}});
  for (std::int64_t layer = 0; layer < config.nLayers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto linear = [&](const char* name, std::int64_t rows, std::int64_t cols,
                            kernels::WeightView LayerWeights::*member) {
      specs.push_back({prefix + name, WeightRole::kLinear, rows, cols, layer, member, {}});
    };
    const auto norm = [&](const char* name, const float* LayerWeights::*member) {
      specs.push_back({prefix + name, WeightRole::kNorm, 1, hidden, layer, {}, member});
    };
    norm("input_layernorm.weight", &LayerWeights::attentionNorm);
    linear("self_attn.q_proj.weight", queryRows, hidden, &LayerWeights::query);
    linear("self_attn.k_proj.weight", keyRows, hidden, &LayerWeights::key);
    linear("self_attn.v_proj.weight", keyRows, hidden, &LayerWeights::value);
    linear("self_attn.o_proj.weight", hidden, queryRows, &LayerWeights::attentionOutput);
    norm("post_attention_layernorm.weight", &LayerWeights::mlpNorm);
    linear("mlp.gate_proj.weight", intermediate, hidden, &LayerWeights::gate);
    linear("mlp.up_proj.weight", intermediate, hidden, &LayerWeights::up);
    linear("mlp.down_proj.weight", hidden, intermediate, &LayerWeights::down);
  }
  specs.push_back({"model.norm.weight", WeightRole::kNorm, 1, hidden, -1, {}, {}});
  if (!config.tiedEmbeddings) {
    specs.push_back({"lm_head.weight", WeightRole::kHead, config.vocabSize, hidden, -1, {}, {}});
  }
  return specs;
}

}  // namespace longhand::engine
