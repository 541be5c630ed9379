#include "tests/engine/graph/text_reading.h"

#include <algorithm>
#include <cmath>

#include "engine/log_likelihood.h"

namespace longhand::tests {

TextReading readText(engine::Engine& engine, std::span<const std::int32_t> ids, std::int64_t window,
                     bool stepwise) {
  const auto vocab = static_cast<std::size_t>(engine.modelConfig().vocabSize);
  const auto length = static_cast<std::size_t>(window);
  TextReading reading;
  for (std::size_t first = 0; first < ids.size(); first += length) {
    const auto predicted = ids.subspan(first, std::min(length, ids.size() - first));
    std::vector<std::int32_t> fed{engine.modelConfig().bosToken};
    fed.insert(fed.end(), predicted.begin(), predicted.end() - 1);
    const auto addRows = [&](std::int64_t row, std::int64_t nRows, std::span<const float> logits) {
      for (std::int64_t r = 0; r < nRows; ++r) {
        reading.nll.push_back(engine::negativeLogLikelihood(
            logits.subspan(static_cast<std::size_t>(r) * vocab, vocab),
            predicted[static_cast<std::size_t>(row + r)]));
      }
      reading.logits.insert(reading.logits.end(), logits.begin(), logits.end());
    };
    engine.forEachLogits(fed, stepwise, addRows, {});
  }
  return reading;
}

namespace {

void compareNll(const TextReading& slow, const TextReading& fast, ReadingDifference& difference) {
  const auto count = static_cast<double>(slow.nll.size());
  double nllSum = 0.0;
  double sum = 0.0;
  double sumOfSquares = 0.0;
  for (std::size_t i = 0; i < slow.nll.size(); ++i) {
    const double change = fast.nll[i] - slow.nll[i];
    nllSum += fast.nll[i];
    sum += change;
    sumOfSquares += change * change;
  }
  const double mean = sum / count;
  difference.perplexity = std::exp(nllSum / count);
  difference.change = std::expm1(mean);
  difference.standardError = std::sqrt(std::max(0.0, sumOfSquares / count - mean * mean) / count);
}

void compareLogits(const TextReading& slow, const TextReading& fast,
                   ReadingDifference& difference) {
  double sum = 0.0;
  double sumOfSquares = 0.0;
  double squares = 0.0;  // of differences
  double largest = 0.0;
  for (std::size_t i = 0; i < slow.logits.size(); ++i) {
    const auto expected = static_cast<double>(slow.logits[i]);
    const double error = static_cast<double>(fast.logits[i]) - expected;
    sum += expected;
    sumOfSquares += expected * expected;
    squares += error * error;
    if (!(std::abs(error) <= largest)) largest = std::abs(error);  // a NaN shows
  }
  const auto count = static_cast<double>(slow.logits.size());
  const double deviation = std::sqrt(sumOfSquares / count - std::pow(sum / count, 2));
  difference.rms = std::sqrt(squares / count) / deviation;
  difference.largest = largest / deviation;
}

}  // namespace

ReadingDifference differenceOf(const TextReading& slow, const TextReading& fast) {
  ReadingDifference difference;
  compareNll(slow, fast, difference);
  compareLogits(slow, fast, difference);
  const std::size_t vocab = slow.logits.size() / slow.nll.size();
  for (std::size_t first = 0; first < slow.logits.size(); first += vocab) {
    const auto guessOf = [&](const TextReading& reading) {
      const auto row = std::span(reading.logits).subspan(first, vocab);
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    if (guessOf(slow) != guessOf(fast)) ++difference.nOtherGuesses;
  }
  return difference;
}

}  // namespace longhand::tests
