#pragma once
// Memory for the pages of a KV cache: taken from the backend in slabs, handed out page by page.
//
// The ledger counts slabs, that is, what is really allocated: pages in use and pages reserved for
// tokens to come. On a CPU a reserved page costs an address range only until it is first written,
// but it is promised, so it counts. A slab holds exactly the pages one reserve() lacked (at most
// kMaxSlabBytes), so that a forecast from page counts agrees with the ledger.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/memory_ledger.h"
#include "kernels/backend.h"
#include "kernels/kv_types.h"

namespace longhand::engine {

/// Bytes of one page by category: codes, scales (with mins), and exact parts (16 bits).
MemoryUse pageUse(const kernels::PageFormat& format, const kernels::AttentionShape& shape);

struct PageDemand {
  kernels::PageFormat format;
  std::int64_t nPages = 0;
};

/// Owner: one KvCache. Not thread-safe. The backend and the ledger must outlive it. Pages of a
/// format come from slabs of that format alone, so that nothing is lost to fragmentation.
class KvArena {
 public:
  KvArena(kernels::Backend& backend, MemoryLedger& ledger, const kernels::AttentionShape& shape);
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;
  ~KvArena();

  /// Makes sure that at least nPages of each format (each named once) are free. Throws Error
  /// kOutOfMemory; nothing has changed then.
  void reserve(std::span<const PageDemand> demands);
  /// A free page, 64-byte aligned, contents undefined. Throws kInternal when none was reserved.
  std::byte* take(const kernels::PageFormat& format);
  /// Puts a page back on the free list. Its bytes stay until it is used again or wipe().
  void give(const kernels::PageFormat& format, std::byte* page);
  /// Gives slabs without a used page back to the backend, as long as nPages of each format stay
  /// free. Formats that are not named keep none.
  void shrink(std::span<const PageDemand> keepFree);
  /// Zeroes every page that was ever used and gives all slabs back. Pages taken become invalid.
  void wipe();

  /// Pages with the same id lie in the same slab, and can only be freed together. Slabs that were
  /// taken earlier have smaller ids.
  using SlabId = std::uint64_t;
  SlabId slabOf(const kernels::PageFormat& format, const std::byte* page) const;
  /// Whether the slab has free pages.
  bool hasRoom(SlabId id) const;
  /// The slab hands out no more pages, and goes back to the backend with its last used one.
  void retire(SlabId id);
  /// Takes retire() back.
  void revive(SlabId id);

  std::uint64_t allocatedBytes() const;
  /// Reserved bytes that were never written: a CPU's free memory does not know of them yet.
  std::uint64_t untouchedBytes() const;
  /// Bytes of the pages that no token uses: those reserved, and those given back and kept.
  MemoryUse unusedBytes() const;

 private:
  static constexpr std::uint64_t kMaxSlabBytes = std::uint64_t{32} << 20U;

  struct Slab {
    SlabId id = 0;
    std::byte* memory = nullptr;  // [nPages, pageBytes]
    std::int64_t nPages = 0;
    std::int64_t nUsed = 0;
    std::int64_t nTouched = 0;           // pages [0, nTouched) have been handed out before
    bool isRetired = false;              // its free pages count for nothing
    std::vector<std::int64_t> recycled;  // of them, those that are free now
  };
  struct Pool {
    kernels::PageFormat format;
    MemoryUse pageUse;
    std::uint64_t pageBytes = 0;
    std::int64_t nFree = 0;
    std::vector<Slab> slabs;
  };

  Pool& pool(const kernels::PageFormat& format);
  Slab& slab(SlabId id, Pool** pool);
  void addSlabs(Pool& pool, std::int64_t nPages);
  /// Of a full slab: as many as fit kMaxSlabBytes, or somewhat fewer where a device would round the
  /// slab up by more.
  std::int64_t pagesOfSlab(std::uint64_t pageBytes) const;
  void releaseSlab(Pool& pool, std::size_t index) noexcept;

  kernels::Backend& backend_;
  MemoryLedger& ledger_;
  kernels::AttentionShape shape_;
  std::vector<Pool> pools_;
  SlabId nextSlabId_ = 1;
};

}  // namespace longhand::engine
