#include "engine/cache/kv_cache_impl.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/cache/kv_arena.h"
#include "engine/cache/kv_schedule.h"

namespace longhand::engine {
namespace {

using kernels::AttentionShape;
using kernels::ExactSpan;
using kernels::PageFormat;
using kernels::PageRef;

}  // namespace

// --- Impl ---------------------------------------------------------------------------------------

KvCache::Impl::Impl(kernels::Backend& backendIn, MemoryLedger& ledgerIn,
                    const AttentionShape& shapeIn, std::int64_t nLayers,
                    const KvCacheConfig& configIn)
    : backend(backendIn), ledger(ledgerIn), shape(shapeIn), arena(backendIn, ledgerIn, shapeIn) {
  configIn.validate();
  layers.resize(static_cast<std::size_t>(nLayers));
  setConfig(configIn);
}

void KvCache::Impl::setConfig(const KvCacheConfig& newConfig) {
  config = newConfig;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].format = config.pageFormat(static_cast<std::int64_t>(i));
  }
}

ExactSpan KvCache::Impl::exactPart(std::byte* memory, std::int64_t sinkTokens,
                                   std::int64_t ringTokens, bool isRing) const {
  const std::int64_t capacity = isRing ? ringTokens : sinkTokens;
  std::byte* start = memory + (isRing ? 2 * exactBytes(config.exactType, shape, sinkTokens) : 0);
  return {config.exactType, start, start + exactBytes(config.exactType, shape, capacity), capacity,
          0};
}

ExactSpan KvCache::Impl::sink(std::size_t layer) const {
  return exactPart(layers[layer].memory.data(), sinkCapacity, ringCapacity, false);
}

ExactSpan KvCache::Impl::ring(std::size_t layer) const {
  return exactPart(layers[layer].memory.data(), sinkCapacity, ringCapacity, true);
}

KvCache::Impl::Stretches KvCache::Impl::ringStretches(std::size_t layer, std::int64_t firstToken,
                                                      std::int64_t nTokens) const {
  Stretches result;
  if (nTokens == 0) return result;
  const ExactSpan whole = ring(layer);
  std::int64_t slot = (layers[layer].counts.ringFirst + firstToken) % whole.tokenCapacity;
  while (nTokens > 0) {
    const std::int64_t run = std::min(nTokens, whole.tokenCapacity - slot);
    result.spans[result.count++] = whole.slice(slot, run, shape.headDim);
    nTokens -= run;
    slot = 0;
  }
  return result;
}

void KvCache::Impl::refreshExact(std::size_t layer) {
  Layer& each = layers[layer];
  each.nExact = 0;
  if (each.counts.sinkTokens > 0) {
    each.exact[each.nExact++] = sink(layer).slice(0, each.counts.sinkTokens, shape.headDim);
  }
  const Stretches residual = ringStretches(layer, 0, each.counts.ringTokens);
  for (std::size_t i = 0; i < residual.count; ++i) each.exact[each.nExact++] = residual.spans[i];
}

std::int64_t KvCache::Impl::sinkRoom(const Counts& counts) const {
  if (counts.length() > counts.sinkTokens) return 0;
  return std::max<std::int64_t>(0, config.sinkLength - counts.sinkTokens);
}

void KvCache::Impl::takeExactMemory(std::int64_t sinkTokens, std::int64_t ringTokens) {
  const std::uint64_t bytes = exactLayerBytes(config.exactType, shape, sinkTokens, ringTokens);
  requireFreeMemory(backend, bytes * static_cast<std::uint64_t>(nLayers()));
  std::vector<BackendBuffer> memory;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    memory.emplace_back(backend, ledger, MemoryCategory::kKvExact, bytes);
  }
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].memory = std::move(memory[i]);
  sinkCapacity = sinkTokens;
  ringCapacity = ringTokens;
}

void KvCache::Impl::dropExactMemory() {
  for (Layer& layer : layers) layer.memory = BackendBuffer();
}

PageRef* KvCache::Impl::table(std::size_t layer) const {
  auto* start = static_cast<PageRef*>(static_cast<void*>(pageTable.data()));
  return start + static_cast<std::int64_t>(layer) * tableCapacity;
}

void KvCache::Impl::growTable(std::int64_t capacity) {
  if (capacity <= tableCapacity) return;
  pageTable = BackendBuffer(backend, ledger, MemoryCategory::kWorkspace,
                            pageTableBytes(nLayers(), capacity));
  tableCapacity = capacity;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) uploadTable(layer, 0);
}

void KvCache::Impl::uploadTable(std::size_t layer, std::size_t first) {
  const std::vector<PageRef>& pages = layers[layer].pages;
  if (first >= pages.size()) return;
  const std::span<const std::byte> entries = std::as_bytes(std::span(pages).subspan(first));
  void* destination = table(layer) + first;
  backend.upload(static_cast<std::byte*>(destination), entries.data(), entries.size());
}

void KvCache::Impl::dropPages(std::size_t layer, std::int64_t nPages) {
  Layer& each = layers[layer];
  while (static_cast<std::int64_t>(each.pages.size()) > nPages) {
    arena.give(each.pages.back().format, each.pages.back().data);
    each.pages.pop_back();
  }
  each.counts.nPages = nPages;
}

PageSchedule KvCache::Impl::schedule(const Layer& layer) const {
  PageSchedule result{layer.counts.length(), sinkRoom(layer.counts), layer.counts.ringTokens, {}};
  if (config.slidingWindow == 0) return result;
  std::int64_t end = layer.counts.sinkTokens + layer.counts.forgottenTokens;
  for (const PageRef& page : layer.pages) {
    end += page.nTokens;
    result.held.push_back({end, page.format == layer.format});
  }
  return result;
}

KvCache::Impl::Demands KvCache::Impl::demandsUpTo(std::int64_t tokens,
                                                  std::int64_t chunkToCome) const {
  Demands demands;
  const std::int64_t toCome = std::max<std::int64_t>(0, tokens - counts().length());
  if (toCome == 0 || duePages(config, counts().ringTokens + toCome) == 0) return demands;
  for (const Layer& layer : layers) {
    const std::int64_t nPages = freePagesNeeded(config, schedule(layer), toCome, chunkToCome);
    addDemand(demands.pages, layer.format, nPages);
    demands.mostInALayer = std::max(demands.mostInALayer, nPages);
  }
  return demands;
}

}  // namespace longhand::engine
