#pragma once
// What is behind KvCache: kv_cache.cpp appends, truncates and shows, kv_convert.cpp converts.
// Private to them.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/kv_arena.h"
#include "engine/cache/kv_bytes.h"
#include "engine/cache/kv_cache.h"
#include "engine/cache/kv_schedule.h"

namespace longhand::engine {

struct KvCache::Impl {
  using Counts = KvCacheCounts;
  struct Layer {
    kernels::PageFormat format;  // of pages to come
    Counts counts;
    Counts before;                            // at beginChunk
    std::vector<kernels::PageRef> pages;      // host copy of the layer's page table
    BackendBuffer memory;                     // sink keys, sink values, ring keys, ring values
    std::array<kernels::ExactSpan, 3> exact;  // what view() shows: sink, residual in 1 or 2 pieces
    std::size_t nExact = 0;
    bool isAppended = false;  // in the chunk at hand
  };
  /// Up to two stretches of a ring.
  struct Stretches {
    std::array<kernels::ExactSpan, 2> spans;
    std::size_t count = 0;
  };

  struct Demands {
    std::vector<PageDemand> pages;  // by format
    std::int64_t mostInALayer = 0;
  };

  Impl(kernels::Backend& backendIn, MemoryLedger& ledgerIn, const kernels::AttentionShape& shapeIn,
       std::int64_t nLayers, const KvCacheConfig& configIn);

  std::int64_t nLayers() const { return static_cast<std::int64_t>(layers.size()); }
  const Counts& counts() const { return layers.front().counts; }
  /// Adopts the config for tokens to come.
  void setConfig(const KvCacheConfig& newConfig);

  /// Sink or ring in a layer's memory of these capacities.
  kernels::ExactSpan exactPart(std::byte* memory, std::int64_t sinkTokens, std::int64_t ringTokens,
                               bool isRing) const;
  kernels::ExactSpan sink(std::size_t layer) const;
  kernels::ExactSpan ring(std::size_t layer) const;
  /// Where the layer keeps `nTokens` tokens of its residual, counted from the ring's first slot.
  Stretches ringStretches(std::size_t layer, std::int64_t firstToken, std::int64_t nTokens) const;
  void refreshExact(std::size_t layer);
  /// Throws kOutOfMemory; nothing has changed then.
  void takeExactMemory(std::int64_t sinkTokens, std::int64_t ringTokens);
  void dropExactMemory();
  /// Tokens that will still go to the sink: none once there are others behind it.
  std::int64_t sinkRoom(const Counts& counts) const;

  kernels::PageRef* table(std::size_t layer) const;
  /// Makes room for `capacity` pages in every layer's table. Throws kOutOfMemory.
  void growTable(std::int64_t capacity);
  /// Brings entries [first, pages.size()) of the layer's table in backend memory up to date.
  void uploadTable(std::size_t layer, std::size_t first);
  /// Drops the newest pages until `nPages` are left.
  void dropPages(std::size_t layer, std::int64_t nPages);
  /// Free pages that `tokens` tokens in all will need, by format.
  Demands demandsUpTo(std::int64_t tokens, std::int64_t chunkToCome) const;
  PageSchedule schedule(const Layer& layer) const;

  void takePages(const Counts& counts, std::span<const std::vector<kernels::PageRef>> tables);
  void packDuePages(std::size_t layer, const kernels::ExactSpan& rest, std::int64_t firstPage,
                    std::int64_t endPage);
  void storeRing(std::size_t layer, const kernels::ExactSpan& rest, std::int64_t firstToken);
  /// Drops the layer's pages that the sliding window has left behind.
  void forgetOldPages(std::size_t layer);
  void saveResidual(std::size_t layer);
  void restoreResidual(std::size_t layer);
  kernels::ExactSpan undoSpan(std::size_t layer) const;

  // kv_convert.cpp
  class Repacker;
  void moveExact(std::int64_t newSinkCapacity, std::int64_t newRingCapacity);
  void packOverdue();
  std::uint64_t allocatedBytes() const;
  bool convertPages(const KvCacheConfig& wanted, const ConvertProgress& progress,
                    const std::stop_token& stop, CacheConversion& result);
  void forgetAndCompact();

  kernels::Backend& backend;
  MemoryLedger& ledger;
  kernels::AttentionShape shape;
  KvCacheConfig config;
  KvArena arena;
  BackendBuffer pageTable;  // PageRef [nLayers, tableCapacity]
  std::int64_t tableCapacity = 0;
  std::vector<Layer> layers;
  std::int64_t sinkCapacity = 0;  // of each layer's memory, in tokens
  std::int64_t ringCapacity = 0;  // likewise; residualLength + groupSize
  std::int64_t chunkTokens = 0;   // 0: no chunk at hand
  std::int64_t skippedPages = 0;  // of the chunk: due, but behind the window already
  BackendBuffer undo;             // residuals that the chunk overwrites, [nLayers][keys, values]
};

}  // namespace longhand::engine
