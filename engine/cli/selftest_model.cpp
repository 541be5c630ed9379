// Part c: a whole model of random weights behind caches of random tokens.

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/cli/options.h"
#include "engine/cli/selftest_parts.h"
#include "engine/error.h"
#include "engine/llama.h"
#include "engine/model.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "engine/step_cost.h"

namespace longhand::engine::cli {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr double kGiB = 0x1p30;
/// Tokens of decode that a context has room for behind the depth.
constexpr std::int64_t kMostSteps = 200;

class ModelPart {
 public:
  ModelPart(const SelftestRun& run, WeightFormat format)
      : run_(run),
        config_(run.options.model),
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
  void emitPrefill(int nbits, std::int64_t depth, std::int64_t nNew, double seconds,
                   bool isEstimated);
  void noteMemory(std::uint64_t& usedBytes) const;
  void emitMemory(int nbits, std::uint64_t usedBytes);

  const SelftestRun& run_;
  const ModelConfig& config_;
  std::string weights_;
  std::int64_t deepest_;
  MemoryLedger ledger_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Llama> llama_;
  SessionCounts counts_;
};

void ModelPart::measureDecode(const std::vector<int>& allNbits) {
  run_.report.heading("C. " + config_.name + ", " + weights_ + " weights: decode\n" +
                      "    depth   cache    tokens/s     +-%  MB/token     GB/s  %copy");
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
  const Sample sample = sampleOf(seconds);
  const double rate = 1.0 / sample.median;
  const auto bytes = static_cast<double>(read.total());
  const double copy = run_.findings.copyBytesPerSecond;
  const double percent = copy > 0.0 ? 100.0 * bytes * rate / copy : 0.0;
  run_.findings.tokensPerSecond[{weights_, nbits, depth}] = rate;
  if (depth == 0 && weights_ == "nf4" && nbits == 4) run_.findings.decodePercentOfCopy = percent;
  run_.report.row(
      "decode",
      {{"weights", weights_},
       {"bits", nbits},
       {"depth", depth},
       {"tokens_per_second", rate},
       {"steps", seconds.size()},
       {"seconds",
        {{"median", sample.median}, {"lowest", sample.lowest}, {"highest", sample.highest}}},
       {"bytes", bytes},
       {"bytes_per_second", bytes * rate},
       {"percent_of_copy", percent},
       {"peak_bytes", ledger_.peakTotal()}},
      decimalText(static_cast<double>(depth), 0, 9) + decimalText(nbits, 0, 8) +
          decimalText(rate, 2, 12) + decimalText(sample.spreadPercent(), 1, 8) +
          decimalText(bytes * 1e-6, 1, 10) + decimalText(bytes * rate * 1e-9, 1, 9) +
          decimalText(percent, 1, 7));
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

void ModelPart::emitPrefill(int nbits, std::int64_t depth, std::int64_t nNew, double seconds,
                            bool isEstimated) {
  const double operations = 2.0 * prefillMultiplyAdds(config_, depth, nNew);
  const double rate = run_.findings.halfOperationsPerSecond;
  const double percent = rate > 0.0 ? 100.0 * operations / seconds / rate : 0.0;
  if (depth == 0) {  // of all that there are, the longest prompt
    run_.findings.prefillPercentOfRate = percent;
    run_.findings.isPrefillEstimated = isEstimated;
  }
  const double tokensPerSecond = static_cast<double>(nNew) / seconds;
  run_.report.row("prefill",
                  {{"weights", weights_},
                   {"bits", nbits},
                   {"depth", depth},
                   {"tokens", nNew},
                   {"seconds", seconds},
                   {"tokens_per_second", tokensPerSecond},
                   {"operations_per_second", operations / seconds},
                   {"percent_of_matrix_rate", percent},
                   {"is_estimated", isEstimated}},
                  decimalText(static_cast<double>(depth), 0, 9) + decimalText(nbits, 0, 8) +
                      decimalText(static_cast<double>(nNew), 0, 9) + decimalText(seconds, 2, 9) +
                      decimalText(tokensPerSecond, 1, 12) +
                      decimalText(operations / seconds * 1e-12, 2, 9) + decimalText(percent, 1, 7) +
                      (isEstimated ? "  estimated" : ""));
}

void ModelPart::measurePrefill(int nbits) {
  run_.report.heading("   " + config_.name + ", " + weights_ + " weights: prefill\n" +
                      "    depth   cache   tokens        s    tokens/s  TFLOP/s  %rate");
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
      emitPrefill(nbits, 0, nNew, first, false);
      if (behind > 0) {
        last = prefill(*session, behind, nNew);
        emitPrefill(nbits, behind, nNew, last, false);
        session->step(5);  // and decode with all of it there
        noteMemory(usedBytes);
      }
    }
    if (behind == 0) return;
    emitMemory(nbits, usedBytes);
    // The seconds of a token grow in a straight line with the tokens before it.
    const auto nSections = static_cast<double>(deepest_) / static_cast<double>(nNew);
    const double expected = nSections * (first + last) / 2.0;
    if (weights_ == "nf4" && nbits == 4) prefillAll(nbits, expected);
  });
}

/// A prompt as long as the largest depth, in one go where there is time for it.
void ModelPart::prefillAll(int nbits, double secondsExpected) {
  if (run_.report.secondsLeft() < 1.3 * secondsExpected + 60.0) {
    run_.report.leaveOut(
        "prefill of " + std::to_string(deepest_) + " tokens in one go",
        "about " + decimalText(secondsExpected, 0) + " s, as the sections at both ends say");
    emitPrefill(nbits, 0, deepest_, secondsExpected, true);
    return;
  }
  run_.report.say("a prompt of " + std::to_string(deepest_) + " tokens, about " +
                  decimalText(secondsExpected, 0) + " s");
  const auto session = sessionFor(nbits, deepest_, 8);
  emitPrefill(nbits, 0, deepest_, prefill(*session, 0, deepest_), false);
}

/// What the device, or on a CPU the process, holds now.
void ModelPart::noteMemory(std::uint64_t& usedBytes) const {
  const kernels::DeviceMemoryInfo info = run_.backend.memoryInfo();
  usedBytes = std::max(usedBytes, run_.backend.usesHostMemory() ? info.processBytes
                                                                : info.totalBytes - info.freeBytes);
}

void ModelPart::emitMemory(int nbits, std::uint64_t usedBytes) {
  const std::uint64_t own = run_.backend.ownMemory().deviceBytes;
  const double used = static_cast<double>(usedBytes) / kGiB;
  const double peak = static_cast<double>(ledger_.peakTotal() + own) / kGiB;
  if (weights_ == "nf4") run_.findings.usedGiB[nbits] = used;
  run_.report.row("memory",
                  {{"weights", weights_},
                   {"bits", nbits},
                   {"depth", deepest_},
                   {"peak_bytes", ledger_.peakTotal()},
                   {"own_bytes", own},
                   {"used_bytes", usedBytes}},
                  "   memory at " + std::to_string(deepest_) + " tokens of " +
                      std::to_string(nbits) + " bits: " + decimalText(peak, 2) +
                      " GiB taken at most, " + decimalText(used, 2) +
                      " GiB in use in all, driver and other programs included");
}

}  // namespace

void measureModels(const SelftestRun& run) {
  run.unlessTooLarge("NF4 weights", [&] {
    if (!run.hasTimeFor("NF4 weights", 10.0 * run.options.secondsEach)) return;
    ModelPart part(run, WeightFormat::kNf4);
    part.measureDecode({4, 16, 2, 8});
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
