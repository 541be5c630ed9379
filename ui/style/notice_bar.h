#pragma once
// One line across the chat that says something happened and offers what to do: errors with their
// hint, a deleted chat with "Undo". Never modal, never takes the focus, always dismissable.

#include <QFrame>

class QLabel;
class QPushButton;
class QToolButton;

namespace longhand::ui {

class NoticeBar final : public QFrame {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(NoticeBar)

 public:
  /// The names of its parts begin with `objectName`: "errorBar", "errorBarText", "errorBarAction",
  /// "errorBarDismiss". Hidden until something is shown.
  NoticeBar(const QString& objectName, QWidget* parent);

  /// Replaces what is shown. `hint` and `actionText` may be empty.
  void showNotice(const QString& text, const QString& hint, const QString& actionText);
  void dismiss();
  /// Gives the action's button the focus: Enter carries it out, Esc dismisses.
  void focusAction();
  /// Text and hint, as a screen reader reads them; empty while hidden.
  QString notice() const;

 protected:
  void keyPressEvent(QKeyEvent* event) override;

 signals:
  void actionTriggered();
  void dismissed();

 private:
  QLabel* text_;
  QLabel* hint_;
  QPushButton* action_;
  QToolButton* dismiss_;
};

}  // namespace longhand::ui
