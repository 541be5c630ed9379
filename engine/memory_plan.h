#pragma once
// The forecast: bytes by category before anything is allocated, from the same formulas as the
// allocations themselves. Plan and ledger agree within 3 % at full context.

#include <cstdint>

#include "engine/base/memory_ledger.h"
#include "engine/cache/kv_cache_config.h"
#include "engine/model/model.h"
#include "engine/model/model_config.h"

namespace longhand::engine {

struct PlanRequest {
  ModelConfig model;
  WeightFormat weights = WeightFormat::kNf4;
  KvCacheConfig cache;
  std::int64_t contextLength = 4096;
  std::int64_t chunkTokens = 0;   // prefill chunk; 0: the whole context
  std::uint64_t weightBytes = 0;  // when known from a loaded model; 0: computed
  /// What the backend holds for itself (kernels::OwnMemory::deviceBytes): part of the workspace.
  std::uint64_t backendBytes = 0;
};

/// Bytes by category with the context full.
MemoryUse planMemory(const PlanRequest& request);
/// The largest context that fits `totalBytes` (0 when not even the weights do), with the largest
/// chunk that fits.
std::int64_t largestContext(const PlanRequest& request, std::uint64_t totalBytes);
/// The largest prefill chunk (<= contextLength) whose scratch fits the memory left.
std::int64_t largestChunk(const PlanRequest& request, std::uint64_t totalBytes);

}  // namespace longhand::engine
