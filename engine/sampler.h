#pragma once
// Chooses the next token from logits.

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/types.h"

namespace longhand::engine {

struct SamplerConfig {
  double temperature = 0.7;        // 0: greedy
  int topK = 40;                   // 0: off
  double topP = 0.95;              // 1: off
  double minP = 0.0;               // 0: off
  double repetitionPenalty = 1.0;  // 1: off; over the last repetitionWindow tokens (CTRL, 2019)
  int repetitionWindow = 64;
  std::uint64_t seed = 0;  // same seed, same logits: same tokens, on every machine

  bool isGreedy() const { return temperature <= 0.0; }
  bool operator==(const SamplerConfig&) const = default;
  /// Throws Error kInvalidArgument naming the first value out of range.
  void validate() const;
};

/// Order: repetition penalty, top_k, temperature, top_p, min_p, then one draw. Equal logits: the
/// lower id counts as the higher. One owner; not thread-safe.
class Sampler {
 public:
  /// Throws Error kInvalidArgument for a config out of range.
  explicit Sampler(const SamplerConfig& config);

  /// `logits` [vocab]; NaN counts as -infinity. `recent` are the tokens so far, oldest first; of
  /// them the last repetitionWindow are penalized. Throws Error kInternal when every logit is NaN
  /// or -infinity.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> recent);

  /// How many of the best logits are enough for the same choice: those that top_k keeps, one more,
  /// and one for each token that a penalty may push behind them. 0 where all are needed, which is
  /// without top_k, with a penalty below 1 (it lifts tokens from anywhere), and for more than
  /// kMostBestLogits.
  std::int64_t nBestWanted() const;
  /// The token that sample() would choose. `best` are the nBestWanted() best logits, or all that
  /// are above -infinity where there are fewer, best first (Backend::topLogits). Throws likewise.
  std::int32_t sampleBest(std::span<const kernels::ScoredToken> best,
                          std::span<const std::int32_t> recent);
  static constexpr std::int64_t kMostBestLogits = 512;  // what a device finds in one go

 private:
  using Candidate = std::pair<float, std::int32_t>;  // logit, id

  std::span<const std::int32_t> penalizedTokens(std::span<const std::int32_t> recent) const;
  float penalized(float logit) const;
  void collectCandidates(std::span<const float> logits, std::size_t best);
  void keepTopK();
  double weight(const Candidate& candidate) const;
  const Candidate& rank(std::size_t index);
  std::int32_t draw();

  SamplerConfig config_;
  std::mt19937_64 random_;
  std::vector<float> penalized_;       // [vocab] scratch
  std::vector<Candidate> candidates_;  // scratch; the first nRanked_ are the best, in order
  std::size_t nRanked_ = 0;
  float maximum_ = 0.0F;  // of the candidates' logits
};

}  // namespace longhand::engine
