#pragma once
// How far the reading of a prompt has come, and what it did.

#include <cstdint>

namespace longhand::engine {

struct PrefillProgress {
  std::int64_t tokensDone = 0;  // of those that have to be computed: tokens x layers / layers
  std::int64_t tokensTotal = 0;
  std::int64_t tokensReused = 0;  // found in the cache, not computed again
  double tokensPerSecond = 0.0;
  double secondsLeft = 0.0;
};

struct PrefillResult {
  std::int64_t computedTokens = 0;
  std::int64_t reusedTokens = 0;  // found in the cache
  double seconds = 0.0;
  bool isCancelled = false;  // the cache then holds the reused tokens and the whole chunks done
};

}  // namespace longhand::engine
