#pragma once
// What a row of logits says of a token: the terms of perplexity and of the quality check.

#include <cstdint>
#include <span>

namespace longhand::engine {

/// Throws Error kFileDamaged when one of the logits is NaN or infinite: nothing can be measured by
/// them, and NaN compares as if all were well.
void requireFiniteLogits(std::span<const float> logits);

/// -ln p(id) under the softmax of the logits, in double.
double negativeLogLikelihood(std::span<const float> logits, std::int32_t id);

}  // namespace longhand::engine
