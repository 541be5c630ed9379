#pragma once
// The weights a Llama model is made of: names, shapes and where they go in a Model.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace longhand::engine {

enum class WeightRole : std::uint8_t { kEmbedding, kHead, kLinear, kNorm };

/// One weight. Exactly one of `matrix` and `norm` is set for a layer's weight, and neither for the
/// embedding, the final norm and the head.
struct WeightSpec {
  std::string name;  // as Hugging Face writes it: "model.layers.0.self_attn.q_proj.weight"
  WeightRole role = WeightRole::kLinear;
  std::int64_t rows = 0;  // 1 for a norm
  std::int64_t cols = 0;
  std::int64_t layer = -1;  // -1: of no layer
  kernels::WeightView LayerWeights::*matrix = nullptr;
  const float* LayerWeights::*norm = nullptr;
};

/// All weights in the order of the graph. The head is left out where it is the embedding.
std::vector<WeightSpec> weightSpecs(const ModelConfig& config);

}  // namespace longhand::engine
