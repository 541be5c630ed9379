#include "engine/cache/kv_arena.h"

#include <algorithm>

#include "kernels/page_layout.h"

namespace longhand::engine {
namespace {

constexpr MemoryCategory kCategories[] = {MemoryCategory::kWeights, MemoryCategory::kKvCodes,
                                          MemoryCategory::kKvScales, MemoryCategory::kKvExact,
                                          MemoryCategory::kWorkspace};

std::uint64_t slabBytes(std::uint64_t pageBytes, std::int64_t nPages) {
  return pageBytes * static_cast<std::uint64_t>(nPages);
}

}  // namespace

MemoryUse pageUse(const kernels::PageFormat& format, const kernels::AttentionShape& shape) {
  const kernels::PageLayout layout = kernels::pageLayout(format, shape.nKvHeads, shape.headDim);
  const auto codeCategory = [](int nbits) {
    return nbits == 16 ? MemoryCategory::kKvExact : MemoryCategory::kKvCodes;
  };
  MemoryUse use;
  use[codeCategory(format.keyNbits)] += layout.valueCodes - layout.keyCodes;
  use[codeCategory(format.valueNbits)] += layout.codeBytes - layout.valueCodes;
  use[MemoryCategory::kKvScales] += layout.scaleBytes;
  return use;
}

KvArena::KvArena(kernels::Backend& backend, MemoryLedger& ledger,
                 const kernels::AttentionShape& shape)
    : backend_(backend), ledger_(ledger), shape_(shape) {}

KvArena::~KvArena() {
  for (Pool& each : pools_) {
    while (!each.slabs.empty()) releaseSlab(each, each.slabs.size() - 1);
  }
}

KvArena::Pool& KvArena::pool(const kernels::PageFormat& format) {
  for (Pool& each : pools_) {
    if (each.format == format) return each;
  }
  Pool created;
  created.format = format;
  created.pageUse = pageUse(format, shape_);
  created.pageBytes = created.pageUse.total();
  return pools_.emplace_back(std::move(created));
}

void KvArena::reserve(std::span<const PageDemand> demands) {
  std::uint64_t missingBytes = 0;
  for (const PageDemand& demand : demands) {
    const Pool& each = pool(demand.format);
    missingBytes +=
        slabBytes(each.pageBytes, std::max<std::int64_t>(0, demand.nPages - each.nFree));
  }
  if (missingBytes == 0) return;
  requireFreeMemory(backend_, missingBytes + untouchedBytes());

  std::vector<std::size_t> slabsBefore;
  for (const Pool& each : pools_) slabsBefore.push_back(each.slabs.size());
  try {
    for (const PageDemand& demand : demands) {
      Pool& each = pool(demand.format);
      if (demand.nPages > each.nFree) addSlabs(each, demand.nPages - each.nFree);
    }
  } catch (...) {
    for (std::size_t i = 0; i < pools_.size(); ++i) {
      while (pools_[i].slabs.size() > slabsBefore[i]) {
        releaseSlab(pools_[i], pools_[i].slabs.size() - 1);
      }
    }
    throw;
  }
}

std::int64_t KvArena::pagesOfSlab(std::uint64_t pageBytes) const {
  const auto most = std::max<std::int64_t>(1, static_cast<std::int64_t>(kMaxSlabBytes / pageBytes));
  const std::uint64_t granularity = backend_.allocationGranularity();
  const auto wastedShare = [&](std::int64_t nPages) {
    const std::uint64_t bytes = slabBytes(pageBytes, nPages);
    const std::uint64_t wasted = (granularity - bytes % granularity) % granularity;
    return static_cast<double>(wasted) / static_cast<double>(bytes);
  };
  std::int64_t best = most;
  for (std::int64_t nPages = most - 1; nPages > most / 2 && wastedShare(best) > 0.0; --nPages) {
    if (wastedShare(nPages) < wastedShare(best)) best = nPages;
  }
  return best;
}

void KvArena::addSlabs(Pool& pool, std::int64_t nPages) {
  const std::int64_t maxPages = pagesOfSlab(pool.pageBytes);
  while (nPages > 0) {
    Slab slab;
    slab.id = nextSlabId_++;
    slab.nPages = std::min(nPages, maxPages);
    pool.slabs.reserve(pool.slabs.size() + 1);
    const std::uint64_t bytes = slabBytes(pool.pageBytes, slab.nPages);
    slab.memory = backend_.allocate(bytes);
    if (slab.memory == nullptr) throwNoRoom(backend_, bytes);
    for (const MemoryCategory category : kCategories) {
      ledger_.add(category, slabBytes(pool.pageUse[category], slab.nPages));
    }
    pool.nFree += slab.nPages;
    nPages -= slab.nPages;
    pool.slabs.push_back(std::move(slab));
  }
}

void KvArena::releaseSlab(Pool& pool, std::size_t index) noexcept {
  const Slab& slab = pool.slabs[index];
  backend_.release(slab.memory, slabBytes(pool.pageBytes, slab.nPages));
  for (const MemoryCategory category : kCategories) {
    ledger_.subtract(category, slabBytes(pool.pageUse[category], slab.nPages));
  }
  if (!slab.isRetired) pool.nFree -= slab.nPages - slab.nUsed;
  pool.slabs.erase(pool.slabs.begin() + static_cast<std::ptrdiff_t>(index));
}

std::byte* KvArena::take(const kernels::PageFormat& format) {
  Pool& from = pool(format);
  for (Slab& slab : from.slabs) {
    if (slab.nUsed == slab.nPages || slab.isRetired) continue;
    std::int64_t index = 0;
    if (slab.recycled.empty()) {
      index = slab.nTouched++;
    } else {
      index = slab.recycled.back();
      slab.recycled.pop_back();
    }
    ++slab.nUsed;
    --from.nFree;
    return slab.memory + slabBytes(from.pageBytes, index);
  }
  throw Error(ErrorCode::kInternal, "A KV page was taken that had not been reserved.");
}

void KvArena::give(const kernels::PageFormat& format, std::byte* page) {
  Pool& to = pool(format);
  for (std::size_t i = 0; i < to.slabs.size(); ++i) {
    Slab& slab = to.slabs[i];
    const std::byte* end = slab.memory + slabBytes(to.pageBytes, slab.nPages);
    if (page < slab.memory || page >= end) continue;
    const auto offset = static_cast<std::uint64_t>(page - slab.memory);
    slab.recycled.push_back(static_cast<std::int64_t>(offset / to.pageBytes));
    --slab.nUsed;
    if (!slab.isRetired) {
      ++to.nFree;
    } else if (slab.nUsed == 0) {
      releaseSlab(to, i);
    }
    return;
  }
  throw Error(ErrorCode::kInternal, "A KV page was returned that the arena does not know.");
}

void KvArena::shrink(std::span<const PageDemand> keepFree) {
  for (Pool& each : pools_) {
    std::int64_t keep = 0;
    for (const PageDemand& demand : keepFree) {
      if (demand.format == each.format) keep += demand.nPages;
    }
    for (std::size_t i = each.slabs.size(); i-- > 0;) {
      const Slab& slab = each.slabs[i];
      if (slab.nUsed == 0 && each.nFree - slab.nPages >= keep) releaseSlab(each, i);
    }
  }
}

void KvArena::wipe() {
  for (Pool& each : pools_) {
    for (Slab& slab : each.slabs) {
      zeroMemory(backend_, slab.memory, slabBytes(each.pageBytes, slab.nTouched));
      each.nFree += slab.nUsed;
      slab.nUsed = 0;
    }
    while (!each.slabs.empty()) releaseSlab(each, each.slabs.size() - 1);
  }
}

KvArena::SlabId KvArena::slabOf(const kernels::PageFormat& format, const std::byte* page) const {
  for (const Pool& each : pools_) {
    if (each.format != format) continue;
    for (const Slab& slab : each.slabs) {
      const std::byte* end = slab.memory + slabBytes(each.pageBytes, slab.nPages);
      if (page >= slab.memory && page < end) return slab.id;
    }
  }
  throw Error(ErrorCode::kInternal, "The arena does not know a KV page.");
}

KvArena::Slab& KvArena::slab(SlabId id, Pool** pool) {
  for (Pool& each : pools_) {
    for (Slab& slab : each.slabs) {
      if (slab.id != id) continue;
      *pool = &each;
      return slab;
    }
  }
  throw Error(ErrorCode::kInternal, "The arena does not know a slab.");
}

bool KvArena::hasRoom(SlabId id) const {
  for (const Pool& each : pools_) {
    for (const Slab& slab : each.slabs) {
      if (slab.id == id) return slab.nUsed < slab.nPages;
    }
  }
  return false;
}

void KvArena::retire(SlabId id) {
  Pool* pool = nullptr;
  Slab& retired = slab(id, &pool);
  retired.isRetired = true;
  pool->nFree -= retired.nPages - retired.nUsed;
}

void KvArena::revive(SlabId id) {
  Pool* pool = nullptr;
  Slab& revived = slab(id, &pool);
  revived.isRetired = false;
  pool->nFree += revived.nPages - revived.nUsed;
}

std::uint64_t KvArena::allocatedBytes() const {
  std::uint64_t bytes = 0;
  for (const Pool& each : pools_) {
    for (const Slab& slab : each.slabs) bytes += slabBytes(each.pageBytes, slab.nPages);
  }
  return bytes;
}

std::uint64_t KvArena::untouchedBytes() const {
  std::uint64_t bytes = 0;
  for (const Pool& each : pools_) {
    for (const Slab& slab : each.slabs) {
      bytes += slabBytes(each.pageBytes, slab.nPages - slab.nTouched);
    }
  }
  return bytes;
}

MemoryUse KvArena::unusedBytes() const {
  MemoryUse unused;
  for (const Pool& each : pools_) {
    for (const MemoryCategory category : kCategories) {
      unused[category] += slabBytes(each.pageUse[category], each.nFree);
    }
  }
  return unused;
}

}  // namespace longhand::engine
