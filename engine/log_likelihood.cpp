#include "engine/log_likelihood.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace longhand::engine {

void requireFiniteLogits(std::span<const float> logits) {
  if (std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) return;
  throw Error(ErrorCode::kFileDamaged,
              "The model computed logits that are no numbers (NaN or infinity).",
              "Its weights may be damaged: download the model again.");
}

double negativeLogLikelihood(std::span<const float> logits, std::int32_t id) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return std::log(sum) + largest - static_cast<double>(logits[static_cast<std::size_t>(id)]);
}

}  // namespace longhand::engine
