#pragma once
// What a KV cache loses: perplexity of a text and distance to the predictions of an exact cache,
// for several caches at once (Engine::measureQuality).
//
// A sample of the text is cut into windows. Each begins with BOS and knows nothing of the one
// before. The first part of a window is prefilled, as a prompt is: its tokens attend exactly to
// each other and are then packed. The rest is scored: each token is predicted from the cache and
// then fed alone, as answers are made. All caches go forward side by side, token by token, so that
// of the exact predictions only one row is ever kept.

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/base/memory_ledger.h"
#include "engine/cache/kv_cache_config.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"

namespace longhand::engine {

class Llama;

/// A stretch of the text: tokens [first, first + nTokens), of which the last nScored are scored.
struct QualityWindow {
  std::int64_t first = 0;
  std::int64_t nTokens = 0;
  std::int64_t nScored = 0;

  bool operator==(const QualityWindow&) const = default;
};

inline constexpr std::int64_t kQualityWindowTokens = 2048;

/// Which parts of a text of `textTokens` are measured. At most `sampleTokens` tokens are scored
/// (0, or more than the text has: all of them, in windows side by side, nothing prefilled), else in
/// windows evenly spaced over the text. `windowTokens` 0: kQualityWindowTokens, or what the text or
/// the context has where that is less. Throws Error kInvalidArgument for an empty text, negative
/// numbers and a window beyond the context.
std::vector<QualityWindow> planQualityWindows(std::int64_t textTokens, std::int64_t contextLength,
                                              std::int64_t sampleTokens, std::int64_t windowTokens);

/// Tokens that are scored.
std::int64_t scoredTokens(std::span<const QualityWindow> windows);

struct QualityCandidate {
  std::string id;  // of a preset, or any name
  KvCacheConfig cache;
};

struct QualityRequest {
  std::span<const std::int32_t> ids;  // of the text, without BOS
  std::vector<QualityWindow> windows;
  std::vector<QualityCandidate> candidates;
  /// What candidates are compared with. Its exactType holds for them, too.
  KvCacheConfig reference = {.keyNbits = 16, .valueNbits = 16};
};

/// One cache, over all scored tokens. KL is that of the next-token distribution from the
/// reference's, sum of p ln(p / q), in nats.
struct QualityRow {
  std::string id;
  KvCacheConfig cache;
  double perplexity = 0.0;
  double meanKl = 0.0;
  double p99Kl = 0.0;             // 99 % of the scored tokens have at most this
  double equalTopShare = 0.0;     // of scored tokens whose likeliest next token is the reference's
  std::int64_t packedTokens = 0;  // in pages at the end of the longest window
  std::uint64_t cacheBytes = 0;   // of a full context
};

struct QualityReport {
  QualityRow reference;
  std::vector<QualityRow> rows;  // in the order of the candidates
  std::int64_t scoredTokens = 0;
  std::int64_t contextLength = 0;  // that cacheBytes are for
};

/// Tokens that went through the model, prefilled or fed, over all caches.
using QualityProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// What the measurement works with: everything of a loaded model but its session. The references
/// must outlive the call.
struct QualitySetup {
  kernels::Backend& backend;
  MemoryLedger& ledger;
  Llama& llama;
  const ModelConfig& model;
  std::int64_t contextLength = 0;
};

/// As Engine::measureQuality().
QualityReport measureQuality(const QualitySetup& setup, const QualityRequest& request,
                             const QualityProgress& progress, const std::stop_token& stop);

}  // namespace longhand::engine
