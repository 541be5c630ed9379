#pragma once
// "Check quality": what the KV cache of each preset loses on a text of the user's own. The method
// and the numbers are those of engine/quality.h; here the sample is chosen, so that the check takes
// about a minute at most, and the result gets what a reader needs to judge it.

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include <QMetaType>
#include <QString>

#include "app/preset_store.h"

namespace longhand::engine {
class Engine;
struct QualityWindow;
}  // namespace longhand::engine

namespace longhand::app {

/// A text of fewer tokens than this is refused: most presets would pack nothing of it.
inline constexpr std::int64_t kLeastQualityTokens = 256;

struct QualityCheckRequest {
  QString textName;  // for people: "report.pdf"
  QString text;
  std::vector<PresetInfo> presets;  // an exact one among them is what the others are compared with
  double seconds = 45.0;            // about what the measurement may take
};

/// A stretch of the text: its tokens are read first as a prompt is, and the last scoredTokens of
/// them are predicted one by one.
struct QualityCheckPiece {
  std::int64_t firstToken = 0;
  std::int64_t tokens = 0;
  std::int64_t scoredTokens = 0;
};

/// One preset; see engine::QualityRow.
struct QualityCheckRow {
  PresetInfo preset;
  double perplexity = 0.0;
  double meanKl = 0.0;  // nats
  double p99Kl = 0.0;
  double equalTopShare = 0.0;
  std::int64_t packedTokens = 0;  // 0: all of the sample was kept exactly, so nothing is lost
  std::uint64_t cacheBytes = 0;   // of a full context
};

struct QualityCheckResult {
  QString textName;
  std::int64_t textTokens = 0;
  std::int64_t scoredTokens = 0;  // over all pieces
  std::vector<QualityCheckPiece> pieces;
  std::int64_t contextLength = 0;     // that cacheBytes are for
  QualityCheckRow exact;              // what the others are compared with
  std::vector<QualityCheckRow> rows;  // in the order of the request, the exact one left out
  double seconds = 0.0;               // that the check took
};

enum class QualityCheckStep { kCountingTokens, kTimingModel, kMeasuring };

struct QualityCheckProgress {
  QualityCheckStep step = QualityCheckStep::kCountingTokens;
  int nPresets = 0;                 // measured side by side, token by token
  double share = 0.0;               // of this step, 0 to 1; of kTimingModel unknown
  double secondsLeft = -1.0;        // of kMeasuring; negative: unknown
  std::int64_t scoredTokens = 0;    // of the sample, when it is chosen
  std::int64_t measuredTokens = 0;  // so far, over all presets, those only read included
  std::int64_t totalTokens = 0;
};

/// How fast a model is with this machine, in tokens a second.
struct QualitySpeed {
  double read = 0.0;  // of a prompt
  double feed = 0.0;  // one by one
};

/// How much of a text is measured: for engine::planQualityWindows().
struct QualitySample {
  std::int64_t sampleTokens = 0;
  std::int64_t windowTokens = 0;
};

/// The largest sample of a short list that takes at most `seconds` with `nCaches` side by side, and
/// whose windows `fits(windowTokens)` accepts; the smallest where none does. Pure.
QualitySample chooseQualitySample(std::int64_t textTokens, std::int64_t contextLength, int nCaches,
                                  const QualitySpeed& speed, double seconds,
                                  const std::function<bool(std::int64_t windowTokens)>& fits);

/// What the first `doneTokens` of a measurement take, as engine::QualityProgress counts them.
double qualitySeconds(std::span<const engine::QualityWindow> windows, int nCaches,
                      const QualitySpeed& speed, std::int64_t doneTokens);

/// On the engine's thread; its own cache is not touched. Progress comes about ten times a second.
/// Throws engine::Error: kInvalidArgument (too little text), kOutOfMemory, kCancelled.
QualityCheckResult checkQuality(engine::Engine& engine, const QualityCheckRequest& request,
                                const std::function<void(const QualityCheckProgress&)>& progress,
                                std::stop_token stop);

}  // namespace longhand::app

Q_DECLARE_METATYPE(longhand::app::QualityCheckResult)
Q_DECLARE_METATYPE(longhand::app::QualityCheckProgress)
