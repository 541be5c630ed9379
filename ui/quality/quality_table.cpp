#include "ui/quality/quality_table.h"

#include <algorithm>

#include <QHeaderView>
#include <QPainter>
#include <QStyledItemDelegate>

#include "ui/quality/quality_words.h"
#include "ui/style/named.h"
#include "ui/style/plain_widgets.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {
constexpr int kShareRole = Qt::UserRole + 1;  // of the bar, 0 to 1; none: no bar
constexpr int kRowHeight = 36;
}  // namespace

/// A cell with a bar below its text.
class QualityTable::BarDelegate final : public QStyledItemDelegate {
 public:
  using QStyledItemDelegate::QStyledItemDelegate;

  void paint(QPainter* painter, const QStyleOptionViewItem& option,
             const QModelIndex& index) const override {
    QStyleOptionViewItem plain = option;
    plain.state &= ~QStyle::State_HasFocus;  // the table is read as a whole
    QStyledItemDelegate::paint(painter, plain, index);
    const QVariant share = index.data(kShareRole);
    if (!share.isValid()) return;
    constexpr int kBarHeight = 3;
    constexpr int kMargin = 8;
    const QRect cell = option.rect.adjusted(kMargin, 0, -kMargin, 0);
    QRectF bar(cell.left(), cell.bottom() - kBarHeight - 3, cell.width(), kBarHeight);
    painter->save();
    painter->setRenderHint(QPainter::Antialiasing);
    painter->setPen(Qt::NoPen);
    painter->setBrush(option.palette.color(QPalette::Midlight));
    painter->drawRoundedRect(bar, kBarHeight / 2.0, kBarHeight / 2.0);
    bar.setWidth(bar.width() * std::clamp(share.toDouble(), 0.0, 1.0));
    painter->setBrush(option.palette.color(QPalette::Highlight));
    painter->drawRoundedRect(bar, kBarHeight / 2.0, kBarHeight / 2.0);
    painter->restore();
  }
};

QualityTable::QualityTable(QWidget* parent) : QTableWidget(0, kQualityColumnCount, parent) {
  named(this, u"qualityTable"_s, tr("What every preset loses"));
  setItemDelegate(new BarDelegate(this));
  makePlain(*this);
  verticalHeader()->setDefaultSectionSize(kRowHeight);
  horizontalHeader()->setSectionResizeMode(QHeaderView::Stretch);
  horizontalHeader()->setSectionResizeMode(kQualityPreset, QHeaderView::ResizeToContents);
  setWordWrap(false);
}

void QualityTable::setResult(const app::QualityCheckResult& result,
                             const QString& currentPresetId) {
  for (int column = 0; column < kQualityColumnCount; ++column) {
    const QualityColumn shown = qualityColumn(column, result);
    auto* header = new QTableWidgetItem(shown.title);  // the table owns it
    header->setToolTip(shown.meaning);
    header->setTextAlignment((column == kQualityPreset ? Qt::AlignLeft : Qt::AlignRight) |
                             Qt::AlignVCenter);
    setHorizontalHeaderItem(column, header);
  }
  setRowCount(static_cast<int>(result.rows.size()) + 1);
  setRow(0, result.exact, result, result.exact.preset.id == currentPresetId);
  for (int row = 1; row < rowCount(); ++row) {
    const app::QualityCheckRow& values = result.rows[static_cast<std::size_t>(row - 1)];
    setRow(row, values, result, values.preset.id == currentPresetId);
  }
  setFixedHeight(horizontalHeader()->sizeHint().height() + rowCount() * kRowHeight +
                 2 * frameWidth());
}

void QualityTable::setRow(int row, const app::QualityCheckRow& values,
                          const app::QualityCheckResult& result, bool isCurrent) {
  QStringList sentence;
  for (int column = 0; column < kQualityColumnCount; ++column) {
    const QString text = qualityCell(values, column);
    sentence << (column == kQualityPreset ? text + (isCurrent ? tr(" (in use)") : QString())
                                          : qualityColumn(column, result).title + u' ' + text);
  }
  for (int column = 0; column < kQualityColumnCount; ++column) {
    auto* cell = new QTableWidgetItem(qualityCell(values, column));  // the table owns it
    cell->setTextAlignment((column == kQualityPreset ? Qt::AlignLeft : Qt::AlignRight) |
                           Qt::AlignVCenter);
    cell->setToolTip(app::cacheConfigSummary(values.preset.cache));
    cell->setData(Qt::AccessibleTextRole, sentence.join(u", "_s));
    if (column == kQualityEqualTop) cell->setData(kShareRole, values.equalTopShare);
    if (column == kQualityBytes && result.exact.cacheBytes > 0) {
      cell->setData(kShareRole, static_cast<double>(values.cacheBytes) /
                                    static_cast<double>(result.exact.cacheBytes));
    }
    if (isCurrent) {
      QFont bold = font();
      bold.setBold(true);
      cell->setFont(bold);
    }
    setItem(row, column, cell);
  }
}

}  // namespace longhand::ui
