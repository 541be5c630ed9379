#pragma once
// The KV cache: per layer a sink, quantized pages and an exact residual. DESIGN.md section 2.
//
// Schedule (policy `page` of shared/reference/README.md): the first sinkLength tokens stay exact;
// whenever residualLength + groupSize tokens have gathered behind them, the oldest groupSize become
// one page. So between residualLength and residualLength + groupSize - 1 newest tokens are exact.
//
// The exact tokens behind the sink lie in a ring of residualLength + groupSize tokens, so nothing
// is ever moved: packing advances the ring's start, and a view has one or two spans of it.
//
// Sliding window (config.slidingWindow W > 0): pages whose tokens are all older than the newest W
// (and a margin, heldTokens) are freed when a chunk is committed; the sink stays. Positions stay
// absolute: length() counts forgotten tokens, too.
//
// convert() is in engine/cache/kv_cache_convert.cpp: pages may have different formats, and more
// tokens than the config's sinkLength may be in the sink, after it.
//
// Protocol of one chunk of n tokens (layer by layer; layers may be appended in any order):
//   cache.reserve(cache.length() + n, n);
//   cache.beginChunk(n);
//   for each layer: attend(view(layer), chunk K and V); cache.append(layer, chunk);
//     (a chunk that is stored in chunkPlace(layer) from the start need not be moved by append)
//   cache.commitChunk();                 // or rollbackChunk(): everything is as before beginChunk

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "engine/base/memory_ledger.h"
#include "engine/cache/conversion_cost.h"
#include "engine/cache/kv_bytes.h"
#include "engine/cache/kv_cache_config.h"
#include "kernels/backend.h"

namespace longhand::engine {

/// How many tokens stand where: the same in all layers, except while a chunk is being appended.
struct KvCacheCounts {
  std::int64_t sinkTokens = 0;
  std::int64_t forgottenTokens = 0;  // behind the sink, no longer read
  std::int64_t packedTokens = 0;     // sum of the pages' valid tokens
  std::int64_t nPages = 0;
  std::int64_t ringFirst = 0;  // slot of the oldest token of the residual
  std::int64_t ringTokens = 0;

  std::int64_t length() const { return sinkTokens + forgottenTokens + packedTokens + ringTokens; }
};

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
  std::int64_t length() const;           // committed tokens
  std::int64_t packedTokens() const;     // of them in pages
  std::int64_t exactTokens() const;      // sink and residual
  std::int64_t forgottenTokens() const;  // behind the sink, no longer read

  /// Takes the memory that `tokens` tokens will need, so that no append can fail later. Throws
  /// kOutOfMemory; the cache is then unchanged. Fewer tokens than before change nothing.
  /// `chunkToCome` only matters to a sliding window: its pages are freed when a chunk is committed,
  /// so that longer chunks need more of them at once.
  void reserve(std::int64_t tokens, std::int64_t chunkToCome = 1);
  /// Gives back memory that `tokens` tokens will not need, where whole slabs of it are empty.
  void shrinkTo(std::int64_t tokens);
  /// Reserved bytes that were never written: a CPU's free memory does not know of them yet.
  std::uint64_t untouchedBytes() const;
  /// Of what the ledger counts for this cache: the bytes in which no token stands yet. May be
  /// called while a chunk is at hand.
  MemoryUse unusedBytes() const;

  /// Of the committed tokens.
  KvCacheCounts counts() const;
  /// The layer's page table on the host, oldest page first; `data` are addresses of backend memory.
  /// Valid until the next non-const call.
  std::span<const kernels::PageRef> pages(std::int64_t layer) const;

  /// What a layer's queries attend to. Valid until the next non-const call.
  kernels::KvView view(std::int64_t layer) const;

  /// nTokens > 0, reserved before. Throws kOutOfMemory when there is no room for the copy of the
  /// residual that rollbackChunk needs (made only where the chunk will overwrite it, counted as
  /// workspace, at most kvUndoBytes); the cache is then unchanged.
  void beginChunk(std::int64_t nTokens);
  /// Where append() would put the chunk at hand, if that is free and in one piece: its tokens may
  /// be stored there at once. nTokens is 0 where it is not. Valid until the layer's append().
  kernels::ExactSpan chunkPlace(std::int64_t layer) const;
  /// Adds the chunk's tokens (exactly nTokens of beginChunk) to one layer: into the sink, the
  /// residual and, where due, pages.
  void append(std::int64_t layer, const kernels::ExactSpan& chunk);
  /// Every layer must have been appended.
  void commitChunk();
  /// Any number of layers may have been appended. What view() shows is bit-equal to before.
  void rollbackChunk();

  /// False where a sliding window has forgotten what the newest W of the first n tokens need:
  /// those tokens must then be read again from the start.
  bool canTruncateTo(std::int64_t n) const;
  /// Keeps the first n tokens (0 <= n <= length, canTruncateTo(n)). Inside a page the valid count
  /// is lowered; later tokens start in the residual.
  void truncate(std::int64_t n);
  /// The most tokens, at most n, that truncate() keeps without cutting a quantized page. The codes
  /// of a cut page owe their scales to the tokens behind the cut, too.
  std::int64_t wholePagePrefix(std::int64_t n) const;
  /// Adopts other settings and keeps all tokens. Pages with more bits than wanted (convertedFormat)
  /// are repacked from what their codes say, in place: at no time are there more than 64 MiB beside
  /// the old size, unless the new residual or sink itself is longer. Pages with as many bits or
  /// fewer stay as they are. A shorter residual is packed down at once; a longer one fills up with
  /// the tokens to come, and only then holds its promise. Tokens in the sink stay there. A sliding
  /// window forgets at once, and its memory is free.
  ///
  /// `stop` is heeded between pages. Where a cancel or an error (kOutOfMemory, kDevice, what
  /// `progress` throws) ends it early, every token is still there with the old settings, and of
  /// the pages only those of whole batches (some 32 MiB) have fewer bits: a smaller cache is as it
  /// was. Throws kInvalidArgument for a bad config or another exactType.
  CacheConversion convert(const KvCacheConfig& wanted, const ConvertProgress& progress,
                          const std::stop_token& stop);
  /// Of exact tokens and pages, reserved ones included.
  std::uint64_t allocatedBytes() const;
  /// For convertCost(); without the context length.
  CacheContents contents() const;

  /// Forgets everything: zeroes what was used and gives all memory back.
  void clear();

  /// Replaces everything by saved contents. `tables` holds each layer's pages (their `data` counts
  /// for nothing); `fill` writes the bytes that the new cache shows in pages() and view(). Requires
  /// counts and formats that a cache of this config can have. Throws kOutOfMemory, and what `fill`
  /// throws; the cache is unchanged then. Both caches exist while `fill` runs.
  void replace(const KvCacheCounts& counts, std::span<const std::vector<kernels::PageRef>> tables,
               const std::function<void(const KvCache& cache)>& fill);
  /// What replace() allocates.
  std::uint64_t replacementBytes(std::span<const std::vector<kernels::PageRef>> tables) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhand::engine
