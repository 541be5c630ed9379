#pragma once
// The parts of a self-test (engine/cli/selftest.h), and what they share.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>

#include "engine/cli/bench_statistics.h"
#include "engine/cli/selftest.h"
#include "engine/cli/selftest_report.h"
#include "engine/kv_cache_config.h"

namespace longhand::engine::cli {

/// Numbers that the targets are compared with.
struct SelftestFindings {
  double copyBytesPerSecond = 0.0;       // read and written; 0: not measured
  double halfOperationsPerSecond = 0.0;  // of matrix products in 16 bits; likewise
  double nf4PercentOfCopy = 0.0;         // of all matrices of a layer, 1 token
  std::map<std::pair<int, std::int64_t>, double> attentionSeconds;  // by bits and depth, a layer
  double halfAttentionPercentOfCopy = 0.0;                          // F16, largest depth
  std::map<std::tuple<std::string, int, std::int64_t>, double> tokensPerSecond;  // weights, bits
  double decodePercentOfCopy = 0.0;                                              // NF4, depth 0
  double prefillPercentOfRate = 0.0;  // the longest prompt
  bool isPrefillEstimated = false;
  std::map<int, double> usedGiB;  // by bits, NF4 weights at the largest depth
};

/// What every part is given.
struct SelftestRun {
  kernels::Backend& backend;
  const SelftestOptions& options;
  SelftestReport& report;
  SelftestFindings& findings;
  std::stop_token stop;
  double endSeconds = 0.0;  // since the start: when this part shall be done

  /// Waits for the device. Throws Error kDevice, kCancelled.
  void wait() const;
  /// False, and says so, when the time left is not enough for what takes about `seconds`.
  bool hasTimeFor(const std::string& what, double seconds) const;
  /// Seconds of one of the `nCalls` calls that a pass makes, over several rounds.
  Sample measure(std::int64_t nCalls, const std::function<void()>& pass) const;
  /// Of a measurement: one where the time for it is 0.
  std::size_t fewestRounds() const { return options.secondsEach > 0.0 ? 3 : 1; }
  /// Does `work`; a lack of memory leaves it out. False then.
  bool unlessTooLarge(const std::string& what, const std::function<void()>& work) const;
};

/// Groups of 64, a residual of 128.
KvCacheConfig selftestCache(int keyNbits, int valueNbits);

void checkAllKernels(const SelftestRun& run);
void measureStages(const SelftestRun& run);
void measureModels(const SelftestRun& run);
/// Issue 5 of the project's plan: what a real GPU shall reach.
void compareWithTargets(const SelftestRun& run);

}  // namespace longhand::engine::cli
