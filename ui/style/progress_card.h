#pragma once
// A task that takes time, as a card: title, bar, a line with what is done and what is left, Cancel.
// Used for loading a model and for reading a document.

#include <QFrame>

class QLabel;
class QProgressBar;
class QPushButton;

namespace longhand::ui {

class ProgressCard final : public QFrame {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(ProgressCard)

 public:
  /// Its parts are named `objectName` + "Title", "Bar", "Detail", "Cancel".
  ProgressCard(const QString& objectName, QWidget* parent);

  /// Shows the card with an empty bar and a working Cancel button.
  void begin(const QString& title, const QString& detail);
  /// `total` 0: how much there is to do is not known yet, the bar moves to and fro.
  void setProgress(quint64 done, quint64 total, const QString& detail);
  /// From the click on Cancel until the work has really ended.
  void setCancelling();

 signals:
  void cancelRequested();

 private:
  QLabel* title_;
  QProgressBar* bar_;
  QLabel* detail_;
  QPushButton* cancel_;
};

}  // namespace longhand::ui
