#pragma once
// What a KV cache takes, in bytes, before it is there: of its exact tokens, its pages, its tables.

#include <cstdint>
#include <vector>

#include "engine/base/memory_ledger.h"
#include "engine/cache/kv_arena.h"
#include "engine/cache/kv_cache_config.h"
#include "kernels/kv_types.h"

namespace longhand::engine {

/// Bytes of a cache that holds `tokens` tokens, by category: what reserve(tokens) allocates, with
/// `chunkTokens` as in reserve.
MemoryUse kvCacheUse(const KvCacheConfig& config, const kernels::AttentionShape& shape,
                     std::int64_t nLayers, std::int64_t tokens, std::int64_t chunkTokens = 1);
/// The most that beginChunk allocates until the chunk ends.
std::uint64_t kvUndoBytes(const KvCacheConfig& config, const kernels::AttentionShape& shape,
                          std::int64_t nLayers);

/// Keys, or values, of `tokens` exact tokens of one layer.
std::uint64_t exactBytes(kernels::DataType type, const kernels::AttentionShape& shape,
                         std::int64_t tokens);
std::int64_t ringCapacityOf(const KvCacheConfig& config);
std::uint64_t pageTableBytes(std::int64_t nLayers, std::int64_t nPagesPerLayer);
/// Bytes of one layer's memory for exact tokens: of the config, and of given capacities.
std::uint64_t exactLayerBytes(const KvCacheConfig& config, const kernels::AttentionShape& shape);
std::uint64_t exactLayerBytes(kernels::DataType type, const kernels::AttentionShape& shape,
                              std::int64_t sinkCapacity, std::int64_t ringCapacity);

/// `nPagesPerLayer` pages in each layer, by format.
std::vector<PageDemand> pageDemands(const KvCacheConfig& config, std::int64_t nLayers,
                                    std::int64_t nPagesPerLayer);
void addDemand(std::vector<PageDemand>& demands, const kernels::PageFormat& format,
               std::int64_t nPages);

}  // namespace longhand::engine
