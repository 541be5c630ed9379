#include "ui/document/forecast_table.h"

#include <algorithm>

#include <QHeaderView>
#include <QResizeEvent>

#include "ui/style/format.h"
#include "ui/style/named.h"
#include "ui/style/plain_widgets.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {
constexpr int kPresetColumn = 0;
constexpr int kKvColumn = 1;
constexpr int kTotalColumn = 2;
constexpr int kFitsColumn = 3;
constexpr int kColumnCount = 4;
}  // namespace

QString forecastVerdict(const app::PresetForecast& forecast, const ForecastNeeds& needs) {
  const bool fitsMemory = needs.neededContext <= forecast.largestContext;
  if (fitsMemory && needs.neededContext <= needs.contextLength) return ForecastTable::tr("Yes");
  if (fitsMemory) {
    return ForecastTable::tr("Context %1").arg(formatCount(roundedContext(needs.neededContext)));
  }
  if (forecast.largestContext <= 0) return ForecastTable::tr("No");
  return ForecastTable::tr("No, %1 at most").arg(formatCount(forecast.largestContext));
}

qint64 roundedContext(qint64 tokens) {
  constexpr qint64 kStep = 256;
  return (tokens + kStep - 1) / kStep * kStep;
}

quint64 kvBytes(const engine::MemoryUse& use) {
  using engine::MemoryCategory;
  return use[MemoryCategory::kKvCodes] + use[MemoryCategory::kKvScales] +
         use[MemoryCategory::kKvExact];
}

ForecastTable::ForecastTable(QWidget* parent) : QTableWidget(0, kColumnCount, parent) {
  named(this, u"forecastTable"_s, tr("Memory forecast for every preset"));
  setHorizontalHeaderLabels({tr("Preset"), tr("KV cache"), tr("Total"), tr("Fits")});
  for (const int column : {kKvColumn, kTotalColumn}) {
    horizontalHeaderItem(column)->setTextAlignment(Qt::AlignRight | Qt::AlignVCenter);
  }
  for (const int column : {kPresetColumn, kFitsColumn}) {
    horizontalHeaderItem(column)->setTextAlignment(Qt::AlignLeft | Qt::AlignVCenter);
  }
  makePlain(*this);
  horizontalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
  horizontalHeader()->setStretchLastSection(true);
}

void ForecastTable::setForecasts(const std::vector<app::PresetForecast>& forecasts,
                                 const ForecastNeeds& needs) {
  setRowCount(static_cast<int>(forecasts.size()));
  for (int row = 0; row < rowCount(); ++row) {
    const app::PresetForecast& forecast = forecasts[static_cast<std::size_t>(row)];
    const bool isCurrent = forecast.preset.id == needs.currentPresetId;
    const QString kv = formatBytes(kvBytes(forecast.use));
    const QString total = formatBytes(forecast.use.total());
    const QString verdict = forecastVerdict(forecast, needs);
    const QString sentence = tr("%1%2: KV cache %3, in all %4 of %5. Fits: %6.")
                                 .arg(forecast.preset.name, isCurrent ? tr(" (in use)") : QString(),
                                      kv, total, formatBytes(forecast.budgetBytes), verdict);
    setCell(row, kPresetColumn, forecast.preset.name, sentence, isCurrent);
    setCell(row, kKvColumn, kv, sentence, isCurrent);
    setCell(row, kTotalColumn, total, sentence, isCurrent);
    setCell(row, kFitsColumn, verdict, sentence, isCurrent);
  }
  fitColumns();
}

void ForecastTable::resizeEvent(QResizeEvent* event) {
  QTableWidget::resizeEvent(event);
  if (event->size().width() != event->oldSize().width()) fitColumns();
}

void ForecastTable::fitColumns() {
  const QHeaderView& header = *horizontalHeader();
  int needed = 0;
  for (int column = 0; column < kColumnCount; ++column) {
    needed += std::max(sizeHintForColumn(column), header.sectionSizeHint(column));
  }
  setColumnHidden(kTotalColumn, needed > viewport()->width());
  resizeRowsToContents();
  int height = header.sizeHint().height() + 2 * frameWidth();
  for (int row = 0; row < rowCount(); ++row) height += rowHeight(row);
  setFixedHeight(height);
}

void ForecastTable::setCell(int row, int column, const QString& text, const QString& toolTip,
                            bool isCurrent) {
  auto* cell = new QTableWidgetItem(text);  // the table owns it
  const bool isNumber = column == kKvColumn || column == kTotalColumn;
  cell->setTextAlignment((isNumber ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter);
  if (isCurrent) {
    QFont bold = font();
    bold.setBold(true);
    cell->setFont(bold);
  }
  cell->setToolTip(toolTip);
  setItem(row, column, cell);
}

}  // namespace longhand::ui
