#pragma once
// What `longhand-cli bench` is asked to measure.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cli/options.h"
#include "kernels/machine_rates.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {

/// A cache to measure and what it is called: "4/2", or the name of a preset.
struct NamedCache {
  std::string name;
  KvCacheConfig config;
};

struct BenchOptions {
  ModelOptions model;
  CacheOptions cache;
  std::string shape;
  std::vector<std::int64_t> depths = {0};
  std::vector<std::string> caches;
  std::int64_t prefillTokens = 512;  // 0: none
  std::int64_t decodeTokens = 32;    // 0: none
  std::int64_t rounds = 3;
  bool measuresKernels = false;
  bool isJson = false;

  /// The caches of --cache, else the one that the other options describe. Throws Error
  /// kInvalidArgument.
  std::vector<NamedCache> namedCaches() const;
  /// Of --shape or --model.
  ModelConfig modelConfig() const;
};

/// The fewest seconds in which this machine reads `bytes` and does `multiplyAdds`, of the fastest
/// kind that it has.
double floorSeconds(const kernels::MachineRates& rates, double bytes, double multiplyAdds);

nlohmann::json ratesJson(const kernels::MachineRates& rates);
/// "The machine reads 52.3 GB/s and does 1099 int8, ... billion multiply-adds a second."
std::string ratesLine(const kernels::MachineRates& rates);
/// Of each rate.
kernels::MachineRates medianRates(const std::vector<kernels::MachineRates>& rates);

}  // namespace longhand::engine::cli
