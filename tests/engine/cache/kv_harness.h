#pragma once
// A KV cache of a few layers with made-up tokens, for tests of its bookkeeping.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/memory_ledger.h"
#include "engine/cache/kv_cache.h"
#include "kernels/page_layout.h"
#include "kernels/reference/reference_backend.h"

namespace longhand::tests {

/// Keys and values of token t of layer l are the same numbers whenever they are asked for, so two
/// caches that were fed along different ways can be compared.
class KvHarness {
 public:
  KvHarness(const engine::KvCacheConfig& config, std::int64_t nLayers = 2,
            kernels::AttentionShape shape = {4, 2, 8})
      : shape_(shape),
        nLayers_(nLayers),
        backend_(kernels::createReferenceBackend()),
        cache_(*backend_, ledger_, shape, nLayers, config) {}

  engine::KvCache& cache() { return cache_; }
  engine::MemoryLedger& ledger() { return ledger_; }
  kernels::Backend& backend() { return *backend_; }

  /// Feeds tokens [length, length + count) in one chunk.
  void feed(std::int64_t count) {
    cache_.reserve(cache_.length() + count, count);
    cache_.beginChunk(count);
    for (std::int64_t layer = 0; layer < nLayers_; ++layer) appendLayer(layer, count);
    cache_.commitChunk();
  }
  /// One layer of a chunk that has begun.
  void appendLayer(std::int64_t layer, std::int64_t count) {
    const std::int64_t first = cache_.length();
    const std::int64_t width = shape_.nKvHeads * shape_.headDim;
    std::vector<float> keys(static_cast<std::size_t>(count * width));
    std::vector<float> values(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto index = static_cast<std::uint64_t>(first * width) + i;
      keys[i] = number(2 * static_cast<std::uint64_t>(layer), index);
      values[i] = number(2 * static_cast<std::uint64_t>(layer) + 1, index);
    }
    append(layer, keys, values, count);
  }
  /// Rows [count, nKvHeads * headDim].
  void append(std::int64_t layer, std::vector<float>& keys, std::vector<float>& values,
              std::int64_t count) {
    const std::int64_t width = shape_.nKvHeads * shape_.headDim;
    const kernels::DataType type = cache_.config().exactType;
    std::vector<std::byte> keyBytes(kernels::bytesOf(type, count * width));
    std::vector<std::byte> valueBytes(keyBytes.size());
    const kernels::ExactSpan chunk{type, keyBytes.data(), valueBytes.data(), count, count};
    backend_->storeExact(shape_, {keys.data(), count, width, width},
                         {values.data(), count, width, width}, chunk, 0);
    cache_.append(layer, chunk);
  }

  /// Everything a layer shows: counts, exact tokens in order, page formats and page bytes.
  std::vector<std::byte> snapshot(std::int64_t layer) const {
    const kernels::KvView view = cache_.view(layer);
    std::vector<std::byte> result;
    const auto add = [&result](const void* data, std::size_t bytes) {
      const auto* from = static_cast<const std::byte*>(data);
      result.insert(result.end(), from, from + bytes);
    };
    add(&view.nPages, sizeof(view.nPages));
    add(&view.nPagedTokens, sizeof(view.nPagedTokens));
    for (std::int64_t kvHead = 0; kvHead < shape_.nKvHeads; ++kvHead) {
      // Keys of all spans, then values: where a ring begins does not show.
      for (const bool isKeys : {true, false}) {
        for (const kernels::ExactSpan& span : view.exact) {
          const std::size_t offset =
              kernels::bytesOf(span.type, kvHead * span.tokenCapacity * shape_.headDim);
          const std::size_t bytes = kernels::bytesOf(span.type, span.nTokens * shape_.headDim);
          add((isKeys ? span.keys : span.values) + offset, bytes);
        }
      }
    }
    for (std::int64_t i = 0; i < view.nPages; ++i) {
      const kernels::PageRef& page = view.pages[i];
      add(&page.format, sizeof(page.format));
      add(&page.nTokens, sizeof(page.nTokens));
      add(page.data, kernels::pageLayout(page.format, shape_.nKvHeads, shape_.headDim).totalBytes);
    }
    return result;
  }
  std::vector<std::byte> snapshot() const {
    std::vector<std::byte> all;
    for (std::int64_t layer = 0; layer < nLayers_; ++layer) {
      const std::vector<std::byte> one = snapshot(layer);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

 private:
  /// Spread over -2..2 by a hash (splitmix64).
  static float number(std::uint64_t stream, std::uint64_t index) {
    std::uint64_t x = (index + 1) * 0x9e3779b97f4a7c15U + stream * 0xd1342543de82ef95U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    x ^= x >> 31U;
    return static_cast<float>(x >> 40U) * 0x1p-22F - 2.0F;
  }

  kernels::AttentionShape shape_;
  std::int64_t nLayers_;
  std::unique_ptr<kernels::Backend> backend_;
  engine::MemoryLedger ledger_;
  engine::KvCache cache_;
};

}  // namespace longhand::tests
