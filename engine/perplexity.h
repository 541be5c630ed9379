#pragma once
// How well a model predicts a text: exp(mean of -ln p(token)), the measure of quantization loss.

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include "engine/engine.h"

namespace longhand::engine {

struct PerplexityResult {
  double perplexity = 0.0;
  std::int64_t tokens = 0;  // predicted, each once
  std::int64_t window = 0;  // tokens of a window, the last excepted
  double nllSum = 0.0;      // sum of -ln p
};

/// `ids` are cut into windows of `window` tokens (the last may be shorter; 0: the context less
/// one), each prefixed by BOS and without context from the one before; every id is predicted once.
/// `stepwise` feeds one token at a time, so that a quantized cache is read as in decode; else each
/// window is one prefill, which attends exactly. `progress` gets tokens done and in all. Replaces
/// the contents of the engine's cache. Throws Error kInvalidArgument (no ids, a window that does
/// not fit the context), kFileDamaged (requireFiniteLogits), kCancelled.
PerplexityResult perplexity(Engine& engine, std::span<const std::int32_t> ids, std::int64_t window,
                            bool stepwise,
                            const std::function<void(std::int64_t, std::int64_t)>& progress,
                            std::stop_token stop);

}  // namespace longhand::engine
