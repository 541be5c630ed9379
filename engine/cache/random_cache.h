#pragma once
// Fills a KV cache with random contents, so that speed behind 100,000 tokens is measured in
// seconds: a kernel's time depends on formats and sizes, hardly on the numbers.

#include <cstdint>
#include <stop_token>

#include "engine/cache/kv_cache.h"
#include "kernels/backend.h"

namespace longhand::engine {

/// Makes `cache` hold `nTokens` (>= 0) tokens, divided into sink, pages and residual as a cache is
/// that was fed with them one by one. Exact tokens are random with a standard deviation of 1. Pages
/// are packed by the backend from such tokens: a few of each format, and all others are copies of
/// these, written to memory of their own. The same seed gives the same contents. `shape` is the
/// cache's. Throws Error kOutOfMemory, kCancelled; the cache is then as before or empty.
void fillRandomly(KvCache& cache, kernels::Backend& backend, const kernels::AttentionShape& shape,
                  std::int64_t nLayers, std::int64_t nTokens, std::uint64_t seed,
                  const std::stop_token& stop);

}  // namespace longhand::engine
