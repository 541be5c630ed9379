#pragma once
// The parts of a self-test (engine/cli/selftest/selftest.h), and what they share.

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "engine/cli/bench/bench_statistics.h"
#include "engine/cli/selftest/selftest.h"
#include "engine/cli/selftest/selftest_report.h"
#include "engine/cli/selftest/selftest_rows.h"
#include "engine/cli/selftest/selftest_tables.h"

namespace longhand::engine::cli {

/// What every part is given.
struct SelftestRun {
  kernels::Backend& backend;
  const SelftestOptions& options;
  SelftestReport& report;
  SelftestTables& tables;
  std::stop_token stop;
  std::uint64_t otherBytes = 0;  // held before: by the driver and other programs
  double endSeconds = 0.0;       // since the start: when this part shall be done

  /// With predictions for the device, once its speed is known.
  SelftestRows rows() const { return {options, tables.speed()}; }
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

/// Copying at best. Without seconds: there was no room for it.
struct MeasuredCopy {
  double bytes = 0.0;  // read and written
  Sample seconds;
};

void checkAllKernels(const SelftestRun& run);
/// What the device does at best: all rows are compared with it and predicted from it.
MeasuredCopy measureSpeed(const SelftestRun& run);
void measureStages(const SelftestRun& run, const MeasuredCopy& copy);
void measureModels(const SelftestRun& run);
}  // namespace longhand::engine::cli
