#pragma once
// What a CPU path makes of a text, compared with the slow twin on the same weights and cache.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace longhand::tests {

struct TextReading {
  std::vector<double> nll;    // [nTokens], -ln p of each
  std::vector<float> logits;  // [nTokens, vocabSize], that the token was predicted by
};

/// Cuts `ids` into windows that each begin with BOS, as engine/perplexity.h does.
TextReading readText(engine::Engine& engine, std::span<const std::int32_t> ids, std::int64_t window,
                     bool stepwise);

struct ReadingDifference {
  double perplexity = 0.0;  // of the fast reading
  double change = 0.0;      // of the perplexity, as a part of it
  /// Of `change`, from the changes of the single tokens: less than two of it may be chance.
  double standardError = 0.0;
  double rms = 0.0;                // of the logits' differences, as a part of the logits' deviation
  double largest = 0.0;            // likewise
  std::int64_t nOtherGuesses = 0;  // tokens whose likeliest guess is another
};

ReadingDifference differenceOf(const TextReading& slow, const TextReading& fast);

}  // namespace longhand::tests
