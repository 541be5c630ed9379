#pragma once
// "Check quality": progress with Cancel, then the table of what every preset loses, or one sentence
// why there is none. Not modal: the chat can be read meanwhile.

#include <optional>

#include <QDialog>

#include "app/quality_check.h"

class QLabel;
class QPushButton;
class QStackedWidget;

namespace longhand::ui {

class ProgressCard;
class QualityTable;

class QualityDialog final : public QDialog {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(QualityDialog)

 public:
  explicit QualityDialog(QWidget* parent);

  /// A check begins.
  void begin();
  void setProgress(const app::QualityCheckProgress& progress);
  void showResult(const app::QualityCheckResult& result, const QString& currentPresetId);
  void showFailure(const QString& message, const QString& hint);
  bool isChecking() const { return isChecking_; }

 public slots:
  /// Esc, Close: ends the check that is under way, too.
  void reject() override;

 signals:
  void cancelRequested();
  void checkRequested();  // once more

 private:
  QWidget* makeResultPage();
  void endWork();
  void copy();

  QStackedWidget* pages_;
  ProgressCard* progress_;
  QLabel* failure_;
  QLabel* failureHint_;
  QLabel* verdict_;
  QLabel* sample_;
  QualityTable* table_;
  QLabel* caveat_;
  QLabel* meanings_;
  QPushButton* copy_;
  QPushButton* again_;
  QPushButton* close_;
  std::optional<app::QualityCheckResult> result_;
  bool isChecking_ = false;
};

}  // namespace longhand::ui
