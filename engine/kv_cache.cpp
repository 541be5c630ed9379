#include "engine/kv_cache.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "engine/error.h"
#include "engine/kv_arena.h"
#include "kernels/page_layout.h"

namespace longhand::engine {
namespace {

using kernels::AttentionShape;
using kernels::ExactSpan;
using kernels::PageFormat;
using kernels::PageRef;

constexpr std::uint64_t kAlignmentBytes = 64;

/// Keys, or values, of `tokens` exact tokens of one layer.
std::uint64_t exactBytes(const KvCacheConfig& config, const AttentionShape& shape,
                         std::int64_t tokens) {
  const std::uint64_t bytes =
      kernels::bytesOf(config.exactType, shape.nKvHeads * shape.headDim * tokens);
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

std::int64_t ringCapacity(const KvCacheConfig& config) {
  return config.residualLength + config.groupSize;
}

/// Sink and ring of one layer.
std::uint64_t exactLayerBytes(const KvCacheConfig& config, const AttentionShape& shape) {
  return 2 * (exactBytes(config, shape, config.sinkLength) +
              exactBytes(config, shape, ringCapacity(config)));
}

/// Pages that become due when the residual has gathered `tokens` tokens.
std::int64_t duePages(const KvCacheConfig& config, std::int64_t tokens) {
  return std::max<std::int64_t>(0, tokens - config.residualLength) / config.groupSize;
}

void addDemand(std::vector<PageDemand>& demands, const PageFormat& format, std::int64_t nPages) {
  const auto same = std::find_if(demands.begin(), demands.end(),
                                 [&](const PageDemand& d) { return d.format == format; });
  if (same == demands.end()) {
    demands.push_back({format, nPages});
  } else {
    same->nPages += nPages;
  }
}

/// Page demand of all layers, `nPagesPerLayer` in each, by format.
std::vector<PageDemand> pageDemands(const KvCacheConfig& config, std::int64_t nLayers,
                                    std::int64_t nPagesPerLayer) {
  std::vector<PageDemand> demands;
  for (std::int64_t layer = 0; layer < nLayers; ++layer) {
    addDemand(demands, config.pageFormat(layer), nPagesPerLayer);
  }
  return demands;
}

std::uint64_t pageTableBytes(std::int64_t nLayers, std::int64_t nPagesPerLayer) {
  return static_cast<std::uint64_t>(nLayers * nPagesPerLayer) * sizeof(PageRef);
}

/// Up to two stretches of a ring.
struct Stretches {
  std::array<ExactSpan, 2> spans;
  std::size_t count = 0;
};

}  // namespace

MemoryUse kvCacheUse(const KvCacheConfig& config, const AttentionShape& shape, std::int64_t nLayers,
                     std::int64_t tokens) {
  MemoryUse use;
  use[MemoryCategory::kKvExact] =
      exactLayerBytes(config, shape) * static_cast<std::uint64_t>(nLayers);
  const std::int64_t nPages = duePages(config, tokens - config.sinkLength);
  for (const PageDemand& demand : pageDemands(config, nLayers, nPages)) {
    const MemoryUse one = pageUse(demand.format, shape);
    for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
      use.bytes[i] += one.bytes[i] * static_cast<std::uint64_t>(demand.nPages);
    }
  }
  use[MemoryCategory::kWorkspace] += pageTableBytes(nLayers, nPages);
  return use;
}

std::uint64_t kvUndoBytes(const KvCacheConfig& config, const AttentionShape& shape,
                          std::int64_t nLayers) {
  return 2 * static_cast<std::uint64_t>(nLayers) *
         exactBytes(config, shape, ringCapacity(config) - 1);
}

struct KvCache::Impl {
  using Counts = KvCacheCounts;
  struct Layer {
    PageFormat format;
    Counts counts;
    std::vector<PageRef> pages;      // host copy of the layer's page table
    std::array<ExactSpan, 3> exact;  // what view() shows: sink, residual in one or two stretches
    std::size_t nExact = 0;
    bool isAppended = false;  // in the chunk at hand
  };

  Impl(kernels::Backend& backendIn, MemoryLedger& ledgerIn, const AttentionShape& shapeIn,
       std::int64_t nLayers, const KvCacheConfig& configIn)
      : backend(backendIn),
        ledger(ledgerIn),
        shape(shapeIn),
        config(configIn),
        arena(backendIn, ledgerIn, shapeIn) {
    config.validate();
    layers.resize(static_cast<std::size_t>(nLayers));
    for (std::size_t i = 0; i < layers.size(); ++i) {
      layers[i].format = config.pageFormat(static_cast<std::int64_t>(i));
    }
  }

  std::int64_t nLayers() const { return static_cast<std::int64_t>(layers.size()); }

  /// One of the parts of exactMemory: [layer][sink keys, sink values, ring keys, ring values].
  ExactSpan exactPart(std::size_t layer, bool ring) const {
    const std::int64_t capacity = ring ? ringCapacity(config) : config.sinkLength;
    const std::uint64_t sinkBytes = exactBytes(config, shape, config.sinkLength);
    std::byte* start =
        exactMemory.data() + exactLayerBytes(config, shape) * layer + (ring ? 2 * sinkBytes : 0);
    return {config.exactType, start, start + exactBytes(config, shape, capacity), capacity, 0};
  }
  ExactSpan sink(std::size_t layer) const { return exactPart(layer, false); }
  ExactSpan ring(std::size_t layer) const { return exactPart(layer, true); }

  /// Where the layer keeps `nTokens` tokens of its residual, counted from the ring's first slot.
  Stretches ringStretches(std::size_t layer, std::int64_t firstToken, std::int64_t nTokens) const {
    const ExactSpan whole = ring(layer);
    Stretches result;
    std::int64_t slot = (layers[layer].counts.ringFirst + firstToken) % whole.tokenCapacity;
    while (nTokens > 0) {
      const std::int64_t run = std::min(nTokens, whole.tokenCapacity - slot);
      result.spans[result.count++] = whole.slice(slot, run, shape.headDim);
      nTokens -= run;
      slot = 0;
    }
    return result;
  }

  void refreshExact(std::size_t layer) {
    Layer& each = layers[layer];
    each.nExact = 0;
    if (each.counts.sinkTokens > 0) {
      each.exact[each.nExact++] = sink(layer).slice(0, each.counts.sinkTokens, shape.headDim);
    }
    const Stretches residual = ringStretches(layer, 0, each.counts.ringTokens);
    for (std::size_t i = 0; i < residual.count; ++i) each.exact[each.nExact++] = residual.spans[i];
  }

  PageRef* table(std::size_t layer) const {
    auto* start = static_cast<PageRef*>(static_cast<void*>(pageTable.data()));
    return start + static_cast<std::int64_t>(layer) * tableCapacity;
  }

  /// Brings entries [first, pages.size()) of the layer's table in backend memory up to date.
  void uploadTable(std::size_t layer, std::size_t first) {
    const std::vector<PageRef>& pages = layers[layer].pages;
    if (first >= pages.size()) return;
    const std::span<const std::byte> entries = std::as_bytes(std::span(pages).subspan(first));
    void* destination = table(layer) + first;
    backend.upload(static_cast<std::byte*>(destination), entries.data(), entries.size());
  }

  void dropPages(std::size_t layer, std::int64_t nPages) {
    Layer& each = layers[layer];
    while (static_cast<std::int64_t>(each.pages.size()) > nPages) {
      arena.give(each.pages.back().format, each.pages.back().data);
      each.pages.pop_back();
    }
    each.counts.nPages = nPages;
  }

  std::int64_t pagesToCome(std::int64_t tokens) const {
    const Counts& now = layers.front().counts;
    return duePages(config, now.ringTokens + tokens - std::max(now.length(), config.sinkLength));
  }

  void takePages(const Counts& counts, std::span<const std::vector<PageRef>> tables);
  void packDuePages(std::size_t layer, const ExactSpan& rest, std::int64_t nPages);
  void storeRing(std::size_t layer, const ExactSpan& rest, std::int64_t firstToken);
  void saveResidual(std::size_t layer);
  void restoreResidual(std::size_t layer);
  ExactSpan undoSpan(std::size_t layer) const;

  kernels::Backend& backend;
  MemoryLedger& ledger;
  AttentionShape shape;
  KvCacheConfig config;
  KvArena arena;
  BackendBuffer exactMemory;  // [nLayers][sink, ring]
  BackendBuffer pageTable;    // PageRef [nLayers, tableCapacity]
  std::int64_t tableCapacity = 0;
  std::vector<Layer> layers;
  std::int64_t chunkTokens = 0;  // 0: no chunk at hand
  Counts before;                 // of all layers, at beginChunk
  BackendBuffer undo;            // residuals that the chunk overwrites, [nLayers][keys, values]
};

KvCache::KvCache(kernels::Backend& backend, MemoryLedger& ledger, const AttentionShape& shape,
                 std::int64_t nLayers, const KvCacheConfig& config)
    : impl_(std::make_unique<Impl>(backend, ledger, shape, nLayers, config)) {}

KvCache::~KvCache() = default;

const KvCacheConfig& KvCache::config() const { return impl_->config; }

std::int64_t KvCache::length() const { return packedTokens() + exactTokens(); }

std::int64_t KvCache::packedTokens() const { return counts().packedTokens; }

std::int64_t KvCache::exactTokens() const { return counts().sinkTokens + counts().ringTokens; }

std::uint64_t KvCache::untouchedBytes() const { return impl_->arena.untouchedBytes(); }

MemoryUse KvCache::unusedBytes() const {
  const Impl& m = *impl_;
  MemoryUse unused = m.arena.unusedBytes();
  if (m.exactMemory.data() == nullptr) return unused;
  const std::uint64_t tokenBytes =
      2 * kernels::bytesOf(m.config.exactType, m.shape.nKvHeads * m.shape.headDim);
  std::uint64_t usedBytes = 0;
  for (const Impl::Layer& layer : m.layers) {
    usedBytes +=
        tokenBytes * static_cast<std::uint64_t>(layer.counts.sinkTokens + layer.counts.ringTokens);
  }
  unused[MemoryCategory::kKvExact] += m.exactMemory.sizeBytes() - usedBytes;
  return unused;
}

void KvCache::reserve(std::int64_t tokens) {
  Impl& m = *impl_;
  assert(m.chunkTokens == 0);
  if (tokens <= length()) return;
  const std::int64_t nPages = m.pagesToCome(tokens);
  const std::int64_t capacity = m.layers.front().counts.nPages + nPages;

  BackendBuffer exactMemory;
  if (m.exactMemory.data() == nullptr) {
    const std::uint64_t bytes =
        exactLayerBytes(m.config, m.shape) * static_cast<std::uint64_t>(m.nLayers());
    requireFreeMemory(m.backend, bytes);
    exactMemory = BackendBuffer(m.backend, m.ledger, MemoryCategory::kKvExact, bytes);
  }
  BackendBuffer pageTable;
  if (capacity > m.tableCapacity) {
    pageTable = BackendBuffer(m.backend, m.ledger, MemoryCategory::kWorkspace,
                              pageTableBytes(m.nLayers(), capacity));
  }
  m.arena.reserve(pageDemands(m.config, m.nLayers(), nPages));

  if (exactMemory.data() != nullptr) m.exactMemory = std::move(exactMemory);
  if (pageTable.data() != nullptr) {
    m.pageTable = std::move(pageTable);
    m.tableCapacity = capacity;
    for (std::size_t layer = 0; layer < m.layers.size(); ++layer) m.uploadTable(layer, 0);
  }
}

void KvCache::shrinkTo(std::int64_t tokens) {
  Impl& m = *impl_;
  assert(m.chunkTokens == 0);
  m.arena.shrink(pageDemands(m.config, m.nLayers(), m.pagesToCome(std::max(tokens, length()))));
}

KvCacheCounts KvCache::counts() const {
  return impl_->chunkTokens > 0 ? impl_->before : impl_->layers.front().counts;
}

std::span<const PageRef> KvCache::pages(std::int64_t layer) const {
  return impl_->layers[static_cast<std::size_t>(layer)].pages;
}

kernels::KvView KvCache::view(std::int64_t layer) const {
  const auto index = static_cast<std::size_t>(layer);
  const Impl::Layer& each = impl_->layers[index];
  return {each.counts.nPages > 0 ? impl_->table(index) : nullptr, each.counts.nPages,
          each.counts.packedTokens, std::span(each.exact).first(each.nExact)};
}

void KvCache::beginChunk(std::int64_t nTokens) {
  Impl& m = *impl_;
  assert(m.chunkTokens == 0 && nTokens > 0);
  const Impl::Counts& now = m.layers.front().counts;
  const std::int64_t toSink = std::min(nTokens, m.config.sinkLength - now.sinkTokens);
  const bool overwrites =
      now.ringTokens > 0 && now.ringTokens + nTokens - toSink > ringCapacity(m.config);
  if (overwrites) {
    const std::uint64_t bytes =
        2 * static_cast<std::uint64_t>(m.nLayers()) * exactBytes(m.config, m.shape, now.ringTokens);
    requireFreeMemory(m.backend, bytes);
    m.undo = BackendBuffer(m.backend, m.ledger, MemoryCategory::kWorkspace, bytes);
  }
  m.before = now;
  m.chunkTokens = nTokens;
  for (Impl::Layer& layer : m.layers) layer.isAppended = false;
}

void KvCache::append(std::int64_t layer, const ExactSpan& chunk) {
  Impl& m = *impl_;
  const auto index = static_cast<std::size_t>(layer);
  Impl::Layer& each = m.layers[index];
  assert(m.chunkTokens > 0 && chunk.nTokens == m.chunkTokens && !each.isAppended);
  assert(chunk.type == m.config.exactType);

  const std::int64_t toSink = std::min(m.chunkTokens, m.config.sinkLength - each.counts.sinkTokens);
  if (toSink > 0) {
    m.backend.copyExact(m.shape, chunk, 0, m.sink(index), each.counts.sinkTokens, toSink);
  }
  const ExactSpan rest = chunk.slice(toSink, m.chunkTokens - toSink, m.shape.headDim);
  const std::int64_t gathered = each.counts.ringTokens + rest.nTokens;
  const std::int64_t nPages = duePages(m.config, gathered);
  const std::int64_t nPacked = nPages * m.config.groupSize;

  m.packDuePages(index, rest, nPages);
  if (m.undo.data() != nullptr) m.saveResidual(index);
  m.storeRing(index, rest, std::max(each.counts.ringTokens, nPacked));

  each.counts.sinkTokens += toSink;
  each.counts.nPages += nPages;
  each.counts.packedTokens += nPacked;
  each.counts.ringFirst = (each.counts.ringFirst + nPacked) % ringCapacity(m.config);
  each.counts.ringTokens = gathered - nPacked;
  each.isAppended = true;
  m.refreshExact(index);
}

/// Packs the oldest tokens of [residual | rest of the chunk].
void KvCache::Impl::packDuePages(std::size_t layer, const ExactSpan& rest, std::int64_t nPages) {
  Layer& each = layers[layer];
  const std::int64_t group = config.groupSize;
  const std::int64_t residual = each.counts.ringTokens;
  for (std::int64_t page = 0; page < nPages; ++page) {
    const std::int64_t first = page * group;
    const std::int64_t fromRing = std::clamp<std::int64_t>(residual - first, 0, group);
    const Stretches old = ringStretches(layer, first, fromRing);
    std::array<ExactSpan, 3> source;
    std::size_t nSources = 0;
    for (std::size_t i = 0; i < old.count; ++i) source[nSources++] = old.spans[i];
    if (fromRing < group) {
      const std::int64_t firstOfRest = std::max<std::int64_t>(0, first - residual);
      source[nSources++] = rest.slice(firstOfRest, group - fromRing, shape.headDim);
    }
    PageRef ref;
    ref.data = arena.take(each.format);
    ref.format = each.format;
    ref.nTokens = static_cast<std::uint16_t>(group);
    backend.packPage(shape, std::span(source).first(nSources), each.format, config.solver,
                     ref.data);
    each.pages.push_back(ref);
  }
  uploadTable(layer, each.pages.size() - static_cast<std::size_t>(nPages));
}

/// Writes tokens [firstToken, end) of [residual | rest of the chunk] to the ring. Token i always
/// lies i slots behind the residual's first, whether the tokens before it are still there or not.
void KvCache::Impl::storeRing(std::size_t layer, const ExactSpan& rest, std::int64_t firstToken) {
  std::int64_t from = firstToken - layers[layer].counts.ringTokens;
  const Stretches free = ringStretches(layer, firstToken, rest.nTokens - from);
  for (std::size_t i = 0; i < free.count; ++i) {
    backend.copyExact(shape, rest, from, free.spans[i], 0, free.spans[i].nTokens);
    from += free.spans[i].nTokens;
  }
}

ExactSpan KvCache::Impl::undoSpan(std::size_t layer) const {
  const std::uint64_t bytes = exactBytes(config, shape, before.ringTokens);
  std::byte* start = undo.data() + 2 * bytes * layer;
  return {config.exactType, start, start + bytes, before.ringTokens, before.ringTokens};
}

void KvCache::Impl::saveResidual(std::size_t layer) {
  const Stretches residual = ringStretches(layer, 0, before.ringTokens);
  std::int64_t saved = 0;
  for (std::size_t i = 0; i < residual.count; ++i) {
    const ExactSpan& span = residual.spans[i];
    backend.copyExact(shape, span, 0, undoSpan(layer), saved, span.nTokens);
    saved += span.nTokens;
  }
}

/// Counts must be those of before the chunk.
void KvCache::Impl::restoreResidual(std::size_t layer) {
  const Stretches residual = ringStretches(layer, 0, before.ringTokens);
  std::int64_t restored = 0;
  for (std::size_t i = 0; i < residual.count; ++i) {
    const ExactSpan& span = residual.spans[i];
    backend.copyExact(shape, undoSpan(layer), restored, span, 0, span.nTokens);
    restored += span.nTokens;
  }
}

void KvCache::commitChunk() {
  Impl& m = *impl_;
  assert(std::all_of(m.layers.begin(), m.layers.end(),
                     [](const Impl::Layer& layer) { return layer.isAppended; }));
  m.undo = BackendBuffer();
  m.chunkTokens = 0;
}

void KvCache::rollbackChunk() {
  Impl& m = *impl_;
  if (m.chunkTokens == 0) return;
  for (std::size_t layer = 0; layer < m.layers.size(); ++layer) {
    if (!m.layers[layer].isAppended) continue;
    m.dropPages(layer, m.before.nPages);
    m.layers[layer].counts = m.before;
    if (m.undo.data() != nullptr) m.restoreResidual(layer);
    m.refreshExact(layer);
  }
  m.undo = BackendBuffer();
  m.chunkTokens = 0;
}

void KvCache::truncate(std::int64_t n) {
  Impl& m = *impl_;
  assert(m.chunkTokens == 0 && n >= 0 && n <= length());
  if (n == length()) return;
  for (std::size_t index = 0; index < m.layers.size(); ++index) {
    Impl::Layer& layer = m.layers[index];
    Impl::Counts& counts = layer.counts;
    counts.sinkTokens = std::min(counts.sinkTokens, n);
    const std::int64_t behindSink = n - counts.sinkTokens;
    counts.ringTokens = std::max<std::int64_t>(0, behindSink - counts.packedTokens);
    while (counts.packedTokens > behindSink) {
      PageRef& last = layer.pages.back();
      const std::int64_t excess = counts.packedTokens - behindSink;
      if (excess >= last.nTokens) {
        counts.packedTokens -= last.nTokens;
        m.dropPages(index, counts.nPages - 1);
      } else {
        counts.packedTokens -= excess;
        last.nTokens = static_cast<std::uint16_t>(last.nTokens - excess);
        m.uploadTable(index, layer.pages.size() - 1);
      }
    }
    m.refreshExact(index);
  }
}

std::int64_t KvCache::wholePagePrefix(std::int64_t n) const {
  const Impl& m = *impl_;
  assert(m.chunkTokens == 0 && n >= 0 && n <= length());
  const Impl::Counts& counts = m.layers.front().counts;
  if (n >= counts.sinkTokens + counts.packedTokens) return n;
  std::int64_t whole = std::min(n, counts.sinkTokens);
  for (std::size_t page = 0; whole < n; ++page) {
    const std::int64_t end = whole + m.layers.front().pages[page].nTokens;
    if (end <= n) {
      whole = end;
      continue;
    }
    const bool isExact = std::all_of(m.layers.begin(), m.layers.end(), [page](const auto& layer) {
      const PageFormat& format = layer.pages[page].format;
      return format.keyNbits == 16 && format.valueNbits == 16;
    });
    return isExact ? n : whole;
  }
  return whole;
}

void KvCache::clear() {
  Impl& m = *impl_;
  rollbackChunk();
  for (Impl::Layer& layer : m.layers) {
    layer.counts = {};
    layer.pages.clear();
    layer.nExact = 0;
  }
  m.arena.wipe();
  if (m.exactMemory.data() != nullptr) {
    zeroMemory(m.backend, m.exactMemory.data(), m.exactMemory.sizeBytes());
  }
  m.exactMemory = BackendBuffer();
  m.pageTable = BackendBuffer();
  m.tableCapacity = 0;
}

std::uint64_t KvCache::replacementBytes(std::span<const std::vector<PageRef>> tables) const {
  const Impl& m = *impl_;
  std::uint64_t bytes =
      exactLayerBytes(m.config, m.shape) * static_cast<std::uint64_t>(m.nLayers());
  for (const std::vector<PageRef>& table : tables) {
    for (const PageRef& page : table) bytes += pageUse(page.format, m.shape).total();
    bytes += pageTableBytes(1, static_cast<std::int64_t>(table.size()));
  }
  return bytes;
}

/// Of a new cache: takes memory for `counts` tokens, contents undefined.
void KvCache::Impl::takePages(const Counts& counts, std::span<const std::vector<PageRef>> tables) {
  const std::uint64_t exact =
      exactLayerBytes(config, shape) * static_cast<std::uint64_t>(nLayers());
  requireFreeMemory(backend, exact);
  exactMemory = BackendBuffer(backend, ledger, MemoryCategory::kKvExact, exact);
  if (counts.nPages > 0) {
    pageTable = BackendBuffer(backend, ledger, MemoryCategory::kWorkspace,
                              pageTableBytes(nLayers(), counts.nPages));
    tableCapacity = counts.nPages;
  }
  std::vector<PageDemand> demands;
  for (const std::vector<PageRef>& table : tables) {
    for (const PageRef& page : table) addDemand(demands, page.format, 1);
  }
  arena.reserve(demands);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (const PageRef& saved : tables[layer]) {
      PageRef& page = layers[layer].pages.emplace_back(saved);
      page.data = arena.take(saved.format);
    }
    layers[layer].counts = counts;
    uploadTable(layer, 0);
    refreshExact(layer);
  }
}

void KvCache::replace(const KvCacheCounts& counts, std::span<const std::vector<PageRef>> tables,
                      const std::function<void(const KvCache& cache)>& fill) {
  const Impl& m = *impl_;
  assert(m.chunkTokens == 0 && tables.size() == m.layers.size());
  KvCache fresh(m.backend, m.ledger, m.shape, m.nLayers(), m.config);
  if (counts.length() > 0) {
    fresh.impl_->takePages(counts, tables);
    fill(fresh);
  }
  std::swap(impl_, fresh.impl_);
  fresh.clear();  // nothing of it may be found in memory later
}

}  // namespace longhand::engine
