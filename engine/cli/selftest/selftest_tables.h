#pragma once
// The tables of parts b and c: rows with what was measured beside what was predicted, or the
// prediction alone, in text and JSON; and the numbers that the targets are compared with.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "engine/cli/bench/bench_statistics.h"
#include "engine/cli/selftest/selftest_report.h"
#include "engine/cli/selftest/selftest_rows.h"

namespace longhand::engine::cli {

/// Numbers that the targets are compared with, measured or predicted. 0: not known.
struct SelftestFindings {
  double nf4PercentOfCopy = 0.0;  // of all matrices of a layer, 1 token
  std::map<std::pair<int, std::int64_t>, double> attentionSeconds;  // by bits and depth, a layer
  double halfAttentionPercentOfCopy = 0.0;                          // F16, largest depth
  std::map<std::tuple<std::string, int, std::int64_t>, double> tokensPerSecond;  // weights, bits
  double decodePercentOfCopy = 0.0;                                              // NF4, depth 0
  double prefillPercentOfRate = 0.0;  // the longest prompt
  bool isPrefillEstimated = false;
  std::map<int, double> usedGiB;  // by bits, NF4 weights at the largest depth
};

/// Of decode.
struct MeasuredSteps {
  Sample seconds;
  std::size_t count = 0;
  std::uint64_t peakBytes = 0;
};

/// Of a prompt. 0 seconds: not measured.
struct MeasuredPrompt {
  double seconds = 0.0;
  bool isEstimated = false;  // from sections
};

/// At the largest depth, all of it: weights, cache, scratch, backend, context. 0: not known.
struct MemoryRow {
  WeightFormat weights = WeightFormat::kNf4;
  int nbits = 0;
  std::uint64_t takenBytes = 0;  // by us, at most; with the backend's own
  std::uint64_t ownBytes = 0;    // of that, the backend's own
  std::uint64_t usedBytes = 0;   // with context and other programs
  std::uint64_t plannedTakenBytes = 0;
  std::uint64_t plannedUsedBytes = 0;
};

/// One thread at a time. The references must outlive it.
class SelftestTables {
 public:
  SelftestTables(SelftestReport& report, const SelftestOptions& options, bool isMeasured)
      : report_(report), options_(options), isMeasured_(isMeasured) {}

  /// What rates are compared with; before any row.
  void setSpeed(const DeviceSpeed& speed) { speed_ = speed; }
  const DeviceSpeed& speed() const { return speed_; }

  void beginStages();
  void add(const StageRow& row, const Sample* measured = nullptr);
  void beginDecode(WeightFormat weights);
  void add(const DecodeRow& row, const MeasuredSteps* measured = nullptr);
  void beginPrefill(WeightFormat weights);
  void add(const PrefillRow& row, const MeasuredPrompt& measured = {});
  void add(const MemoryRow& row);
  /// Issue 5 of the project's plan: what a real GPU shall reach.
  void compareWithTargets();

 private:
  /// A heading is written before the first row behind it, and not twice in a row.
  void begin(const std::string& heading);
  void write(const char* section, nlohmann::json numbers, const std::string& line);
  double percentOfCopy(double bytesPerSecond) const;
  double percentOfRate(double operationsPerSecond) const;
  std::string predictedText(double value, int decimals, const Prediction& predicted) const;
  void note(SelftestFindings& findings, const StageRow& row, double seconds) const;

  SelftestReport& report_;
  const SelftestOptions& options_;
  bool isMeasured_;
  std::string heading_;
  bool isHeadingDue_ = false;
  DeviceSpeed speed_;
  SelftestFindings measured_;
  SelftestFindings predicted_;
};

}  // namespace longhand::engine::cli
