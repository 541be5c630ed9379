#pragma once
// The numbers of a loaded model, for tests that compare models.

#include <cstdint>
#include <vector>

#include "engine/model/model.h"
#include "engine/model/weight_specs.h"
#include "kernels/nf4.h"

namespace longhand::engine {

inline std::vector<float> valuesOf(const kernels::WeightView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.rows * view.cols));
  for (std::int64_t row = 0; row < view.rows; ++row) {
    kernels::dequantizeRow(view, row, values.data() + row * view.cols);
  }
  return values;
}

inline std::vector<float> normOf(const float* norm, const Model& model) {
  return {norm, norm + model.config().hiddenSize};
}

/// All matrices of a model, in the order of weightSpecs().
inline std::vector<kernels::WeightView> matricesOf(const Model& model) {
  std::vector<kernels::WeightView> matrices;
  for (const WeightSpec& spec : weightSpecs(model.config())) {
    if (spec.role == WeightRole::kEmbedding) matrices.push_back(model.embedding());
    if (spec.role == WeightRole::kHead) matrices.push_back(model.lmHead());
    if (spec.role == WeightRole::kLinear) {
      matrices.push_back(model.layers().at(static_cast<std::size_t>(spec.layer)).*spec.matrix);
    }
  }
  return matrices;
}

inline std::vector<std::vector<float>> allValuesOf(const Model& model) {
  std::vector<std::vector<float>> all;
  for (const kernels::WeightView& view : matricesOf(model)) all.push_back(valuesOf(view));
  for (const LayerWeights& layer : model.layers()) {
    all.push_back(normOf(layer.attentionNorm, model));
    all.push_back(normOf(layer.mlpNorm, model));
  }
  all.push_back(normOf(model.finalNorm(), model));
  return all;
}

inline std::vector<std::uint8_t> codesOf(const kernels::WeightView& view) {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(view.data);
  return {codes, codes + (view.rows * view.cols + 1) / 2};
}

}  // namespace longhand::engine
