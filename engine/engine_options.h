#pragma once
// What an Engine is told before it loads a model.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/cache/kv_cache_config.h"
#include "engine/model/model_config.h"
#include "engine/model/weight_format.h"

namespace longhand::engine {

struct EngineOptions {
  WeightFormat weights = WeightFormat::kAuto;
  KvCacheConfig cache;
  std::int64_t contextLength = 0;                    // 0: the model's trained length
  int threads = 0;                                   // 0: the cores this process may use
  std::string cpuPath = "auto";                      // as BackendOptions::cpuPath
  std::optional<std::int64_t> longestFloatRow = {};  // as BackendOptions::longestFloatRow
  std::string backend = "cpu";                       // cpu, cuda, auto (engine/backend_factory.h)
  std::filesystem::path cudaPlugin;                  // as BackendOptions::cudaPlugin
  std::int64_t chunkTokens = 0;  // prefill chunk; 0: the whole prompt where memory allows
  /// Instead of what config.json says: published long-context configs are often wrong.
  std::optional<RopeConfig> rope;
};

}  // namespace longhand::engine
