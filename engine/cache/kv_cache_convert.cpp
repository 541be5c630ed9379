// KvCache::convert: pages at fewer bits, in place.
//
// The arena frees memory slab by slab, so pages are repacked slab by slab, too: all used pages of
// some slabs (a batch) are written to new ones, then the page tables change over, then the old
// slabs go back. A batch is a transaction: until its end the tables show the old pages, whatever
// fails. It writes at most kBatchBytes (or one slab of 32 MiB), which with one page of scratch is
// what the cache takes beyond its old size at any time.
#include <algorithm>
#include <cassert>
#include <chrono>
#include <map>
#include <utility>

#include "engine/base/device_fault.h"
#include "engine/base/error.h"
#include "engine/base/throttle.h"
#include "engine/cache/conversion_cost.h"
#include "engine/cache/kv_cache.h"
#include "engine/cache/kv_cache_impl.h"
#include "kernels/page_layout.h"

namespace longhand::engine {
namespace {

using kernels::ExactSpan;
using kernels::PageFormat;
using kernels::PageLayout;
using kernels::PageRef;

constexpr std::uint64_t kBatchBytes = std::uint64_t{32} << 20U;
constexpr std::int64_t kLargestGroup = kGroupSizes.back();

/// Calls the progress ten times a second.
class ProgressReport {
 public:
  ProgressReport(const ConvertProgress& progress, std::uint64_t totalBytes)
      : progress_(progress), totalBytes_(totalBytes) {
    if (progress_ && throttle_.isDue()) progress_(0, totalBytes_);
  }
  void advance(std::uint64_t bytes) {
    doneBytes_ += bytes;
    if (!progress_) return;
    if (throttle_.isDue() || doneBytes_ >= totalBytes_) progress_(doneBytes_, totalBytes_);
  }

 private:
  const ConvertProgress& progress_;
  std::uint64_t totalBytes_;
  std::uint64_t doneBytes_ = 0;
  Throttle throttle_{std::chrono::milliseconds(100)};
};

/// A page on its way to a new place.
struct Move {
  std::size_t layer = 0;
  std::size_t index = 0;  // in the layer's table
  PageFormat format;      // there
};

struct SlabMoves {
  std::vector<Move> moves;
  std::uint64_t oldBytes = 0;
  std::uint64_t newBytes = 0;
  bool isNeeded = false;
};

}  // namespace

/// Writes pages anew, in new formats and gathered in full slabs.
class KvCache::Impl::Repacker {
 public:
  Repacker(Impl& cache, kernels::QuantSolver solver) : m_(cache), solver_(solver) {}

  /// The slabs that have a page with another format than `formatOf` wants or, with `compact`, room
  /// that nobody uses. False: stopped between two batches.
  template <typename FormatOf>
  bool run(const FormatOf& formatOf, bool compact, const ConvertProgress& progress,
           const std::stop_token& stop) {
    const std::map<KvArena::SlabId, SlabMoves> slabs = plan(formatOf, compact);
    std::uint64_t totalBytes = 0;
    for (const auto& [id, slab] : slabs) totalBytes += slab.isNeeded ? slab.oldBytes : 0;
    if (totalBytes == 0) return true;
    const auto side = static_cast<std::int64_t>(kernels::bytesOf(
        m_.config.exactType, m_.shape.nKvHeads * m_.shape.headDim * kLargestGroup));
    scratch_ = BackendBuffer(m_.backend, m_.ledger, MemoryCategory::kWorkspace,
                             2 * static_cast<std::size_t>(side));
    ProgressReport report(progress, totalBytes);

    std::vector<KvArena::SlabId> batch;
    std::uint64_t batchBytes = 0;
    const auto flush = [&] {
      const bool isDone = batch.empty() || runBatch(slabs, batch, report, stop);
      batch.clear();
      batchBytes = 0;
      return isDone;
    };
    for (const auto& [id, slab] : slabs) {
      if (!slab.isNeeded) continue;
      if (batchBytes + slab.newBytes > kBatchBytes && !flush()) return false;
      batch.push_back(id);
      batchBytes += slab.newBytes;
    }
    return flush();
  }

  std::int64_t pagesConverted() const { return pagesConverted_; }

 private:
  template <typename FormatOf>
  std::map<KvArena::SlabId, SlabMoves> plan(const FormatOf& formatOf, bool compact) const {
    std::map<KvArena::SlabId, SlabMoves> slabs;
    for (std::size_t layer = 0; layer < m_.layers.size(); ++layer) {
      const std::vector<PageRef>& pages = m_.layers[layer].pages;
      for (std::size_t index = 0; index < pages.size(); ++index) {
        const PageRef& page = pages[index];
        const KvArena::SlabId id = m_.arena.slabOf(page.format, page.data);
        SlabMoves& slab = slabs[id];
        const PageFormat format = formatOf(layer, page);
        slab.moves.push_back({layer, index, format});
        slab.oldBytes += pageUse(page.format, m_.shape).total();
        slab.newBytes += pageUse(format, m_.shape).total();
        slab.isNeeded |= format != page.format || (compact && m_.arena.hasRoom(id));
      }
    }
    return slabs;
  }

  bool runBatch(const std::map<KvArena::SlabId, SlabMoves>& slabs,
                const std::vector<KvArena::SlabId>& batch, ProgressReport& report,
                const std::stop_token& stop) {
    std::vector<PageDemand> demands;
    for (const KvArena::SlabId& id : batch) {
      m_.arena.retire(id);
      for (const Move& move : slabs.at(id).moves) addDemand(demands, move.format, 1);
    }
    std::vector<std::pair<Move, PageRef>> written;
    const auto undo = [&] {
      for (const auto& [move, page] : written) m_.arena.give(page.format, page.data);
      m_.arena.shrink({});
      for (const KvArena::SlabId& id : batch) m_.arena.revive(id);
    };
    try {
      m_.arena.reserve(demands);
      for (const KvArena::SlabId& id : batch) {
        for (const Move& move : slabs.at(id).moves) {
          if (stop.stop_requested()) {
            undo();
            return false;
          }
          const PageRef& old = m_.layers[move.layer].pages[move.index];
          PageRef page{m_.arena.take(move.format), move.format, 0, old.nTokens};
          written.emplace_back(move, page);
          rewrite(old, page);
          report.advance(pageUse(old.format, m_.shape).total());
        }
      }
      requireNoFault(m_.backend);
    } catch (...) {
      undo();
      throw;
    }
    for (const auto& [move, page] : written) {
      PageRef& entry = m_.layers[move.layer].pages[move.index];
      if (entry.format != page.format) ++pagesConverted_;
      m_.arena.give(entry.format, entry.data);  // the last one takes its slab along
      entry = page;
    }
    for (std::size_t layer = 0; layer < m_.layers.size(); ++layer) m_.uploadTable(layer, 0);
    return true;
  }

  void rewrite(const PageRef& from, const PageRef& to);
  void copyPart(const PageRef& from, const PageRef& to, bool isKeys) const;

  Impl& m_;
  kernels::QuantSolver solver_;
  BackendBuffer scratch_;  // keys and values of one page, exact
  std::int64_t pagesConverted_ = 0;
};

void KvCache::Impl::Repacker::rewrite(const PageRef& from, const PageRef& to) {
  if (from.format == to.format) {
    m_.backend.copy(to.data, from.data, pageUse(from.format, m_.shape).total());
    return;
  }
  const std::int64_t group = from.format.groupSize;
  ExactSpan tokens{m_.config.exactType, scratch_.data(), scratch_.data() + scratch_.sizeBytes() / 2,
                   group, from.nTokens};
  m_.backend.unpackPage(m_.shape, from, tokens);
  // A page is packed whole. Where it was cut by truncate, its last valid token stands for those
  // that are gone: it widens no key group's range.
  for (std::int64_t t = from.nTokens; t < group; ++t) {
    m_.backend.copyExact(m_.shape, tokens, from.nTokens - 1, tokens, t, 1);
  }
  tokens.nTokens = group;
  m_.backend.packPage(m_.shape, std::span(&tokens, 1), to.format, solver_, to.data);
  // What keeps its bits keeps its codes as they are.
  if (to.format.keyNbits == from.format.keyNbits) copyPart(from, to, true);
  if (to.format.valueNbits == from.format.valueNbits) copyPart(from, to, false);
}

/// Codes, scales and mins of the keys or the values.
void KvCache::Impl::Repacker::copyPart(const PageRef& from, const PageRef& to, bool isKeys) const {
  const PageLayout source = kernels::pageLayout(from.format, m_.shape.nKvHeads, m_.shape.headDim);
  const PageLayout target = kernels::pageLayout(to.format, m_.shape.nKvHeads, m_.shape.headDim);
  const auto copy = [&](std::size_t sourceStart, std::size_t targetStart, std::size_t bytes) {
    m_.backend.copy(to.data + targetStart, from.data + sourceStart, bytes);
  };
  if (isKeys) {
    copy(source.keyCodes, target.keyCodes, source.valueCodes - source.keyCodes);
    if (source.keyScales == kernels::kNoPart) return;
    const std::size_t end =
        source.valueScales == kernels::kNoPart ? source.totalBytes : source.valueScales;
    copy(source.keyScales, target.keyScales, end - source.keyScales);
  } else {
    copy(source.valueCodes, target.valueCodes, source.codeBytes - source.valueCodes);
    if (source.valueScales == kernels::kNoPart) return;
    copy(source.valueScales, target.valueScales, source.totalBytes - source.valueScales);
  }
}

/// Moves sink and residual of every layer to memory of other capacities, which must hold them.
/// Growing takes all of the new memory first. Shrinking takes one layer's, and then always has the
/// memory of the layer before to fall back on. Throws kOutOfMemory; nothing has changed then.
void KvCache::Impl::moveExact(std::int64_t newSinkCapacity, std::int64_t newRingCapacity) {
  if (newSinkCapacity == sinkCapacity && newRingCapacity == ringCapacity) return;
  assert(newSinkCapacity >= counts().sinkTokens && newRingCapacity >= counts().ringTokens);
  const std::uint64_t bytes =
      exactLayerBytes(config.exactType, shape, newSinkCapacity, newRingCapacity);
  const std::size_t nSpare = bytes > layers.front().memory.sizeBytes() ? layers.size() : 1;
  requireFreeMemory(backend, bytes * nSpare);
  std::vector<BackendBuffer> spare;
  const auto allocate = [&] {
    spare.emplace_back(backend, ledger, MemoryCategory::kKvExact, bytes);
  };
  for (std::size_t i = 0; i < nSpare; ++i) allocate();

  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    Layer& each = layers[layer];
    const auto part = [&](bool isRing) {
      return exactPart(spare.back().data(), newSinkCapacity, newRingCapacity, isRing);
    };
    if (each.counts.sinkTokens > 0) {
      backend.copyExact(shape, sink(layer), 0, part(false), 0, each.counts.sinkTokens);
    }
    const Stretches residual = ringStretches(layer, 0, each.counts.ringTokens);
    std::int64_t moved = 0;
    for (std::size_t i = 0; i < residual.count; ++i) {
      backend.copyExact(shape, residual.spans[i], 0, part(true), moved, residual.spans[i].nTokens);
      moved += residual.spans[i].nTokens;
    }
    std::swap(each.memory, spare.back());
    each.counts.ringFirst = 0;
    if (layer + 1 == layers.size() || spare.size() > 1) {
      spare.pop_back();
      continue;
    }
    try {
      allocate();
      spare.erase(spare.begin());
    } catch (const Error&) {
      // The memory that the layer had will do for the next one.
    }
  }
  sinkCapacity = newSinkCapacity;
  ringCapacity = newRingCapacity;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) refreshExact(layer);
}

/// Packs what a shorter residual no longer holds, some pages of every layer at a time.
void KvCache::Impl::packOverdue() {
  std::uint64_t roundBytes = 0;  // of one page in every layer
  for (const Layer& layer : layers) roundBytes += pageUse(layer.format, shape).total();
  const std::int64_t group = config.groupSize;
  const std::int64_t wantedCapacity = ringCapacityOf(config);
  while (const std::int64_t nDue = duePages(config, counts().ringTokens)) {
    const auto most = static_cast<std::int64_t>(kBatchBytes / roundBytes);
    const std::int64_t nPages = std::clamp<std::int64_t>(most, 1, nDue);
    growTable(counts().nPages + nPages);
    arena.reserve(pageDemands(config, nLayers(), nPages));
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      packDuePages(layer, {}, 0, nPages);
      Counts& now = layers[layer].counts;
      now.nPages += nPages;
      now.packedTokens += nPages * group;
      now.ringFirst = (now.ringFirst + nPages * group) % ringCapacity;
      now.ringTokens -= nPages * group;
      refreshExact(layer);
    }
    if (wantedCapacity < ringCapacity) {
      moveExact(sinkCapacity, std::max(wantedCapacity, counts().ringTokens));
    }
  }
}

std::uint64_t KvCache::Impl::allocatedBytes() const {
  std::uint64_t bytes = arena.allocatedBytes();
  for (const Layer& layer : layers) bytes += layer.memory.sizeBytes();
  return bytes;
}

/// What convert() does to the pages. False: stopped, with the config of before.
bool KvCache::Impl::convertPages(const KvCacheConfig& wanted, const ConvertProgress& progress,
                                 const std::stop_token& stop, CacheConversion& result) {
  const KvCacheConfig previous = config;
  const std::int64_t previousSink = sinkCapacity;
  const std::int64_t previousRing = ringCapacity;
  Repacker repacker(*this, wanted.solver);
  const auto giveUp = [&] {
    setConfig(previous);
    result.pagesConverted = repacker.pagesConverted();
    moveExact(previousSink, previousRing);
  };
  // What can fail for want of memory comes first.
  moveExact(std::max(sinkCapacity, wanted.sinkLength),
            std::max(ringCapacity, ringCapacityOf(wanted)));
  try {
    const auto formatOf = [&](std::size_t layer, const PageRef& page) {
      return convertedFormat(page.format, wanted.pageFormat(static_cast<std::int64_t>(layer)));
    };
    if (!repacker.run(formatOf, false, progress, stop)) {
      giveUp();
      return false;
    }
    setConfig(wanted);
    packOverdue();
  } catch (...) {
    giveUp();
    throw;
  }
  result.pagesConverted = repacker.pagesConverted();
  moveExact(std::max(wanted.sinkLength, counts().sinkTokens), ringCapacityOf(wanted));
  return true;
}

/// Forgets what the window has left behind, and closes the gaps so that the memory is free.
void KvCache::Impl::forgetAndCompact() {
  const std::int64_t before = counts().forgottenTokens;
  skippedPages = 0;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) forgetOldPages(layer);
  if (counts().forgottenTokens == before) return;
  arena.shrink({});
  const auto sameFormat = [](std::size_t, const PageRef& page) { return page.format; };
  try {
    Repacker(*this, config.solver).run(sameFormat, true, {}, {});
  } catch (const Error& error) {
    // The gaps stay, and the next pages fill them.
    if (error.code() != ErrorCode::kOutOfMemory) throw;
  }
}

CacheConversion KvCache::convert(const KvCacheConfig& wanted, const ConvertProgress& progress,
                                 const std::stop_token& stop) {
  Impl& m = *impl_;
  assert(m.chunkTokens == 0);
  wanted.validate();
  if (wanted.exactType != m.config.exactType) {
    throw Error(ErrorCode::kInvalidArgument,
                "Exact tokens cannot change their type while they are in the cache.");
  }
  CacheConversion result;
  result.bytesBefore = m.allocatedBytes();
  result.tokensKept = length();
  if (length() == 0) {
    clear();
    m.setConfig(wanted);
    return result;
  }
  m.arena.shrink({});
  if (m.convertPages(wanted, progress, stop, result)) {
    if (wanted.slidingWindow > 0) m.forgetAndCompact();
  } else {
    result.isCancelled = true;
  }
  m.arena.shrink({});
  result.bytesAfter = m.allocatedBytes();
  return result;
}

std::uint64_t KvCache::allocatedBytes() const { return impl_->allocatedBytes(); }

CacheContents KvCache::contents() const {
  const Impl& m = *impl_;
  CacheContents contents;
  contents.config = m.config;
  contents.tokens = length();
  contents.forgottenTokens = forgottenTokens();
  contents.sinkTokens = counts().sinkTokens;
  contents.residualTokens = counts().ringTokens;
  for (std::size_t layer = 0; layer < m.layers.size(); ++layer) {
    const std::size_t first = contents.pages.size();
    for (const PageRef& page : m.layers[layer].pages) {
      std::size_t at = first;
      while (at < contents.pages.size() && contents.pages[at].format != page.format) ++at;
      if (at == contents.pages.size()) {
        contents.pages.push_back({static_cast<std::int64_t>(layer), page.format, 0, 0});
      }
      ++contents.pages[at].nPages;
      contents.pages[at].nTokens += page.nTokens;
    }
  }
  return contents;
}

}  // namespace longhand::engine
