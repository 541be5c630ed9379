// Part c: a whole model of random weights behind caches of random tokens.

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/throttle.h"
#include "engine/cli/options.h"
#include "engine/cli/selftest/selftest_parts.h"
#include "engine/graph/llama.h"
#include "engine/model/model.h"
#include "engine/sampler.h"
#include "engine/session/session.h"

namespace longhand::engine::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGiB = 0x1p30;
/// What is kept of the budget for what comes after the longest prompt.
constexpr double kKeptSeconds = 60.0;
constexpr double kMostOfBudgetKept = 0.2;

/// "12 s", "less than 1 s".
std::string secondsText(double seconds) {
  return seconds < 1.0 ? "less than 1 s" : decimalText(seconds, 0) + " s";
}

class ModelPart {
 public:
  ModelPart(const SelftestRun& run, WeightFormat format)
      : run_(run),
        config_(run.options.model),
        format_(format),
        weights_(weightFormatName(format)),
        deepest_(run.options.depths.back()) {
    const Clock::time_point start = Clock::now();
    run.report.say("making " + weights_ + " weights");
    model_ = makeRepeatedModel(config_, format, 1, run.backend, ledger_, run.stop);
    run.wait();
    llama_ = std::make_unique<Llama>(run.backend, ledger_, *model_, config_);
    run.report.say(decimalText(static_cast<double>(model_->weightBytes()) / kGiB, 2) +
                   " GiB of weights in " + decimalText(secondsSince(start), 1) + " s");
  }

  void measureDecode(const std::vector<int>& allNbits);
  void measurePrefill(int nbits);

 private:
  /// A session whose context holds `depth` tokens and what is measured behind them.
  std::unique_ptr<Session> sessionFor(int nbits, std::int64_t depth, std::int64_t nNew) {
    return std::make_unique<Session>(SessionSetup{run_.backend, ledger_, *llama_, config_, counts_,
                                                  selftestCache(nbits, nbits), depth + nNew});
  }
  void decode(int nbits, std::int64_t depth);
  double prefill(Session& session, std::int64_t depth, std::int64_t nNew);
  void prefillAll(int nbits, double secondsExpected);
  void addPrefill(int nbits, std::int64_t depth, std::int64_t nNew,
                  const MeasuredPrompt& measured) const {
    run_.tables.add(run_.rows().prefill(format_, nbits, depth, nNew), measured);
  }
  void noteMemory(std::uint64_t& usedBytes) const;
  void addMemory(int nbits, std::uint64_t usedBytes);

  const SelftestRun& run_;
  const ModelConfig& config_;
  WeightFormat format_;
  std::string weights_;
  std::int64_t deepest_;
  MemoryLedger ledger_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Llama> llama_;
  SessionCounts counts_;
};

void ModelPart::measureDecode(const std::vector<int>& allNbits) {
  run_.tables.beginDecode(format_);
  for (const int nbits : allNbits) {
    for (const std::int64_t depth : run_.options.depths) {
      const std::string what = "decode with " + weights_ + " weights and " + std::to_string(nbits) +
                               " bits at depth " + std::to_string(depth);
      if (!run_.hasTimeFor(what, 8.0 * run_.options.secondsEach)) continue;
      run_.unlessTooLarge(what, [&] { decode(nbits, depth); });
    }
  }
}

void ModelPart::decode(int nbits, std::int64_t depth) {
  run_.report.say(weights_ + " weights, " + std::to_string(nbits) + " bits, depth " +
                  std::to_string(depth));
  ledger_.resetPeak();
  const auto session = sessionFor(nbits, depth, kMostSteps + 8);
  if (depth > 0) session->fillRandomly(depth, 1, run_.stop);
  SamplerConfig greedy;
  greedy.temperature = 0.0;
  Sampler sampler(greedy);
  session->bringBestLogits(sampler.nBestWanted());  // as generate() does
  std::int32_t token = 5;
  const auto step = [&] {
    const Clock::time_point start = Clock::now();
    session->step(token);
    token = session->logits().empty() ? sampler.sampleBest(session->bestLogits(), {})
                                      : sampler.sample(session->logits(), {});
    return secondsSince(start);
  };
  for (int i = 0; i < 3; ++i) step();  // the first ones take memory and record the step
  run_.wait();
  const DecodeBytes read = session->decodeBytes(*model_);
  std::vector<double> seconds;
  const Clock::time_point start = Clock::now();
  while (std::ssize(seconds) < kMostSteps &&
         (seconds.size() < run_.fewestRounds() ||
          secondsSince(start) < 2.0 * run_.options.secondsEach)) {
    seconds.push_back(step());
  }
  DecodeRow row = run_.rows().decode(format_, nbits, depth);
  row.bytes = static_cast<double>(read.total());
  const MeasuredSteps measured{sampleOf(seconds), seconds.size(), ledger_.peakTotal()};
  run_.tables.add(row, &measured);
}

/// Seconds of `nNew` tokens behind `depth` random ones.
double ModelPart::prefill(Session& session, std::int64_t depth, std::int64_t nNew) {
  session.fillRandomly(depth, 1, run_.stop);
  std::vector<std::int32_t> prompt(session.tokens().begin(), session.tokens().end());
  std::minstd_rand random(2);
  for (std::int64_t i = 0; i < nNew; ++i) {
    prompt.push_back(
        static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(config_.vocabSize)));
  }
  double lastSaid = 0.0;
  const auto onProgress = [&](const PrefillProgress& progress) {
    if (run_.report.secondsPassed() - lastSaid < 5.0 || progress.tokensDone == 0) return;
    lastSaid = run_.report.secondsPassed();
    run_.report.say(std::to_string(progress.tokensDone) + " of " +
                    std::to_string(progress.tokensTotal) + " tokens");
  };
  const PrefillResult result = session.prefill(prompt, true, 0, onProgress, run_.stop);
  run_.wait();
  return result.seconds * static_cast<double>(nNew) / static_cast<double>(result.computedTokens);
}

void ModelPart::measurePrefill(int nbits) {
  run_.tables.beginPrefill(format_);
  const std::string what =
      "prefill with " + weights_ + " weights and " + std::to_string(nbits) + " bits";
  const std::int64_t nNew = run_.options.prefillTokens;
  const std::int64_t behind = std::max<std::int64_t>(0, deepest_ - nNew);
  if (nNew == 0 || !run_.hasTimeFor(what, 10.0 * run_.options.secondsEach)) return;
  run_.unlessTooLarge(what, [&] {
    double first = 0.0;
    double last = 0.0;
    std::uint64_t usedBytes = 0;
    ledger_.resetPeak();
    {
      run_.report.say(what);
      const auto session = sessionFor(nbits, std::max(deepest_, nNew), 8);
      prefill(*session, 0, nNew);  // wakes the device
      first = prefill(*session, 0, nNew);
      addPrefill(nbits, 0, nNew, {first});
      if (behind > 0) {
        last = prefill(*session, behind, nNew);
        addPrefill(nbits, behind, nNew, {last});
        session->step(5);  // and decode with all of it there
        noteMemory(usedBytes);
      }
    }
    if (behind == 0) return;
    addMemory(nbits, usedBytes);
    // The seconds of a token grow in a straight line with the tokens before it.
    const auto nSections = static_cast<double>(deepest_) / static_cast<double>(nNew);
    const double expected = nSections * (first + last) / 2.0;
    if (weights_ == "nf4" && nbits == 4) prefillAll(nbits, expected);
  });
}

/// A prompt as long as the largest depth, in one go where there is time for it.
void ModelPart::prefillAll(int nbits, double secondsExpected) {
  const double left = run_.report.secondsLeft();
  const double kept = std::min(kKeptSeconds, kMostOfBudgetKept * run_.options.budgetSeconds);
  if (left < 1.3 * secondsExpected + kept) {
    const std::string why = left <= 0.0 ? "no time is left"
                                        : secondsText(left) + " left, of which " +
                                              secondsText(kept) + " are for what comes after it";
    run_.report.leaveOut("prefill of " + std::to_string(deepest_) + " tokens in one go",
                         "it would take " + secondsText(secondsExpected) +
                             ", as the sections at both ends say, with " + why);
    addPrefill(nbits, 0, deepest_, {secondsExpected, /*isEstimated=*/true});
    return;
  }
  run_.report.say("a prompt of " + std::to_string(deepest_) + " tokens, about " +
                  decimalText(secondsExpected, 0) + " s");
  const auto session = sessionFor(nbits, deepest_, 8);
  addPrefill(nbits, 0, deepest_, {prefill(*session, 0, deepest_)});
}

/// What the device, or on a CPU the process, holds now.
void ModelPart::noteMemory(std::uint64_t& usedBytes) const {
  const kernels::DeviceMemoryInfo info = run_.backend.memoryInfo();
  usedBytes = std::max(usedBytes, run_.backend.usesHostMemory() ? info.processBytes
                                                                : info.totalBytes - info.freeBytes);
}

void ModelPart::addMemory(int nbits, std::uint64_t usedBytes) {
  MemoryRow row{format_, nbits};
  row.ownBytes = run_.backend.ownMemory().deviceBytes;
  row.takenBytes = ledger_.peakTotal() + row.ownBytes;
  row.usedBytes = usedBytes;
  const std::int64_t nNew = run_.options.prefillTokens;
  row.plannedTakenBytes =
      planMemory(run_.rows().plan(format_, nbits, std::max(deepest_, nNew) + 8, nNew, row.ownBytes))
          .total();
  row.plannedUsedBytes = row.plannedTakenBytes + run_.otherBytes;
  run_.tables.add(row);
}

}  // namespace

void measureModels(const SelftestRun& run) {
  run.unlessTooLarge("NF4 weights", [&] {
    if (!run.hasTimeFor("NF4 weights", 10.0 * run.options.secondsEach)) return;
    ModelPart part(run, WeightFormat::kNf4);
    part.measureDecode({kDecodeNbits.begin(), kDecodeNbits.end()});
    part.measurePrefill(2);
    part.measurePrefill(4);
  });
  run.unlessTooLarge("F16 weights", [&] {
    if (!run.hasTimeFor("F16 weights", 10.0 * run.options.secondsEach)) return;
    ModelPart part(run, WeightFormat::kF16);
    part.measureDecode({16});
  });
}

}  // namespace longhand::engine::cli
