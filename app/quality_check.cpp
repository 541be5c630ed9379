#include "app/quality_check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <QLocale>

#include "app/error_text.h"
#include "engine/base/throttle.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"

namespace longhand::app {

namespace {

using Clock = std::chrono::steady_clock;
using engine::QualityWindow;

bool isExact(const engine::KvCacheConfig& cache) {
  return cache.keyNbits == 16 && cache.valueNbits == 16 && cache.firstLayers == 0 &&
         cache.slidingWindow == 0;
}

std::int64_t totalTokens(std::span<const QualityWindow> windows, int nCaches) {
  std::int64_t total = 0;
  for (const QualityWindow& window : windows) {
    total += window.nTokens + window.nScored * (nCaches - 1);
  }
  return total;
}

/// One check on its way.
class Check {
 public:
  Check(engine::Engine& engine, const QualityCheckRequest& request,
        const std::function<void(const QualityCheckProgress&)>& progress, std::stop_token stop)
      : engine_(engine), request_(request), progress_(progress), stop_(std::move(stop)) {
    compared_ = request.presets;
    const auto exact = std::find_if(compared_.begin(), compared_.end(),
                                    [](const PresetInfo& preset) { return isExact(preset.cache); });
    if (exact != compared_.end()) {
      exact_ = *exact;
      compared_.erase(exact);
    }
    state_.nPresets = nCaches();
  }

  QualityCheckResult run() {
    encode();
    measured_.ids = ids_;
    state_.step = QualityCheckStep::kTimingModel;
    report();
    const QualitySpeed speed = measureSpeed();
    const auto nTokens = static_cast<std::int64_t>(ids_.size());
    const QualitySample sample =
        chooseQualitySample(nTokens, engine_.contextLength(), nCaches(), speed, request_.seconds,
                            [this](std::int64_t tokens) { return fitsMemory(tokens); });
    measured_.windows = engine::planQualityWindows(nTokens, engine_.contextLength(),
                                                   sample.sampleTokens, sample.windowTokens);
    for (const PresetInfo& preset : compared_) {
      measured_.candidates.push_back({preset.id.toStdString(), preset.cache});
    }
    return resultOf(measure(speed));
  }

 private:
  int nCaches() const { return static_cast<int>(compared_.size()) + 1; }

  void report() {
    if (progress_) progress_(state_);
  }

  void encode() {
    engine::EncodeOptions options;
    options.stop = stop_;
    options.progress = [this](std::uint64_t done, std::uint64_t total) {
      state_.share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0;
      report();
    };
    ids_ = engine_.tokenizer().encode(request_.text.toStdString(), options);
    const auto nTokens = static_cast<std::int64_t>(ids_.size());
    if (nTokens < kLeastQualityTokens) {
      throwError(
          engine::ErrorCode::kInvalidArgument,
          QStringLiteral("%1 has too little text for a check: %2 tokens.")
              .arg(request_.textName, QLocale(QLocale::English).toString(qlonglong{nTokens})),
          QStringLiteral("At least %1 are needed: open a longer document.")
              .arg(kLeastQualityTokens));
    }
    state_.share = 0.0;
  }

  /// Of the exact cache alone: what differs between caches is small beside the weights.
  QualitySpeed measureSpeed() {
    // Short first: on a slow machine these are seconds already.
    constexpr double kLongEnoughSeconds = 0.2;
    const auto limit = std::min(static_cast<std::int64_t>(ids_.size()), engine_.contextLength());
    QualitySpeed speed;
    for (const std::int64_t tokens : {std::int64_t{64}, std::int64_t{512}}) {
      const std::int64_t read = std::min(tokens, limit - 1);
      const double seconds = secondsOf({0, read + 1, 1});
      speed.read = static_cast<double>(read + 1) / seconds;
      if (seconds > kLongEnoughSeconds) break;
    }
    for (const std::int64_t tokens : {std::int64_t{6}, std::int64_t{60}}) {
      const std::int64_t fed = std::min(tokens, limit);
      const double seconds = secondsOf({0, fed, fed});
      speed.feed = static_cast<double>(fed) / seconds;
      if (seconds > kLongEnoughSeconds) break;
    }
    return speed;
  }

  double secondsOf(const QualityWindow& window) {
    engine::QualityRequest trial;
    trial.ids = ids_;
    trial.windows = {window};
    const Clock::time_point begin = Clock::now();
    engine_.measureQuality(trial, {}, stop_);
    return std::max(1e-6, engine::secondsSince(begin));
  }

  /// All caches at once, for a window of `tokens`, in most of what is free.
  bool fitsMemory(std::int64_t tokens) const {
    constexpr double kMostOfFree = 0.8;
    std::uint64_t bytes = cacheBytes(measured_.reference, tokens);
    for (const PresetInfo& preset : compared_) bytes += cacheBytes(preset.cache, tokens);
    return static_cast<double>(bytes) <=
           kMostOfFree * static_cast<double>(engine_.memory().device.freeBytes);
  }

  std::uint64_t cacheBytes(const engine::KvCacheConfig& cache, std::int64_t tokens) const {
    using engine::MemoryCategory;
    engine::PlanRequest plan;
    plan.model = engine_.modelConfig();
    plan.weights = engine_.weightFormat();
    plan.weightBytes = engine_.weightBytes();
    plan.cache = cache;
    plan.contextLength = tokens;
    plan.chunkTokens = 1;
    const engine::MemoryUse use = engine::planMemory(plan);
    return use[MemoryCategory::kKvCodes] + use[MemoryCategory::kKvScales] +
           use[MemoryCategory::kKvExact];
  }

  engine::QualityReport measure(const QualitySpeed& speed) {
    state_.step = QualityCheckStep::kMeasuring;
    state_.scoredTokens = engine::scoredTokens(measured_.windows);
    state_.totalTokens = totalTokens(measured_.windows, nCaches());
    const double expected = qualitySeconds(measured_.windows, nCaches(), speed, state_.totalTokens);
    const Clock::time_point begin = Clock::now();
    return engine_.measureQuality(
        measured_,
        [&](std::int64_t done, std::int64_t /*total*/) {
          const double elapsed = engine::secondsSince(begin);
          const double passed = qualitySeconds(measured_.windows, nCaches(), speed, done);
          state_.measuredTokens = done;
          state_.share = expected > 0.0 ? passed / expected : 0.0;
          // As slow or fast against the expectation as it was so far, once that says something.
          const double pace = elapsed > 1.0 && passed > 0.0 ? elapsed / passed : 1.0;
          state_.secondsLeft = (expected - passed) * pace;
          report();
        },
        stop_);
  }

  QualityCheckRow rowOf(const PresetInfo& preset, const engine::QualityRow& row) const {
    return {preset,           row.perplexity, row.meanKl, row.p99Kl, row.equalTopShare,
            row.packedTokens, row.cacheBytes};
  }

  QualityCheckResult resultOf(const engine::QualityReport& measured) const {
    QualityCheckResult result;
    result.textName = request_.textName;
    result.textTokens = static_cast<std::int64_t>(ids_.size());
    result.scoredTokens = measured.scoredTokens;
    for (const QualityWindow& window : measured_.windows) {
      result.pieces.push_back({window.first, window.nTokens, window.nScored});
    }
    result.contextLength = measured.contextLength;
    result.exact = rowOf(exact_, measured.reference);
    for (std::size_t i = 0; i < compared_.size(); ++i) {
      result.rows.push_back(rowOf(compared_[i], measured.rows[i]));
    }
    result.seconds = engine::secondsSince(begin_);
    return result;
  }

  engine::Engine& engine_;
  const QualityCheckRequest& request_;
  const std::function<void(const QualityCheckProgress&)>& progress_;
  std::stop_token stop_;
  Clock::time_point begin_ = Clock::now();
  PresetInfo exact_{QStringLiteral("exact"),
                    QStringLiteral("Exact"),
                    {},
                    engine::QualityRequest().reference,
                    true};
  std::vector<PresetInfo> compared_;
  std::vector<std::int32_t> ids_;
  engine::QualityRequest measured_;
  QualityCheckProgress state_;
};

}  // namespace

QualitySample chooseQualitySample(std::int64_t textTokens, std::int64_t contextLength, int nCaches,
                                  const QualitySpeed& speed, double seconds,
                                  const std::function<bool(std::int64_t windowTokens)>& fits) {
  // Long windows first, since what is packed is what can be lost; then many scored tokens.
  constexpr std::array<QualitySample, 8> kSamples = {{{1024, 2048},
                                                      {512, 2048},
                                                      {256, 2048},
                                                      {256, 1024},
                                                      {128, 1024},
                                                      {128, 512},
                                                      {64, 512},
                                                      {32, 512}}};
  QualitySample chosen;
  for (const QualitySample& sample : kSamples) {
    chosen.windowTokens = std::min({sample.windowTokens, contextLength, textTokens});
    // Half of a window at least is its prompt: scored from the beginning on, little is packed.
    chosen.sampleTokens =
        textTokens < 2 * chosen.windowTokens
            ? std::clamp<std::int64_t>(chosen.windowTokens / 2, 1, sample.sampleTokens)
            : sample.sampleTokens;
    const std::vector<QualityWindow> windows = engine::planQualityWindows(
        textTokens, contextLength, chosen.sampleTokens, chosen.windowTokens);
    const double expected = qualitySeconds(windows, nCaches, speed, totalTokens(windows, nCaches));
    if (expected <= seconds && fits(chosen.windowTokens)) break;
  }
  return chosen;
}

double qualitySeconds(std::span<const QualityWindow> windows, int nCaches,
                      const QualitySpeed& speed, std::int64_t doneTokens) {
  double seconds = 0.0;
  std::int64_t left = doneTokens;
  for (const QualityWindow& window : windows) {
    const std::int64_t read = std::min(left, window.nTokens - window.nScored);
    const std::int64_t fed = std::min(left - read, window.nScored * nCaches);
    seconds += static_cast<double>(read) / speed.read + static_cast<double>(fed) / speed.feed;
    left -= read + fed;
  }
  return seconds;
}

QualityCheckResult checkQuality(engine::Engine& engine, const QualityCheckRequest& request,
                                const std::function<void(const QualityCheckProgress&)>& progress,
                                std::stop_token stop) {
  return Check(engine, request, progress, std::move(stop)).run();
}

}  // namespace longhand::app
