#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "engine/base/error.h"

namespace longhand::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Ranks are found block by block: for the usual top_p a few dozen of 32,000 candidates suffice.
constexpr std::size_t kFirstRankBlock = 64;

[[noreturn]] void throwRange(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, what + ".");
}

[[noreturn]] void throwUnusable() {
  throw Error(ErrorCode::kInternal,
              "The model computed no usable logits: all are NaN or -infinity.",
              "The weights may be damaged.");
}

bool isBetter(const std::pair<float, std::int32_t>& a, const std::pair<float, std::int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

/// Lowest index of the maximum; -1 when nothing is above -infinity.
std::int32_t indexOfMaximum(std::span<const float> logits) {
  std::int32_t best = -1;
  float maximum = kMinusInfinity;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > maximum) {  // false for NaN
      maximum = logits[i];
      best = static_cast<std::int32_t>(i);
    }
  }
  return best;
}

}  // namespace

void SamplerConfig::validate() const {
  if (!(temperature >= 0.0 && temperature <= 100.0)) {
    throwRange("The temperature must be between 0 and 100");
  }
  if (topK < 0) throwRange("top_k must be 0 (off) or more");
  if (!(topP > 0.0 && topP <= 1.0)) throwRange("top_p must be above 0 and at most 1");
  if (!(minP >= 0.0 && minP <= 1.0)) throwRange("min_p must be between 0 and 1");
  if (!(repetitionPenalty >= 0.1 && repetitionPenalty <= 10.0)) {
    throwRange("The repetition penalty must be between 0.1 and 10");
  }
  if (repetitionWindow < 0) throwRange("The repetition window must be 0 or more tokens");
}

Sampler::Sampler(const SamplerConfig& config) : config_(config), random_(config.seed) {
  config_.validate();
}

/// Those of the recent tokens that are penalized; none without a penalty.
std::span<const std::int32_t> Sampler::penalizedTokens(std::span<const std::int32_t> recent) const {
  if (config_.repetitionPenalty == 1.0) return {};
  return recent.last(std::min(recent.size(), static_cast<std::size_t>(config_.repetitionWindow)));
}

float Sampler::penalized(float logit) const {
  const auto penalty = static_cast<float>(config_.repetitionPenalty);
  return logit > 0.0F ? logit / penalty : logit * penalty;
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> recent) {
  std::span<const float> scores = logits;
  const std::span<const std::int32_t> repeated = penalizedTokens(recent);
  if (!repeated.empty()) {
    penalized_.assign(logits.begin(), logits.end());
    for (const std::int32_t token : repeated) {
      if (token < 0 || static_cast<std::size_t>(token) >= logits.size()) continue;
      const auto i = static_cast<std::size_t>(token);
      penalized_[i] = penalized(logits[i]);
    }
    scores = penalized_;
  }

  const std::int32_t best = indexOfMaximum(scores);
  if (best < 0) throwUnusable();
  if (config_.isGreedy()) return best;
  collectCandidates(scores, static_cast<std::size_t>(best));
  return draw();
}

std::int64_t Sampler::nBestWanted() const {
  if (config_.repetitionPenalty < 1.0) return 0;
  if (!config_.isGreedy() && config_.topK == 0) return 0;
  // One more than top_k keeps shows whether there are more than that.
  const std::int64_t kept = config_.isGreedy() ? 1 : std::int64_t{config_.topK} + 1;
  const std::int64_t window = config_.repetitionPenalty == 1.0 ? 0 : config_.repetitionWindow;
  return kept + window > kMostBestLogits ? 0 : kept + window;
}

std::int32_t Sampler::sampleBest(std::span<const kernels::ScoredToken> best,
                                 std::span<const std::int32_t> recent) {
  const std::span<const std::int32_t> repeated = penalizedTokens(recent);
  nRanked_ = 0;
  candidates_.clear();
  for (const kernels::ScoredToken& token : best) {
    const bool isRepeated = std::ranges::find(repeated, token.id) != repeated.end();
    const float score = isRepeated ? penalized(token.logit) : token.logit;
    if (score > kMinusInfinity) candidates_.emplace_back(score, token.id);
  }
  if (candidates_.empty()) throwUnusable();
  const Candidate winner = *std::ranges::min_element(candidates_, isBetter);
  if (config_.isGreedy()) return winner.second;
  maximum_ = winner.first;
  std::ranges::sort(candidates_, {}, &Candidate::second);  // as collectCandidates() finds them
  keepTopK();
  return draw();
}

/// Everything above -infinity, or the topK best of it.
void Sampler::collectCandidates(std::span<const float> logits, std::size_t best) {
  maximum_ = logits[best];
  nRanked_ = 0;
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > kMinusInfinity) {
      candidates_.emplace_back(logits[i], static_cast<std::int32_t>(i));
    }
  }
  keepTopK();
}

void Sampler::keepTopK() {
  const auto topK = static_cast<std::size_t>(config_.topK);
  if (topK == 0 || topK >= candidates_.size()) return;
  rank(topK - 1);
  candidates_.resize(topK);
  nRanked_ = topK;
}

/// Probability of a candidate, times a constant: 1 for the best one.
double Sampler::weight(const Candidate& candidate) const {
  if (candidate.first == maximum_) return 1.0;  // also where both are +infinity
  const double distance = static_cast<double>(candidate.first) - static_cast<double>(maximum_);
  return std::exp(distance / config_.temperature);
}

/// The candidate at `index` of the sorted order.
const Sampler::Candidate& Sampler::rank(std::size_t index) {
  while (index >= nRanked_) {
    const std::size_t target =
        std::min(candidates_.size(), std::max({index + 1, 4 * nRanked_, kFirstRankBlock}));
    const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(nRanked_);
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(target);
    if (end != candidates_.end()) std::nth_element(begin, end - 1, candidates_.end(), isBetter);
    std::sort(begin, end, isBetter);
    nRanked_ = target;
  }
  return candidates_[index];
}

std::int32_t Sampler::draw() {
  // Summed in an order that no library's nth_element can change, so that rounding is the same
  // everywhere: by rank after top_k, else by id.
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += weight(candidate);

  std::size_t nKept = candidates_.size();
  double keptWeight = total;
  if (config_.topP < 1.0 || config_.minP > 0.0) {
    keptWeight = 0.0;
    for (nKept = 0; nKept < candidates_.size() && keptWeight < config_.topP * total; ++nKept) {
      const double next = weight(rank(nKept));
      if (next < config_.minP) break;  // relative to the best one, whose weight is 1
      keptWeight += next;
    }
  }

  // 53 random bits make a double in [0, 1). The standard's distributions differ by library.
  const double target = static_cast<double>(random_() >> 11U) * 0x1.0p-53 * keptWeight;
  double sum = 0.0;
  for (std::size_t i = 0; i < nKept; ++i) {
    sum += weight(rank(i));
    if (sum > target) return rank(i).second;
  }
  return rank(nKept - 1).second;  // rounding left the sum below the target
}

}  // namespace longhand::engine
