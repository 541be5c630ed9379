#pragma once
// What a document would need under every preset, shown before anything is computed.

#include <vector>

#include <QTableWidget>

#include "app/forecast.h"

namespace longhand::ui {

/// What the table compares each preset's forecast with.
struct ForecastNeeds {
  qint64 contextLength = 0;  // the context that is set
  qint64 neededContext = 0;  // tokens the chat, the document and an answer need
  QString currentPresetId;   // shown in bold
};

/// "Yes", "Context 3,328" (when it is set), "No, 1,200 at most" or "No".
QString forecastVerdict(const app::PresetForecast& forecast, const ForecastNeeds& needs);

/// Contexts are offered in steps of 256 tokens, so that a chat can grow before the next raise.
qint64 roundedContext(qint64 tokens);

/// Bytes of the KV cache alone: codes, scales and exact tokens.
quint64 kvBytes(const engine::MemoryUse& use);

class ForecastTable final : public QTableWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(ForecastTable)

 public:
  explicit ForecastTable(QWidget* parent);

  /// One row for each forecast, in their order.
  void setForecasts(const std::vector<app::PresetForecast>& forecasts, const ForecastNeeds& needs);

 protected:
  void resizeEvent(QResizeEvent* event) override;

 private:
  /// Where the width does not do for all columns, the total gives way (the tool tip has it), and
  /// the verdict goes over two lines. The height follows.
  void fitColumns();
  void setCell(int row, int column, const QString& text, const QString& toolTip, bool isCurrent);
};

}  // namespace longhand::ui
