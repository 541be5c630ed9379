#pragma once
// What converting a KV cache means: which page gets which format, what it costs, what it did.
// Pure; the work itself is KvCache::convert.

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/cache/kv_cache_config.h"
#include "kernels/kv_types.h"

namespace longhand::engine {

/// The format of a page after a change of settings to `wanted`. Decided for keys and values apart:
/// more bits than wanted become fewer, others stay, since bits that were dropped cannot come back.
/// Tokens of the page stay together (groupSize), and a part that keeps its codes keeps its scheme.
kernels::PageFormat convertedFormat(const kernels::PageFormat& page,
                                    const kernels::PageFormat& wanted);

/// What is in a cache, by kind of page: enough to say what a change would cost.
struct CacheContents {
  struct Pages {
    std::int64_t layer = 0;
    kernels::PageFormat format;
    std::int64_t nPages = 0;
    std::int64_t nTokens = 0;
  };
  KvCacheConfig config;
  std::int64_t contextLength = 0;
  std::int64_t tokens = 0;           // all, those no longer read included
  std::int64_t forgottenTokens = 0;  // behind a sliding window
  std::int64_t sinkTokens = 0;
  std::int64_t residualTokens = 0;
  std::vector<Pages> pages;
};

/// What a change of settings would do to a cache.
struct ConvertCost {
  std::uint64_t bytesBefore = 0;     // of the tokens in the cache: codes, scales, exact tokens
  std::uint64_t bytesAfter = 0;      // of the same tokens
  bool isInPlace = true;             // no token has to be read again
  std::int64_t tokensToRead = 0;     // 0 when in place, else all
  std::int64_t pagesToConvert = 0;   // to fewer bits
  std::int64_t tokensBelowBits = 0;  // with fewer bits than the settings ask for: only reading them
                                     // again would bring these back
};
/// `contextLength`: the wanted one, in tokens.
ConvertCost convertCost(const CacheContents& contents, const kernels::AttentionShape& shape,
                        std::int64_t nLayers, const KvCacheConfig& wanted,
                        std::int64_t contextLength);

struct ModelConfig;
ConvertCost convertCost(const CacheContents& contents, const ModelConfig& model,
                        const KvCacheConfig& wanted, std::int64_t contextLength);

/// What a change of settings has done.
struct CacheConversion {
  bool isInPlace = true;            // false: the tokens are forgotten and must be read again
  bool isCancelled = false;         // the settings are the old ones
  std::int64_t pagesConverted = 0;  // also when cancelled: fewer bits cannot be taken back
  std::int64_t tokensKept = 0;
  std::uint64_t bytesBefore = 0;  // really allocated, reserved pages included
  std::uint64_t bytesAfter = 0;

  std::int64_t freedBytes() const {
    return static_cast<std::int64_t>(bytesBefore) - static_cast<std::int64_t>(bytesAfter);
  }
};

/// Bytes of pages done and in all, some ten times a second.
using ConvertProgress = std::function<void(std::uint64_t doneBytes, std::uint64_t totalBytes)>;

}  // namespace longhand::engine
