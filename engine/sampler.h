#pragma once
// Chooses the next token from logits.

#include <cstdint>
#include <random>
#include <span>
#include <vector>

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

/// Order: repetition penalty, top_k, temperature, top_p, min_p, then one draw.
class Sampler {
 public:
  explicit Sampler(const SamplerConfig& config);

  /// `recent` are the tokens so far, oldest first. Throws Error kInternal when every logit is NaN
  /// or -infinity.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> recent);

 private:
  SamplerConfig config_;
  std::mt19937_64 random_;
  std::vector<std::pair<float, std::int32_t>> candidates_;  // scratch
};

}  // namespace longhand::engine
