#include "engine/cache/kv_bytes.h"

#include <algorithm>

#include "engine/cache/kv_schedule.h"

namespace longhand::engine {
namespace {

using kernels::AttentionShape;
using kernels::PageFormat;

constexpr std::uint64_t kAlignmentBytes = 64;

}  // namespace

std::uint64_t exactBytes(kernels::DataType type, const AttentionShape& shape, std::int64_t tokens) {
  const std::uint64_t bytes = kernels::bytesOf(type, shape.nKvHeads * shape.headDim * tokens);
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

std::int64_t ringCapacityOf(const KvCacheConfig& config) {
  return config.residualLength + config.groupSize;
}

std::uint64_t pageTableBytes(std::int64_t nLayers, std::int64_t nPagesPerLayer) {
  return static_cast<std::uint64_t>(nLayers * nPagesPerLayer) * sizeof(kernels::PageRef);
}

std::uint64_t exactLayerBytes(const KvCacheConfig& config, const AttentionShape& shape) {
  return exactLayerBytes(config.exactType, shape, config.sinkLength, ringCapacityOf(config));
}

std::uint64_t exactLayerBytes(kernels::DataType type, const AttentionShape& shape,
                              std::int64_t sinkCapacity, std::int64_t ringCapacity) {
  return 2 * (exactBytes(type, shape, sinkCapacity) + exactBytes(type, shape, ringCapacity));
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

std::vector<PageDemand> pageDemands(const KvCacheConfig& config, std::int64_t nLayers,
                                    std::int64_t nPagesPerLayer) {
  std::vector<PageDemand> demands;
  for (std::int64_t layer = 0; layer < nLayers; ++layer) {
    addDemand(demands, config.pageFormat(layer), nPagesPerLayer);
  }
  return demands;
}

MemoryUse kvCacheUse(const KvCacheConfig& config, const AttentionShape& shape, std::int64_t nLayers,
                     std::int64_t tokens, std::int64_t chunkTokens) {
  MemoryUse use;
  use[MemoryCategory::kKvExact] =
      exactLayerBytes(config, shape) * static_cast<std::uint64_t>(nLayers);
  const PageSchedule empty{0, config.sinkLength, 0, {}};
  const std::int64_t nPages = std::max(freePagesNeeded(config, empty, tokens, chunkTokens),
                                       freePagesNeeded(config, empty, tokens, 1));
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
         exactBytes(config.exactType, shape, ringCapacityOf(config) - 1);
}

}  // namespace longhand::engine
