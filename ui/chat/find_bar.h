#pragma once
// Ctrl+F: finds text in the open chat, as it is typed.

#include <QFrame>

class QLabel;
class QLineEdit;
class QToolButton;

namespace longhand::ui {

class TranscriptView;
struct Theme;

class FindBar final : public QFrame {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(FindBar)

 public:
  /// The transcript must outlive the bar. Hidden until open().
  FindBar(TranscriptView& transcript, const Theme& theme, QWidget* parent);

  void setTheme(const Theme& theme);
  void open();
  void close();

 signals:
  void closed();

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  void showCount(int current, int count);

  TranscriptView& transcript_;
  QLineEdit* text_;
  QLabel* count_;
  QToolButton* previous_;
  QToolButton* next_;
  QToolButton* close_;
};

}  // namespace longhand::ui
