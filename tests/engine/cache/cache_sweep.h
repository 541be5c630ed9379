#pragma once
// Every setting of the KV cache against the slow twin, with the lengths at which its states change.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/cache/kv_cache_config.h"
#include "kernels/backend.h"
#include "kernels/kv_types.h"

namespace longhand::tests {

struct SweepCase {
  kernels::AttentionShape shape;
  engine::KvCacheConfig config;
  int index = 0;  // in sweepCases()

  std::string name() const;
};

/// Keys and values of {16, 8, 4, 2} bits, groups of 32, 64, 128, residual lengths 0, 1, G-1, G,
/// 128, 256, head_dim 8, 64, 80, 100, 128, with and without shared kv heads: 2,880 cases. Sinks,
/// schemes, solvers and types of exact numbers take turns.
std::vector<SweepCase> sweepCases();

/// Prefills of R-1, R, R+1, R+G-1, R+G and 2R tokens (behind the sink) into fresh caches, then
/// `nSteps` steps of decode behind the last. Empty when all is as the slow twin's, else what is
/// not. On a CPU path that the index chooses, or on backends that `create` makes (see CachePair).
using BackendMaker = std::function<std::unique_ptr<kernels::Backend>()>;
std::string sweep(const SweepCase& each, std::int64_t nSteps, const BackendMaker& create = {});

}  // namespace longhand::tests
