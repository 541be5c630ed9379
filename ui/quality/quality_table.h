#pragma once
// The result of a quality check: a row for each preset, the exact one first. Under the shares lies
// a thin bar, so that the eye sees what is kept and what is saved.

#include <QTableWidget>

#include "app/quality_check.h"

namespace longhand::ui {

class QualityTable final : public QTableWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(QualityTable)

 public:
  explicit QualityTable(QWidget* parent);

  /// The preset in use is shown in bold. The height follows the rows.
  void setResult(const app::QualityCheckResult& result, const QString& currentPresetId);

 private:
  class BarDelegate;

  void setRow(int row, const app::QualityCheckRow& values, const app::QualityCheckResult& result,
              bool isCurrent);
};

}  // namespace longhand::ui
