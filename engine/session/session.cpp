#include "engine/session/session.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/throttle.h"
#include "engine/cache/kv_arena.h"
#include "engine/cache/random_cache.h"

namespace longhand::engine {
namespace {

using Clock = std::chrono::steady_clock;

/// Turns tiles into reports: at once, then ten times a second, and at the end.
class ProgressReporter {
 public:
  ProgressReporter(const std::function<void(const PrefillProgress&)>& callback,
                   std::int64_t tokensTotal, std::int64_t tokensReused)
      : callback_(callback), tokensTotal_(tokensTotal), tokensReused_(tokensReused) {
    if (throttle_.isDue()) report(0.0);
  }

  void update(double tokensDone) {
    const bool isDone = tokensDone >= static_cast<double>(tokensTotal_);
    if (throttle_.isDue() || isDone) report(tokensDone);
  }

 private:
  void report(double tokensDone) {
    if (!callback_) return;
    PrefillProgress progress;
    progress.tokensDone = static_cast<std::int64_t>(tokensDone);
    progress.tokensTotal = tokensTotal_;
    progress.tokensReused = tokensReused_;
    const double seconds = secondsSince(start_);
    if (tokensDone > 0.0 && seconds > 0.0) {
      progress.tokensPerSecond = tokensDone / seconds;
      progress.secondsLeft =
          (static_cast<double>(tokensTotal_) - tokensDone) / progress.tokensPerSecond;
    }
    callback_(progress);
  }

  const std::function<void(const PrefillProgress&)>& callback_;
  std::int64_t tokensTotal_;
  std::int64_t tokensReused_;
  Clock::time_point start_ = Clock::now();
  Throttle throttle_{std::chrono::milliseconds(100)};
};

}  // namespace

void requireContextLength(std::int64_t tokens) {
  if (tokens >= 1 && tokens <= kMaxContextLength) return;
  throw Error(ErrorCode::kInvalidArgument, "The context length must be between 1 and " +
                                               std::to_string(kMaxContextLength) + " tokens, not " +
                                               std::to_string(tokens) + ".");
}

Session::Session(const SessionSetup& setup)
    : backend_(setup.backend),
      llama_(setup.llama),
      counts_(setup.counts),
      model_(setup.model),
      contextLength_(setup.contextLength),
      chunkTokens_(setup.chunkTokens),
      cache_(setup.backend, setup.ledger, attentionShape(setup.model), setup.model.nLayers,
             setup.cache) {
  requireContextLength(contextLength_);
  requireMemory(setup.cache, contextLength_, setup.releasableBytes);
  publishCounts();
}

/// For a full context.
void Session::requireMemory(const KvCacheConfig& config, std::int64_t contextLength,
                            std::uint64_t releasableBytes) const {
  const std::uint64_t full =
      kvCacheUse(config, attentionShape(model_), model_.nLayers, contextLength).total();
  const kernels::DeviceMemoryInfo info = backend_.memoryInfo();
  if (info.totalBytes != 0 && info.freeBytes + releasableBytes < full) {
    throw outOfMemory(full, info.freeBytes + releasableBytes);
  }
}

bool Session::canConvert(const KvCacheConfig& config, std::int64_t contextLength) const {
  return config.exactType == cache_.config().exactType && length() <= contextLength;
}

CacheConversion Session::convert(const KvCacheConfig& config, std::int64_t contextLength,
                                 const ConvertProgress& progress, const std::stop_token& stop) {
  config.validate();
  requireContextLength(contextLength);
  // What was never written counts as free already.
  const std::uint64_t promisedBytes = backend_.usesHostMemory() ? cache_.untouchedBytes() : 0;
  requireMemory(config, contextLength,
                cache_.allocatedBytes() - std::min(cache_.allocatedBytes(), promisedBytes));
  const CacheConversion result = cache_.convert(config, progress, stop);
  if (!result.isCancelled) contextLength_ = contextLength;
  publishCounts();
  return result;
}

CacheContents Session::contents() const {
  CacheContents contents = cache_.contents();
  contents.contextLength = contextLength_;
  return contents;
}

void Session::publishCounts() {
  counts_.cachedTokens = cache_.length();
  counts_.packedTokens = cache_.packedTokens();
  counts_.exactTokens = cache_.exactTokens();
  counts_.forgottenTokens = cache_.forgottenTokens();
  publishUnusedBytes();
}

void Session::publishUnusedBytes() {
  const MemoryUse unused = cache_.unusedBytes();
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    counts_.unusedBytes[i] = unused.bytes[i];
  }
}

std::int64_t Session::commonPrefix(std::span<const std::int32_t> prompt) const {
  const auto end = std::mismatch(tokens_.begin(), tokens_.end(), prompt.begin(), prompt.end());
  return end.first - tokens_.begin();
}

std::int64_t Session::reusablePrefix(std::int64_t n) const {
  if (!cache_.canTruncateTo(n)) return 0;
  const std::int64_t whole = cache_.wholePagePrefix(n);
  return cache_.canTruncateTo(whole) ? whole : 0;
}

void Session::requireFits(std::span<const std::int32_t> prompt) const {
  if (prompt.empty()) throw Error(ErrorCode::kInvalidArgument, "The prompt has no tokens.");
  for (const std::int32_t id : prompt) {
    if (id >= 0 && id < model_.vocabSize) continue;
    throw Error(ErrorCode::kInvalidArgument, "Token " + std::to_string(id) +
                                                 " is not in the model's vocabulary of " +
                                                 std::to_string(model_.vocabSize) + ".");
  }
  const auto nTokens = static_cast<std::int64_t>(prompt.size());
  if (nTokens <= contextLength_) return;
  throw Error(ErrorCode::kContextFull,
              "The prompt has " + std::to_string(nTokens) + " tokens, and the context holds " +
                  std::to_string(contextLength_) + ".",
              "Choose a longer context, shorten the prompt or start a new chat.");
}

/// The option, else all that is left where its workspace fits the free memory, else the largest
/// that does.
std::int64_t Session::chunkLength(std::int64_t nTokens) const {
  if (chunkTokens_ > 0) return std::min(nTokens, chunkTokens_);
  const kernels::DeviceMemoryInfo info = backend_.memoryInfo();
  if (info.totalBytes == 0) return nTokens;
  // A tenth stays for others and for what the system rounds up.
  const auto freeBytes = static_cast<std::uint64_t>(0.9 * static_cast<double>(info.freeBytes));
  const std::uint64_t promisedBytes = backend_.usesHostMemory() ? cache_.untouchedBytes() : 0;
  const std::uint64_t undoBytes =
      kvUndoBytes(cache_.config(), attentionShape(model_), model_.nLayers);
  const auto fits = [&](std::int64_t chunk) {
    const std::uint64_t bytes = prefillChunkBytes(model_, cache_.config().exactType, chunk);
    return bytes + promisedBytes + undoBytes <= freeBytes;
  };
  if (fits(nTokens)) return nTokens;
  std::int64_t low = 1;
  std::int64_t high = nTokens;  // does not fit
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

PrefillResult Session::prefill(std::span<const std::int32_t> prompt, bool logits,
                               std::int64_t reserveTokens,
                               const std::function<void(const PrefillProgress&)>& onProgress,
                               const std::stop_token& stop) {
  requireFits(prompt);
  const Clock::time_point start = Clock::now();
  const auto nTokens = static_cast<std::int64_t>(prompt.size());
  const std::int64_t kept =
      reusablePrefix(std::min(commonPrefix(prompt), logits ? nTokens - 1 : nTokens));
  const std::int64_t reserved = std::clamp(reserveTokens, nTokens, contextLength_);
  if (kept == 0) {
    clear();
  } else {
    cache_.truncate(kept);
    tokens_.resize(static_cast<std::size_t>(kept));
    cache_.shrinkTo(reserved);
    publishCounts();
  }
  const std::int64_t toCompute = nTokens - kept;
  if (toCompute > 0) {
    cache_.reserve(nTokens, chunkTokens_ > 0 ? std::min(chunkTokens_, toCompute) : toCompute);
  }
  cache_.reserve(reserved);
  publishUnusedBytes();

  PrefillResult result;
  result.reusedTokens = kept;
  ProgressReporter reporter(onProgress, nTokens - kept, kept);
  while (length() < nTokens && !result.isCancelled) {
    const std::int64_t first = length();
    Chunk chunk;
    chunk.tokens = prompt.subspan(static_cast<std::size_t>(first),
                                  static_cast<std::size_t>(chunkLength(nTokens - first)));
    chunk.sequenceLength = nTokens;
    const bool isLast = first + static_cast<std::int64_t>(chunk.tokens.size()) == nTokens;
    if (isLast && logits) chunk.logits = LogitsWanted::kLast;
    chunk.onProgress = [&](double done) {
      publishUnusedBytes();
      reporter.update(static_cast<double>(first - kept) + done);
    };
    chunk.stop = stop;
    result.isCancelled = !forward(chunk);
  }
  result.computedTokens = length() - kept;
  result.seconds = secondsSince(start);
  return result;
}

void Session::step(std::int32_t token) {
  if (length() >= contextLength_) {
    throw Error(ErrorCode::kContextFull,
                "The context is full: it holds " + std::to_string(contextLength_) + " tokens.",
                "Choose a longer context or start a new chat.");
  }
  Chunk chunk;
  chunk.tokens = std::span(&token, 1);
  chunk.logits = LogitsWanted::kLast;
  forward(chunk);
}

bool Session::evaluate(const Evaluation& evaluation) {
  requireFits(evaluation.tokens);
  const auto nTokens = static_cast<std::int64_t>(evaluation.tokens.size());
  clear();
  cache_.reserve(nTokens, evaluation.stepwise ? 1 : nTokens);
  while (length() < nTokens) {
    const std::int64_t first = length();
    const std::int64_t rest = nTokens - first;
    const std::int64_t inOneGo = evaluation.onHidden ? rest : chunkLength(rest);
    const std::int64_t count = evaluation.stepwise ? 1 : inOneGo;
    Chunk chunk;
    chunk.tokens =
        evaluation.tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    // Stepwise is decode: nothing is known of the tokens to come.
    chunk.sequenceLength = evaluation.stepwise ? 0 : nTokens;
    const bool isLast = first + count == nTokens;
    if (evaluation.logits == LogitsWanted::kAll || isLast) chunk.logits = evaluation.logits;
    chunk.onLogits = [&](std::int64_t row, std::int64_t nRows, std::span<const float> rows) {
      if (evaluation.onLogits) evaluation.onLogits(first + row, nRows, rows);
    };
    chunk.onHidden = evaluation.onHidden;
    chunk.stop = evaluation.stop;
    if (!forward(chunk)) return false;
  }
  return true;
}

void Session::fillRandomly(std::int64_t nTokens, std::uint64_t seed, const std::stop_token& stop) {
  clear();
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(nTokens));
  for (std::int32_t& token : tokens) {
    token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(model_.vocabSize));
  }
  if (nTokens > 0) requireFits(tokens);
  longhand::engine::fillRandomly(cache_, backend_, attentionShape(model_), model_.nLayers, nTokens,
                                 seed, stop);
  tokens_ = std::move(tokens);
  publishCounts();
}

bool Session::forward(const Chunk& chunk) {
  Chunk own = chunk;
  if (!chunk.onLogits && !backend_.usesHostMemory()) own.nBestLogits = nBestLogits_;
  own.onBestLogits = [&](std::int64_t /*token*/, std::span<const kernels::ScoredToken> best) {
    bestLogits_.assign(best.begin(), best.end());
    logits_.clear();
  };
  own.onLogits = [&](std::int64_t first, std::int64_t nRows, std::span<const float> rows) {
    const std::span<const float> last = rows.last(static_cast<std::size_t>(model_.vocabSize));
    logits_.assign(last.begin(), last.end());
    bestLogits_.clear();
    if (chunk.onLogits) chunk.onLogits(first, nRows, rows);
  };
  if (!llama_.forward(cache_, own)) return false;
  tokens_.insert(tokens_.end(), chunk.tokens.begin(), chunk.tokens.end());
  publishCounts();
  return true;
}

void Session::clear() {
  cache_.clear();
  tokens_.clear();
  logits_.clear();
  bestLogits_.clear();
  publishCounts();
}

std::uint64_t Session::save(const std::filesystem::path& path, const SessionIdentity& identity,
                            const SessionProgress& progress, const std::stop_token& stop) const {
  return saveSessionFile(path, identity, backend_, cache_, tokens_, progress, stop);
}

std::int64_t Session::restore(const std::filesystem::path& path, const SessionIdentity& identity,
                              const SessionProgress& progress, const std::stop_token& stop) {
  try {
    tokens_ = restoreSessionFile(path, identity, contextLength_, backend_, cache_, progress, stop);
  } catch (...) {
    if (cache_.length() != length()) clear();  // it had to go first
    throw;
  }
  logits_.clear();
  bestLogits_.clear();
  publishCounts();
  return length();
}

}  // namespace longhand::engine
