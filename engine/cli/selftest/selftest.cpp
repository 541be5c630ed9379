#include "engine/cli/selftest/selftest.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <new>
#include <ostream>
#include <string>

#include "engine/base/device_fault.h"
#include "engine/base/error.h"
#include "engine/base/throttle.h"
#include "engine/cli/selftest/selftest_parts.h"

namespace longhand::engine::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// One sentence on what the test says, and what it says nothing about.
std::string verdict(const SelftestReport& report, const SelftestOptions& options) {
  if (report.hasFailed()) return "FAILED: something is wrong, see above.";
  struct Section {
    char part;
    const char* name;
    const char* title;
  };
  constexpr std::array<Section, 4> kSections = {Section{'a', "kernels", "the kernels"},
                                                {'b', "stages", "stages"},
                                                {'c', "decode", "decode"},
                                                {'c', "prefill", "prefill"}};
  std::string missing;
  for (const Section& section : kSections) {
    const bool isWanted = options.parts.find(section.part) != std::string::npos &&
                          (options.prefillTokens > 0 || section.title != kSections[3].title);
    if (!isWanted || report.hasRows(section.name)) continue;
    missing += (missing.empty() ? "" : ", ") + std::string(section.title);
  }
  const std::size_t nLeftOut = report.nLeftOut();
  if (missing.empty() && nLeftOut == 0) return "All that was checked is right.";
  std::string text = "What was checked is right, but ";
  if (!missing.empty()) text += "nothing at all was measured of: " + missing + "; ";
  return text + std::to_string(nLeftOut) + (nLeftOut == 1 ? " row was" : " rows were") +
         " left out, as listed above.";
}

}  // namespace

ModelConfig selftestShape(const std::string& name) {
  if (name != "tiny") return shapeConfig(name);
  ModelConfig config;
  config.name = name;
  config.hiddenSize = 256;
  config.intermediateSize = 384;
  config.nLayers = 2;
  config.nHeads = 4;
  config.nKvHeads = 2;
  config.headDim = 64;
  config.vocabSize = 320;
  config.trainedLength = 1024;
  config.rope.maxPositionEmbeddings = config.trainedLength;
  config.eosTokens = {2};
  return config;
}

void SelftestRun::wait() const {
  requireNoFault(backend, "The device failed");
  if (stop.stop_requested()) {
    throw Error(ErrorCode::kCancelled, "Stopped before all was measured.");
  }
}

bool SelftestRun::hasTimeFor(const std::string& what, double seconds) const {
  if (endSeconds - report.secondsPassed() >= seconds) return true;
  report.leaveOut(what, "no time left for it within " + decimalText(endSeconds, 0) + " s");
  return false;
}

Sample SelftestRun::measure(std::int64_t nCalls, const std::function<void()>& pass) const {
  constexpr double kShortestRound = 5e-3;  // so that waiting for the device does not count
  constexpr std::size_t kMostRounds = 200;
  Clock::time_point start = Clock::now();
  pass();
  wait();  // the first one also wakes the device
  const double first = secondsSince(start);
  if (report.secondsLeft() < 2.0 * first) return sampleOf({first / static_cast<double>(nCalls)});
  start = Clock::now();
  pass();
  wait();
  const double once = std::max(secondsSince(start), 1e-7);
  if (once > 4.0 * options.secondsEach && options.secondsEach > 0.0) {
    return sampleOf({once / static_cast<double>(nCalls)});
  }
  const auto nPasses =
      static_cast<std::int64_t>(std::clamp(std::ceil(kShortestRound / once), 1.0, 1000.0));
  std::vector<double> seconds;
  start = Clock::now();
  while (seconds.size() < kMostRounds &&
         (seconds.size() < fewestRounds() || secondsSince(start) < options.secondsEach)) {
    const Clock::time_point round = Clock::now();
    for (std::int64_t i = 0; i < nPasses; ++i) pass();
    wait();
    seconds.push_back(secondsSince(round) / static_cast<double>(nPasses * nCalls));
  }
  return sampleOf(seconds);
}

bool SelftestRun::unlessTooLarge(const std::string& what, const std::function<void()>& work) const {
  try {
    work();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    report.leaveOut(what, error.message());
  } catch (const std::bad_alloc&) {
    report.leaveOut(what, "there is not enough memory");
  }
  return false;
}

void checkAllKernels(const SelftestRun& run) {
  run.report.heading(
      "A. Kernels against the slow twin (error: 1.000 is the most that rounding "
      "explains)\n" +
      padded("operation", 20) + padded("what", 42) + " cases   error");
  bool isTooSlow = false;
  const auto onCheck = [&](const kernels::checks::KernelCheck& check) {
    const bool isGood = check.result.isGood();
    std::string line =
        padded(check.operation, 20) + padded(check.what, 42) + decimalText(check.nCases, 0, 6) +
        (check.result.worst > 0.0 ? decimalText(check.result.worst, 3, 8) : "    same") +
        (isGood ? "" : "  WRONG");
    run.report.row(
        "kernels",
        {{"operation", check.operation},
         {"what", check.what},
         {"cases", check.nCases},
         {"error_of_tolerance", std::isfinite(check.result.worst) ? check.result.worst : 1e300},
         {"is_right", isGood},
         {"problem", check.result.problem},
         {"seconds", check.seconds}},
        line);
    if (!isGood) {
      run.report.fail(check.operation + ", " + check.what + ": " + check.result.problem);
    }
    if (run.stop.stop_requested()) {
      throw Error(ErrorCode::kCancelled, "Stopped before all was checked.");
    }
    isTooSlow = run.report.secondsPassed() > run.endSeconds;
    return !isTooSlow;
  };
  run.unlessTooLarge("the rest of the kernels", [&] {
    run.report.say("checking the kernels");
    kernels::checks::checkKernels(run.backend, run.options.extent, onCheck);
  });
  if (isTooSlow) run.report.leaveOut("the rest of the kernels", "this machine takes too long");
  run.wait();
}

bool runSelftest(kernels::Backend& backend, const SelftestOptions& options, std::ostream& table,
                 std::ostream& progress, const std::stop_token& stop) {
  SelftestReport report(table, progress, options.jsonFile, options.budgetSeconds);
  SelftestTables tables(report, options, /*isMeasured=*/true);
  SelftestRun run{backend, options, report, tables, stop};
  const kernels::DeviceMemoryInfo memory = backend.memoryInfo();
  run.otherBytes = backend.usesHostMemory()
                       ? memory.processBytes
                       : memory.totalBytes - memory.freeBytes - backend.ownMemory().deviceBytes;
  table << backend.description() << ", "
        << decimalText(static_cast<double>(memory.freeBytes) * 0x1p-30, 1) << " of "
        << decimalText(static_cast<double>(memory.totalBytes) * 0x1p-30, 1) << " GiB free; shape "
        << options.model.name << ", random weights" << std::endl;
  report.note("backend", backend.description());
  report.note("shape", options.model.name);
  report.note("device_bytes", memory.totalBytes);
  report.note("free_bytes", memory.freeBytes);
  const auto has = [&](char part) { return options.parts.find(part) != std::string::npos; };
  try {
    // Where a machine is slow, each part still gets its share.
    const bool isLast = !has('c');
    run.endSeconds = isLast && !has('b') ? options.budgetSeconds : 0.45 * options.budgetSeconds;
    if (has('a')) checkAllKernels(run);
    run.endSeconds = isLast ? options.budgetSeconds : 0.65 * options.budgetSeconds;
    const MeasuredCopy copy = has('b') || has('c') ? measureSpeed(run) : MeasuredCopy();
    if (has('b')) measureStages(run, copy);
    run.endSeconds = options.budgetSeconds;
    if (has('c')) measureModels(run);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDevice) throw;
    report.fail(error.message());
  }
  if (has('b') || has('c')) tables.compareWithTargets();
  report.finish(verdict(report, options));
  return !report.hasFailed();
}

}  // namespace longhand::engine::cli
