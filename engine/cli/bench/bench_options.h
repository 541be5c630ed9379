#pragma once
// What `longhand-cli bench` is asked to measure.

#include <cstdint>
#include <functional>
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

/// What per cents of the floor are taken of.
struct MachineSpeed {
  kernels::MachineRates rates;
  double cacheBytes = 0.0;  // of the last-level caches; 0: unknown, or a device
};

/// What must be done at least.
struct Work {
  double bytes = 0.0;  // to read
  double multiplyAdds = 0.0;
  /// What is read until the same bytes are read again: where the processor's caches hold all of it,
  /// the rate of memory is no floor.
  double footprintBytes = 0.0;
};

/// The fewest seconds in which the machine does the work, with the fastest multiply-adds that it
/// has. 0: nothing known to take time.
double floorSeconds(const MachineSpeed& machine, const Work& work);

/// Measures the machine before and after each thing that is measured, and takes the better of both
/// for it: rates that fell while something else ran would make per cents of more than 100.
class RateProbe {
 public:
  /// `measure` is called once here, and once for each bracket.
  RateProbe(std::function<kernels::MachineRates()> measure, bool isOnHost);
  /// Ends the measurement since the construction or the last call.
  MachineSpeed bracket();
  /// Of all calls so far: the middle one of each rate.
  MachineSpeed median() const;

 private:
  std::function<kernels::MachineRates()> measure_;
  double cacheBytes_;
  std::vector<kernels::MachineRates> all_;  // at least one
};

nlohmann::json machineJson(const MachineSpeed& machine);
/// "The machine reads 52.3 GB/s and does 1099 int8, ... billion multiply-adds a second."
std::string machineLine(const MachineSpeed& machine);
/// "62.3", or "cache" where there is no floor.
std::string percentOfFloorText(double percent);

}  // namespace longhand::engine::cli
