#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/log_likelihood.h"

namespace longhand::engine {

PerplexityResult perplexity(Engine& engine, std::span<const std::int32_t> ids, std::int64_t window,
                            bool stepwise,
                            const std::function<void(std::int64_t, std::int64_t)>& progress,
                            std::stop_token stop) {
  const std::int64_t context = engine.contextLength();
  const auto nIds = static_cast<std::int64_t>(ids.size());
  const std::int64_t length = window == 0 ? std::max<std::int64_t>(1, context - 1) : window;
  if (nIds == 0) throw Error(ErrorCode::kInvalidArgument, "The text has no tokens.");
  if (length < 1 || length > context) {
    throw Error(ErrorCode::kInvalidArgument,
                "A window of " + std::to_string(length) + " tokens does not fit the context of " +
                    std::to_string(context) + ".",
                "Choose a shorter window or a longer context.");
  }
  const auto vocab = static_cast<std::size_t>(engine.modelConfig().vocabSize);

  PerplexityResult result;
  result.window = length;
  for (std::int64_t first = 0; first < nIds; first += length) {
    const std::span<const std::int32_t> predicted = ids.subspan(
        static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(length, nIds - first)));
    // BOS predicts the first id, the last id but one the last: the last itself is not fed.
    std::vector<std::int32_t> fed{engine.modelConfig().bosToken};
    fed.insert(fed.end(), predicted.begin(), predicted.end() - 1);
    const auto addRows = [&](std::int64_t row, std::int64_t nRows, std::span<const float> logits) {
      requireFiniteLogits(logits);
      for (std::int64_t r = 0; r < nRows; ++r) {
        result.nllSum +=
            negativeLogLikelihood(logits.subspan(static_cast<std::size_t>(r) * vocab, vocab),
                                  predicted[static_cast<std::size_t>(row + r)]);
      }
      result.tokens += nRows;
      if (progress) progress(result.tokens, nIds);
    };
    if (!engine.forEachLogits(fed, stepwise, addRows, stop)) {
      throw Error(ErrorCode::kCancelled, "The measurement was stopped.");
    }
  }
  result.perplexity = std::exp(result.nllSum / static_cast<double>(result.tokens));
  return result;
}

}  // namespace longhand::engine
