#pragma once
// One sequence of tokens in the KV cache of a model: what is in it, what of a new prompt can be
// reused, how a prompt is cut into chunks.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/graph/llama.h"
#include "engine/session/prefill_progress.h"
#include "engine/session/session_file.h"
#include "engine/session/step_cost.h"

namespace longhand::engine {

/// Throws Error kInvalidArgument unless 1 <= tokens <= kMaxContextLength.
void requireContextLength(std::int64_t tokens);

/// What any thread may read while a session works.
struct SessionCounts {
  std::atomic<std::int64_t> cachedTokens{0};
  std::atomic<std::int64_t> packedTokens{0};
  std::atomic<std::int64_t> exactTokens{0};
  std::atomic<std::int64_t> forgottenTokens{0};
  std::array<std::atomic<std::uint64_t>, kMemoryCategoryCount> unusedBytes{};  // of the cache
};

/// Everything a session is told when it begins. The references must outlive it.
struct SessionSetup {
  kernels::Backend& backend;
  MemoryLedger& ledger;
  Llama& llama;
  const ModelConfig& model;
  SessionCounts& counts;
  KvCacheConfig cache;
  std::int64_t contextLength = 0;
  std::int64_t chunkTokens = 0;       // as EngineOptions::chunkTokens
  std::uint64_t releasableBytes = 0;  // become free with the session that this one will replace
};

/// Tokens to compute from an empty cache, for tests and measurements.
struct Evaluation {
  std::span<const std::int32_t> tokens;
  bool stepwise = false;  // one token at a time, as in decode
  LogitsWanted logits = LogitsWanted::kNone;
  /// Rows from position `first` of `tokens`.
  std::function<void(std::int64_t first, std::int64_t nRows, std::span<const float> logits)>
      onLogits;
  /// As Chunk::onHidden; all tokens are then one chunk.
  std::function<void(std::int64_t index, std::span<const float> hidden)> onHidden;
  std::stop_token stop;
};

/// Owner: one Engine, one thread at a time.
class Session {
 public:
  /// Throws Error kInvalidArgument for a bad config or context, kOutOfMemory when a full context
  /// would not fit the free memory. Allocates nothing yet.
  explicit Session(const SessionSetup& setup);

  const KvCacheConfig& cacheConfig() const { return cache_.config(); }
  std::int64_t contextLength() const { return contextLength_; }
  std::int64_t forgottenTokens() const { return cache_.forgottenTokens(); }
  std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::span<const std::int32_t> tokens() const { return tokens_; }

  /// As KvCache::untouchedBytes().
  std::uint64_t untouchedBytes() const { return cache_.untouchedBytes(); }

  /// Length of the common prefix of the cache and `prompt`.
  std::int64_t commonPrefix(std::span<const std::int32_t> prompt) const;
  /// Of the first n tokens, those that prefill() keeps when the others change. A page whose scales
  /// other tokens have shaped is computed again: at most group_size tokens, and nothing of one chat
  /// shows in the next. None where a sliding window has forgotten what those tokens need.
  std::int64_t reusablePrefix(std::int64_t n) const;

  /// Makes the cache hold exactly `prompt`, computing only what differs, and reserves memory for
  /// `reserveTokens` tokens in all (at least the prompt, at most the context). With `logits` the
  /// last prompt token is computed even if it was there, and logits() are those behind it. Throws
  /// kContextFull when the prompt does not fit (before anything is computed), kInvalidArgument for
  /// an empty prompt or an id outside the vocabulary, kOutOfMemory.
  PrefillResult prefill(std::span<const std::int32_t> prompt, bool logits,
                        std::int64_t reserveTokens,
                        const std::function<void(const PrefillProgress&)>& onProgress,
                        const std::stop_token& stop);
  /// Adds one token. Throws kContextFull when there is no room.
  void step(std::int32_t token);
  /// From now on only the `count` best logits are brought from a device; 0: all of them. On a host
  /// they are all at hand anyway.
  void bringBestLogits(std::int64_t count) { nBestLogits_ = count; }
  /// Behind the last token: logits [vocabSize], or the best of them, best first, where these alone
  /// were brought; then logits() is empty.
  std::span<const float> logits() const { return logits_; }
  std::span<const kernels::ScoredToken> bestLogits() const { return bestLogits_; }

  /// Replaces the contents of the cache. False: stopped. Throws as prefill().
  bool evaluate(const Evaluation& evaluation);

  /// Replaces the contents by `nTokens` random tokens with random keys and values, as fillRandomly
  /// of engine/cache/random_cache.h. Throws kContextFull, kOutOfMemory, kCancelled; the cache is
  /// then empty.
  void fillRandomly(std::int64_t nTokens, std::uint64_t seed, const std::stop_token& stop);
  /// What step() would read. `model` is the one that the Llama computes.
  DecodeBytes decodeBytes(const Model& model) const {
    return longhand::engine::decodeBytes(model, cache_);
  }

  /// Whether convert() can keep the tokens.
  bool canConvert(const KvCacheConfig& config, std::int64_t contextLength) const;
  /// KvCache::convert, and another context length; requires canConvert(). Throws as the
  /// constructor, too.
  CacheConversion convert(const KvCacheConfig& config, std::int64_t contextLength,
                          const ConvertProgress& progress, const std::stop_token& stop);
  CacheContents contents() const;

  /// Forgets everything and gives the memory back.
  void clear();

  /// As sessionFileSize().
  std::uint64_t savedBytes(const SessionIdentity& identity) const {
    return sessionFileSize(identity, cache_);
  }
  /// As saveSessionFile(); returns the file's bytes.
  std::uint64_t save(const std::filesystem::path& path, const SessionIdentity& identity,
                     const SessionProgress& progress, const std::stop_token& stop) const;
  /// As restoreSessionFile(); returns the number of tokens.
  std::int64_t restore(const std::filesystem::path& path, const SessionIdentity& identity,
                       const SessionProgress& progress, const std::stop_token& stop);

 private:
  bool forward(const Chunk& chunk);
  void requireMemory(const KvCacheConfig& config, std::int64_t contextLength,
                     std::uint64_t releasableBytes) const;
  void requireFits(std::span<const std::int32_t> prompt) const;
  std::int64_t chunkLength(std::int64_t nTokens) const;
  void publishCounts();
  void publishUnusedBytes();

  kernels::Backend& backend_;
  Llama& llama_;
  SessionCounts& counts_;
  ModelConfig model_;
  std::int64_t contextLength_;
  std::int64_t chunkTokens_;
  KvCache cache_;
  std::vector<std::int32_t> tokens_;  // those in the cache
  std::int64_t nBestLogits_ = 0;
  std::vector<float> logits_;                     // [vocabSize], or empty
  std::vector<kernels::ScoredToken> bestLogits_;  // likewise, up to nBestLogits_
};

}  // namespace longhand::engine
