#pragma once
// The KV cache: per layer a sink, quantized pages and an exact residual. DESIGN.md section 2.
//
// Schedule (policy `page` of shared/reference/README.md): the first sinkLength tokens stay exact;
// whenever residualLength + groupSize tokens have gathered behind them, the oldest groupSize become
// one page. So between residualLength and residualLength + groupSize - 1 newest tokens are exact.
//
// Protocol of one chunk of n tokens:
//   cache.reserve(cache.length() + n);
//   cache.beginChunk(n);
//   for each layer: attend(view(layer), chunk K and V); cache.append(layer, chunk);
//   cache.commitChunk();                 // or rollbackChunk(): everything is as before beginChunk

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv_cache_config.h"
#include "engine/memory_ledger.h"
#include "kernels/backend.h"

namespace longhand::engine {

/// Owner: one Session. Not thread-safe. The backend and the ledger must outlive it.
class KvCache {
 public:
  /// Throws Error kInvalidArgument for a bad config.
  KvCache(kernels::Backend& backend, MemoryLedger& ledger, const kernels::AttentionShape& shape,
          std::int64_t nLayers, const KvCacheConfig& config);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  ~KvCache();

  const KvCacheConfig& config() const;
  std::int64_t length() const;        // committed tokens
  std::int64_t packedTokens() const;  // of them in pages
  std::int64_t exactTokens() const;   // sink and residual

  /// Takes the memory that `tokens` tokens will need, so that no append can fail later. Throws
  /// kOutOfMemory; the cache is then unchanged.
  void reserve(std::int64_t tokens);

  /// What a layer's queries attend to. Valid until the next non-const call.
  kernels::KvView view(std::int64_t layer) const;

  void beginChunk(std::int64_t nTokens);
  /// Adds the chunk's tokens (exactly nTokens of beginChunk) to one layer: into the sink, the
  /// residual and, where due, pages.
  void append(std::int64_t layer, const kernels::ExactSpan& chunk);
  void commitChunk();
  void rollbackChunk();

  /// Keeps the first n tokens (0 <= n <= length). Inside a page the valid count is lowered; later
  /// tokens start in the residual.
  void truncate(std::int64_t n);
  /// Forgets everything; keeps no byte of an earlier chat readable.
  void clear();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhand::engine
