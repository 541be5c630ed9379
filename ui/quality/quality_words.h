#pragma once
// A quality check in words and numbers, the same in the table, on the clipboard and for screen
// readers.

#include <QString>

#include "app/quality_check.h"

namespace longhand::ui {

/// "8.307"; "12,345" where the decimals say nothing any more.
QString formatPerplexity(double perplexity);
/// "0", "< 0.0001", "0.0058", "1.25".
QString formatDivergence(double nats);
/// "100 %" only where all are equal: else rounded down, "99.9 %".
QString formatEqualShare(double share);

/// What was measured: how many tokens of which text, and where in it they stand.
QString qualitySample(const app::QualityCheckResult& result);
/// The result for the preset in use, in a sentence.
QString qualityVerdict(const app::QualityCheckResult& result, const QString& currentPresetId);
/// What the table cannot say: presets of which nothing was packed. May be empty.
QString qualityCaveat(const app::QualityCheckResult& result);
/// "Measuring 6 presets side by side, about 20 s left".
QString qualityStep(const app::QualityCheckProgress& progress);

/// One column of the table.
struct QualityColumn {
  QString title;
  QString meaning;  // what it says, in plain words
};
enum QualityColumnIndex {
  kQualityPreset,
  kQualityPerplexity,
  kQualityMeanKl,
  kQualityP99Kl,
  kQualityEqualTop,
  kQualityBytes,
  kQualityColumnCount
};
QualityColumn qualityColumn(int index, const app::QualityCheckResult& result);
/// The text of a cell.
QString qualityCell(const app::QualityCheckRow& row, int index);

/// Everything as a Markdown table with its sample and meanings, and as HTML: for the clipboard.
QString qualityMarkdown(const app::QualityCheckResult& result);
QString qualityHtml(const app::QualityCheckResult& result);

}  // namespace longhand::ui
