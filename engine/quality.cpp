#include "engine/quality.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/base/error.h"
#include "engine/cache/kv_cache.h"
#include "engine/graph/llama.h"
#include "engine/log_likelihood.h"

namespace longhand::engine {
namespace {

using kernels::AttentionShape;
using kernels::ExactSpan;
using kernels::KvView;
using kernels::PageRef;

/// Of a window in a sample: the rest is its prompt. An eighth lets quantized history be long
/// without scoring, which is the slow part, only a few places of the text.
constexpr std::int64_t kScoredPartOfWindow = 8;
constexpr double kTailShare = 0.99;

/// ln of the softmax, in double.
void logSoftmax(std::span<const float> logits, std::vector<double>& result) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double logSum = std::log(sum) + largest;
  result.resize(logits.size());
  std::transform(logits.begin(), logits.end(), result.begin(),
                 [logSum](float logit) { return static_cast<double>(logit) - logSum; });
}

double klDivergence(std::span<const double> logP, std::span<const double> logQ) {
  double sum = 0.0;
  for (std::size_t i = 0; i < logP.size(); ++i) sum += std::exp(logP[i]) * (logP[i] - logQ[i]);
  return std::max(0.0, sum);  // rounding may leave -1e-17
}

std::size_t indexOfLargest(std::span<const double> values) {
  return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

/// The smallest value that at least `share` of the values do not exceed.
double percentile(std::vector<double> values, double share) {
  const auto rank =
      static_cast<std::int64_t>(std::ceil(share * static_cast<double>(values.size()))) - 1;
  const auto at = values.begin() + std::max<std::int64_t>(0, rank);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// One cache on its way through the text.
struct Lane {
  Lane(const QualitySetup& setup, std::string idIn, const KvCacheConfig& config)
      : id(std::move(idIn)),
        cache(setup.backend, setup.ledger, attentionShape(setup.model), setup.model.nLayers,
              config) {}

  std::string id;
  KvCache cache;
  std::vector<double> logProbabilities;  // [vocabSize], behind the token fed last
  double nllSum = 0.0;
  std::vector<double> kl;  // [scored tokens]
  std::int64_t nEqualTops = 0;
  std::int64_t packedTokens = 0;
};

class Measurement {
 public:
  Measurement(const QualitySetup& setup, const QualityRequest& request,
              const QualityProgress& progress, const std::stop_token& stop)
      : setup_(setup), request_(request), progress_(progress), stop_(stop) {
    lanes_.push_back(std::make_unique<Lane>(setup, "reference", request.reference));
    for (const QualityCandidate& candidate : request.candidates) {
      KvCacheConfig config = candidate.cache;
      config.exactType = request.reference.exactType;
      lanes_.push_back(std::make_unique<Lane>(setup, candidate.id, config));
    }
    const auto nLanes = static_cast<std::int64_t>(lanes_.size());
    std::int64_t longest = 0;
    for (const QualityWindow& window : request.windows) {
      total_ += window.nTokens - window.nScored + window.nScored * nLanes;
      longest = std::max(longest, window.nTokens);
    }
    for (const auto& lane : lanes_) lane->cache.reserve(longest);
  }

  QualityReport run() {
    advance(0);
    for (const QualityWindow& window : request_.windows) runWindow(window);
    QualityReport report;
    report.scoredTokens = scoredTokens(request_.windows);
    report.contextLength = setup_.contextLength;
    report.reference = rowOf(*lanes_.front(), report.scoredTokens);
    for (std::size_t i = 1; i < lanes_.size(); ++i) {
      report.rows.push_back(rowOf(*lanes_[i], report.scoredTokens));
    }
    return report;
  }

 private:
  void runWindow(const QualityWindow& window) {
    for (const auto& lane : lanes_) lane->cache.truncate(0);
    const std::span<const std::int32_t> predicted = request_.ids.subspan(
        static_cast<std::size_t>(window.first), static_cast<std::size_t>(window.nTokens));
    // BOS predicts the first token, the last but one the last: the last itself is not fed.
    std::vector<std::int32_t> fed{setup_.model.bosToken};
    fed.insert(fed.end(), predicted.begin(), predicted.end() - 1);

    const std::int64_t nPrompt = window.nTokens - window.nScored;
    if (nPrompt > 0) prefill(std::span(fed).first(static_cast<std::size_t>(nPrompt)));
    for (auto i = static_cast<std::size_t>(nPrompt); i < fed.size(); ++i) {
      for (const auto& lane : lanes_) score(*lane, fed[i], predicted[i]);
    }
    for (const auto& lane : lanes_) {
      lane->packedTokens = std::max(lane->packedTokens, lane->cache.packedTokens());
    }
  }

  /// One chunk attends exactly, whatever the cache: computed once, its tokens go to every cache.
  void prefill(std::span<const std::int32_t> prompt) {
    KvCache& reference = lanes_.front()->cache;
    Chunk chunk;
    chunk.tokens = prompt;
    const std::int64_t before = done_;
    chunk.onProgress = [&](double tokensDone) {
      advance(before + static_cast<std::int64_t>(tokensDone) - done_);
    };
    forward(reference, chunk);
    advance(before + static_cast<std::int64_t>(prompt.size()) - done_);
    for (std::size_t i = 1; i < lanes_.size(); ++i) copyTokens(reference, lanes_[i]->cache);
  }

  /// Feeds `token` to the lane and notes what it predicts behind it. The reference comes first.
  void score(Lane& lane, std::int32_t token, std::int32_t next) {
    Chunk chunk;
    chunk.tokens = std::span(&token, 1);
    chunk.logits = LogitsWanted::kLast;
    chunk.onLogits = [&](std::int64_t /*first*/, std::int64_t /*nRows*/,
                         std::span<const float> logits) {
      requireFiniteLogits(logits);
      logSoftmax(logits, lane.logProbabilities);
    };
    forward(lane.cache, chunk);
    const std::vector<double>& expected = lanes_.front()->logProbabilities;
    lane.nllSum -= lane.logProbabilities[static_cast<std::size_t>(next)];
    lane.kl.push_back(klDivergence(expected, lane.logProbabilities));
    if (indexOfLargest(expected) == indexOfLargest(lane.logProbabilities)) ++lane.nEqualTops;
    advance(1);
  }

  void forward(KvCache& cache, Chunk& chunk) {
    chunk.stop = stop_;
    if (setup_.llama.forward(cache, chunk)) return;
    throw Error(ErrorCode::kCancelled, "The measurement was stopped.");
  }

  void copyTokens(const KvCache& from, KvCache& to);

  void advance(std::int64_t tokens) {
    done_ += tokens;
    const auto now = std::chrono::steady_clock::now();
    if (done_ < total_ && done_ > 0 && now - lastReport_ < std::chrono::milliseconds(100)) return;
    lastReport_ = now;
    if (progress_) progress_(done_, total_);
  }

  QualityRow rowOf(const Lane& lane, std::int64_t nScored) const {
    const auto count = static_cast<double>(nScored);
    QualityRow row;
    row.id = lane.id;
    row.cache = lane.cache.config();
    row.perplexity = std::exp(lane.nllSum / count);
    row.meanKl = std::accumulate(lane.kl.begin(), lane.kl.end(), 0.0) / count;
    row.p99Kl = percentile(lane.kl, kTailShare);
    row.equalTopShare = static_cast<double>(lane.nEqualTops) / count;
    row.packedTokens = lane.packedTokens;
    row.cacheBytes = kvCacheUse(row.cache, attentionShape(setup_.model), setup_.model.nLayers,
                                setup_.contextLength)
                         .total();
    return row;
  }

  const QualitySetup& setup_;
  const QualityRequest& request_;
  const QualityProgress& progress_;
  const std::stop_token& stop_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // the reference first
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
  std::chrono::steady_clock::time_point lastReport_;
};

/// Appends the tokens of the reference, which are all exact, to an empty cache: sink, pages,
/// residual. A cache does not depend on how its tokens are cut into chunks.
void Measurement::copyTokens(const KvCache& from, KvCache& to) {
  const AttentionShape shape = attentionShape(setup_.model);
  const KvCacheConfig& config = from.config();
  const std::size_t partBytes =
      kernels::bytesOf(config.exactType, shape.nKvHeads * config.groupSize * shape.headDim);
  BackendBuffer scratch(setup_.backend, setup_.ledger, MemoryCategory::kWorkspace, 2 * partBytes);
  const ExactSpan unpacked{config.exactType, scratch.data(), scratch.data() + partBytes,
                           config.groupSize, 0};
  const std::int64_t nLayers = setup_.model.nLayers;
  const auto appendSpans = [&](std::size_t index) {
    to.beginChunk(from.view(0).exact[index].nTokens);
    for (std::int64_t layer = 0; layer < nLayers; ++layer) {
      to.append(layer, from.view(layer).exact[index]);
    }
    to.commitChunk();
  };

  const std::size_t nSinkSpans = config.sinkLength > 0 ? 1 : 0;
  const std::size_t nSpans = from.view(0).exact.size();
  for (std::size_t i = 0; i < std::min(nSinkSpans, nSpans); ++i) appendSpans(i);
  for (std::int64_t page = 0; page < from.view(0).nPages; ++page) {
    to.beginChunk(config.groupSize);
    for (std::int64_t layer = 0; layer < nLayers; ++layer) {
      PageRef ref;
      const void* entry = from.view(layer).pages + page;
      setup_.backend.download(std::as_writable_bytes(std::span(&ref, 1)).data(),
                              static_cast<const std::byte*>(entry), sizeof(ref));
      setup_.backend.unpackPage(shape, ref, unpacked);
      ExactSpan tokens = unpacked;
      tokens.nTokens = ref.nTokens;
      to.append(layer, tokens);
    }
    to.commitChunk();
  }
  for (std::size_t i = nSinkSpans; i < nSpans; ++i) appendSpans(i);
}

void requireExactReference(const KvCacheConfig& reference) {
  if (reference.keyNbits == 16 && reference.valueNbits == 16 && reference.firstLayers == 0) return;
  throw Error(ErrorCode::kInvalidArgument, "The reference of a measurement must be exact.");
}

}  // namespace

std::vector<QualityWindow> planQualityWindows(std::int64_t textTokens, std::int64_t contextLength,
                                              std::int64_t sampleTokens,
                                              std::int64_t windowTokens) {
  if (textTokens < 1) throw Error(ErrorCode::kInvalidArgument, "The text has no tokens.");
  if (sampleTokens < 0 || windowTokens < 0 || windowTokens > contextLength) {
    throw Error(ErrorCode::kInvalidArgument,
                "A window of " + std::to_string(windowTokens) + " tokens with a sample of " +
                    std::to_string(sampleTokens) + " does not fit the context of " +
                    std::to_string(contextLength) + ".",
                "Choose a shorter window or a longer context.");
  }
  const std::int64_t window =
      std::min({windowTokens > 0 ? windowTokens : kQualityWindowTokens, contextLength, textTokens});
  std::vector<QualityWindow> windows;
  if (sampleTokens == 0 || sampleTokens >= textTokens) {
    for (std::int64_t first = 0; first < textTokens; first += window) {
      const std::int64_t nTokens = std::min(window, textTokens - first);
      windows.push_back({first, nTokens, nTokens});
    }
    return windows;
  }
  // As many windows as leave no token to be scored twice.
  const std::int64_t part = std::max<std::int64_t>(1, window / kScoredPartOfWindow);
  std::int64_t nWindows = (sampleTokens + part - 1) / part;
  const auto scoredIn = [&] {
    return std::clamp<std::int64_t>(sampleTokens / nWindows, 1, window);
  };
  while (nWindows > 1 && (textTokens - window) / (nWindows - 1) < scoredIn()) --nWindows;
  for (std::int64_t i = 0; i < nWindows; ++i) {
    const std::int64_t first = nWindows == 1 ? 0 : (textTokens - window) * i / (nWindows - 1);
    windows.push_back({first, window, scoredIn()});
  }
  return windows;
}

std::int64_t scoredTokens(std::span<const QualityWindow> windows) {
  std::int64_t sum = 0;
  for (const QualityWindow& window : windows) sum += window.nScored;
  return sum;
}

QualityReport measureQuality(const QualitySetup& setup, const QualityRequest& request,
                             const QualityProgress& progress, const std::stop_token& stop) {
  requireExactReference(request.reference);
  const auto nIds = static_cast<std::int64_t>(request.ids.size());
  for (const QualityWindow& window : request.windows) {
    const bool isInside = window.first >= 0 && window.nScored >= 1 &&
                          window.nScored <= window.nTokens && window.nTokens <= nIds &&
                          window.first <= nIds - window.nTokens &&
                          window.nTokens <= setup.contextLength;
    if (!isInside) {
      throw Error(ErrorCode::kInvalidArgument, "A window of the sample lies outside the text.");
    }
  }
  if (request.windows.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "The sample is empty.");
  }
  for (const std::int32_t id : request.ids) {
    if (id >= 0 && id < setup.model.vocabSize) continue;
    throw Error(ErrorCode::kInvalidArgument, "Token " + std::to_string(id) +
                                                 " is not in the model's vocabulary of " +
                                                 std::to_string(setup.model.vocabSize) + ".");
  }
  return Measurement(setup, request, progress, stop).run();
}

}  // namespace longhand::engine
