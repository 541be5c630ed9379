#pragma once
// A one-layer KvCache on a CPU backend and its slow twin, fed with the same made-up tokens and
// compared: what attention gives, and what every token reads as.
//
// Memory that the cache gets is full of NaN, and is filled with NaN again when it is given back, so
// that reading what was never written, or no longer belongs to the cache, shows.

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/memory_ledger.h"
#include "engine/cache/kv_cache.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/cache/cache_twin.h"
#include "tests/engine/device_like_backend.h"

namespace longhand::tests {

class PoisoningBackend : public engine::DeviceLikeBackend {
 public:
  using DeviceLikeBackend::DeviceLikeBackend;
  std::byte* allocate(std::size_t bytes) override {
    std::byte* memory = DeviceLikeBackend::allocate(bytes);
    if (memory != nullptr) std::memset(memory, 0xff, bytes);  // NaN in F16 and in F32
    return memory;
  }
  void release(std::byte* memory, std::size_t bytes) noexcept override {
    if (memory != nullptr) std::memset(memory, 0xff, bytes);
    DeviceLikeBackend::release(memory, bytes);
  }
};

class CachePair {
 public:
  CachePair(const kernels::AttentionShape& shape, const engine::KvCacheConfig& config,
            kernels::CpuPath path = kernels::CpuPath::kAuto);
  /// On a backend that attends to single queries in floats, and whose memory this process can read.
  CachePair(const kernels::AttentionShape& shape, const engine::KvCacheConfig& config,
            std::unique_ptr<kernels::Backend> backend);

  engine::KvCache& cache() { return cache_; }
  const CacheTwin& twin() const { return twin_; }

  /// Feeds `count` tokens as one chunk. Token t of a text depends on both alone. The last
  /// min(count, nQueries) tokens also attend, before they enter the cache. False: see failure().
  bool feed(std::int64_t count, std::int64_t nQueries = 1, unsigned text = 0);
  void truncate(std::int64_t n);

  /// Whether every token reads as the twin's, bit for bit, in order.
  bool readsAsTheTwin();
  /// Keys and values of all tokens as attention reads them, [tokens, keys then values].
  std::vector<float> read() const;
  /// FNV-1a of each page's bytes.
  std::vector<std::uint64_t> pageHashes() const;

  /// The first thing that went wrong.
  const std::string& failure() const { return failure_; }

  /// Exact keys and values of token t of a text, [nKvHeads * headDim] each: keys with offsets and
  /// outlier channels, values unlike them.
  std::vector<float> exactKeys(std::int64_t token, unsigned text) const;
  std::vector<float> exactValues(std::int64_t token, unsigned text) const;

 private:
  bool compareAttention(const std::vector<float>& keys, const std::vector<float>& values,
                        const kernels::ExactSpan& chunk, std::int64_t row, unsigned text);
  double tolerance(const kernels::MatrixView& query, float scoreScale) const;

  kernels::AttentionShape shape_;
  std::unique_ptr<kernels::Backend> inner_;
  bool hasIntegers_ = false;  // attention to few queries rounds them where they meet codes
  PoisoningBackend backend_;
  engine::MemoryLedger ledger_;
  engine::KvCache cache_;
  CacheTwin twin_;
  double keySquares_ = 0.0;
  std::int64_t nKeys_ = 0;
  float largestValue_ = 0.0F;
  std::string failure_;
};

}  // namespace longhand::tests
