#include "engine/cache/kv_cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/cache/kv_cache_impl.h"

namespace longhand::engine {

using kernels::AttentionShape;
using kernels::ExactSpan;
using kernels::PageRef;

KvCache::KvCache(kernels::Backend& backend, MemoryLedger& ledger, const AttentionShape& shape,
                 std::int64_t nLayers, const KvCacheConfig& config)
    : impl_(std::make_unique<Impl>(backend, ledger, shape, nLayers, config)) {}

KvCache::~KvCache() = default;

const KvCacheConfig& KvCache::config() const { return impl_->config; }

std::int64_t KvCache::length() const { return counts().length(); }

std::int64_t KvCache::packedTokens() const { return counts().packedTokens; }

std::int64_t KvCache::exactTokens() const { return counts().sinkTokens + counts().ringTokens; }

std::int64_t KvCache::forgottenTokens() const { return counts().forgottenTokens; }

MemoryUse KvCache::unusedBytes() const {
  const Impl& m = *impl_;
  MemoryUse unused = m.arena.unusedBytes();
  const std::uint64_t tokenBytes =
      2 * kernels::bytesOf(m.config.exactType, m.shape.nKvHeads * m.shape.headDim);
  for (const Impl::Layer& layer : m.layers) {
    const auto tokens =
        static_cast<std::uint64_t>(layer.counts.sinkTokens + layer.counts.ringTokens);
    if (layer.memory.data() == nullptr) continue;
    unused[MemoryCategory::kKvExact] += layer.memory.sizeBytes() - tokenBytes * tokens;
  }
  return unused;
}

KvCacheCounts KvCache::counts() const {
  const Impl::Layer& front = impl_->layers.front();
  return impl_->chunkTokens > 0 ? front.before : front.counts;
}

std::span<const PageRef> KvCache::pages(std::int64_t layer) const {
  return impl_->layers[static_cast<std::size_t>(layer)].pages;
}

std::uint64_t KvCache::untouchedBytes() const { return impl_->arena.untouchedBytes(); }

void KvCache::reserve(std::int64_t tokens, std::int64_t chunkToCome) {
  Impl& m = *impl_;
  assert(m.chunkTokens == 0);
  if (tokens <= length()) return;
  const bool isNew = m.layers.front().memory.data() == nullptr;
  if (isNew) m.takeExactMemory(m.config.sinkLength, ringCapacityOf(m.config));
  try {
    const Impl::Demands demands = m.demandsUpTo(tokens, chunkToCome);
    m.growTable(m.counts().nPages + demands.mostInALayer);
    m.arena.reserve(demands.pages);
  } catch (...) {
    if (isNew) m.dropExactMemory();
    throw;
  }
}

void KvCache::shrinkTo(std::int64_t tokens) {
  assert(impl_->chunkTokens == 0);
  impl_->arena.shrink(impl_->demandsUpTo(tokens, 1).pages);
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
  const Impl::Counts& now = m.counts();
  const std::int64_t gathered = now.ringTokens + nTokens - std::min(nTokens, m.sinkRoom(now));
  if (now.ringTokens > 0 && gathered > m.ringCapacity) {
    const std::uint64_t bytes = 2 * static_cast<std::uint64_t>(m.nLayers()) *
                                exactBytes(m.config.exactType, m.shape, now.ringTokens);
    requireFreeMemory(m.backend, bytes);
    m.undo = BackendBuffer(m.backend, m.ledger, MemoryCategory::kWorkspace, bytes);
  }
  m.chunkTokens = nTokens;
  m.skippedPages = 0;
  if (m.config.slidingWindow > 0 && gathered > heldTokens(m.config)) {
    m.skippedPages = std::min((gathered - heldTokens(m.config)) / m.config.groupSize,
                              duePages(m.config, gathered));
  }
  for (Impl::Layer& layer : m.layers) {
    layer.before = layer.counts;
    layer.isAppended = false;
  }
}

ExactSpan KvCache::chunkPlace(std::int64_t layer) const {
  const Impl& m = *impl_;
  const auto index = static_cast<std::size_t>(layer);
  const Impl::Counts& now = m.layers[index].counts;
  assert(m.chunkTokens > 0 && !m.layers[index].isAppended);
  const std::int64_t toSink = std::min(m.chunkTokens, m.sinkRoom(now));
  if (toSink == m.chunkTokens) {
    return m.sink(index).slice(now.sinkTokens, m.chunkTokens, m.shape.headDim);
  }
  if (toSink > 0 || now.ringTokens + m.chunkTokens > m.ringCapacity) return {};
  const Impl::Stretches place = m.ringStretches(index, now.ringTokens, m.chunkTokens);
  return place.count == 1 ? place.spans[0] : ExactSpan{};
}

void KvCache::append(std::int64_t layer, const ExactSpan& chunk) {
  Impl& m = *impl_;
  const auto index = static_cast<std::size_t>(layer);
  Impl::Layer& each = m.layers[index];
  assert(m.chunkTokens > 0 && chunk.nTokens == m.chunkTokens && !each.isAppended);
  assert(chunk.type == m.config.exactType);

  const bool isInPlace = chunk.keys == chunkPlace(layer).keys;
  const std::int64_t toSink = std::min(m.chunkTokens, m.sinkRoom(each.counts));
  if (toSink > 0 && !isInPlace) {
    m.backend.copyExact(m.shape, chunk, 0, m.sink(index), each.counts.sinkTokens, toSink);
  }
  const ExactSpan rest = chunk.slice(toSink, m.chunkTokens - toSink, m.shape.headDim);
  const std::int64_t gathered = each.counts.ringTokens + rest.nTokens;
  const std::int64_t nPages = duePages(m.config, gathered);
  const std::int64_t nLeaving = nPages * m.config.groupSize;
  const std::int64_t nSkipped = m.skippedPages * m.config.groupSize;

  m.packDuePages(index, rest, m.skippedPages, nPages);
  if (m.undo.data() != nullptr) m.saveResidual(index);
  if (!isInPlace) m.storeRing(index, rest, std::max(each.counts.ringTokens, nLeaving));

  each.counts.sinkTokens += toSink;
  each.counts.nPages += nPages - m.skippedPages;
  each.counts.forgottenTokens += nSkipped;
  each.counts.packedTokens += nLeaving - nSkipped;
  each.counts.ringFirst = (each.counts.ringFirst + nLeaving) % m.ringCapacity;
  each.counts.ringTokens = gathered - nLeaving;
  each.isAppended = true;
  m.refreshExact(index);
}

/// Packs pages [firstPage, endPage) of [residual | rest of the chunk], counted from its oldest
/// token.
void KvCache::Impl::packDuePages(std::size_t layer, const ExactSpan& rest, std::int64_t firstPage,
                                 std::int64_t endPage) {
  Layer& each = layers[layer];
  const std::int64_t group = config.groupSize;
  const std::int64_t residual = each.counts.ringTokens;
  for (std::int64_t page = firstPage; page < endPage; ++page) {
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
  uploadTable(layer, each.pages.size() - static_cast<std::size_t>(endPage - firstPage));
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
  const std::int64_t tokens = layers[layer].before.ringTokens;
  const std::uint64_t bytes = exactBytes(config.exactType, shape, tokens);
  std::byte* start = undo.data() + 2 * bytes * layer;
  return {config.exactType, start, start + bytes, tokens, tokens};
}

void KvCache::Impl::saveResidual(std::size_t layer) {
  const Stretches residual = ringStretches(layer, 0, layers[layer].before.ringTokens);
  std::int64_t saved = 0;
  for (std::size_t i = 0; i < residual.count; ++i) {
    const ExactSpan& span = residual.spans[i];
    backend.copyExact(shape, span, 0, undoSpan(layer), saved, span.nTokens);
    saved += span.nTokens;
  }
}

/// Counts must be those of before the chunk.
void KvCache::Impl::restoreResidual(std::size_t layer) {
  const Stretches residual = ringStretches(layer, 0, layers[layer].before.ringTokens);
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
  if (m.config.slidingWindow > 0) {
    for (std::size_t layer = 0; layer < m.layers.size(); ++layer) m.forgetOldPages(layer);
  }
  m.undo = BackendBuffer();
  m.chunkTokens = 0;
}

void KvCache::Impl::forgetOldPages(std::size_t layer) {
  Layer& each = layers[layer];
  Counts& now = each.counts;
  // A skipped page is younger than every page of before the chunk.
  const std::int64_t nOutdated = skippedPages > 0 ? each.before.nPages : 0;
  const std::int64_t limit = now.length() - heldTokens(config);
  std::int64_t nForgotten = 0;
  for (; nForgotten < now.nPages; ++nForgotten) {
    const PageRef& page = each.pages[static_cast<std::size_t>(nForgotten)];
    const std::int64_t end = now.sinkTokens + now.forgottenTokens + page.nTokens;
    if (nForgotten >= nOutdated && end > limit) break;
    arena.give(page.format, page.data);
    now.forgottenTokens += page.nTokens;
    now.packedTokens -= page.nTokens;
  }
  if (nForgotten == 0) return;
  each.pages.erase(each.pages.begin(), each.pages.begin() + nForgotten);
  now.nPages -= nForgotten;
  uploadTable(layer, 0);
}

void KvCache::rollbackChunk() {
  Impl& m = *impl_;
  if (m.chunkTokens == 0) return;
  for (std::size_t layer = 0; layer < m.layers.size(); ++layer) {
    if (!m.layers[layer].isAppended) continue;
    m.dropPages(layer, m.layers[layer].before.nPages);
    m.layers[layer].counts = m.layers[layer].before;
    if (m.undo.data() != nullptr) m.restoreResidual(layer);
    m.refreshExact(layer);
  }
  m.undo = BackendBuffer();
  m.chunkTokens = 0;
}

bool KvCache::canTruncateTo(std::int64_t n) const {
  const Impl::Counts& now = impl_->counts();
  if (now.forgottenTokens == 0 || n == length() || n <= now.sinkTokens) return true;
  return now.sinkTokens + now.forgottenTokens <= n - impl_->config.slidingWindow;
}

void KvCache::truncate(std::int64_t n) {
  Impl& m = *impl_;
  assert(m.chunkTokens == 0 && n >= 0 && n <= length() && canTruncateTo(n));
  if (n == length()) return;
  for (std::size_t index = 0; index < m.layers.size(); ++index) {
    Impl::Layer& layer = m.layers[index];
    Impl::Counts& counts = layer.counts;
    counts.sinkTokens = std::min(counts.sinkTokens, n);
    if (n == counts.sinkTokens) counts.forgottenTokens = 0;
    const std::int64_t behindSink = n - counts.sinkTokens - counts.forgottenTokens;
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
  const std::int64_t firstPaged = counts.sinkTokens + counts.forgottenTokens;
  if (n <= firstPaged || n >= firstPaged + counts.packedTokens) return n;
  std::int64_t whole = firstPaged;
  for (std::size_t page = 0; whole < n; ++page) {
    const std::int64_t end = whole + m.layers.front().pages[page].nTokens;
    if (end <= n) {
      whole = end;
      continue;
    }
    const bool isExact = std::all_of(m.layers.begin(), m.layers.end(), [page](const auto& layer) {
      const kernels::PageFormat& format = layer.pages[page].format;
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
    zeroMemory(m.backend, layer.memory.data(), layer.memory.sizeBytes());
    layer.memory = BackendBuffer();
  }
  m.arena.wipe();
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
  takeExactMemory(std::max(config.sinkLength, counts.sinkTokens), ringCapacityOf(config));
  growTable(counts.nPages);
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
