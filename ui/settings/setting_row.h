#pragma once
// Pieces of the settings panel: a titled section, and in it rows of label, control and one short
// line that says what the control does.

#include <QLabel>
#include <QWidget>

class QVBoxLayout;

namespace longhand::ui {

/// A section with a heading; rows are added from the top.
class SettingSection final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(SettingSection)

 public:
  SettingSection(const QString& title, QWidget* parent);

  /// Takes `control` (its accessible name becomes `label`, its description `hint`). Returns the
  /// label that shows the hint, so that a hint can change with the value. A spin or combo box in
  /// the row ignores the mouse wheel until it has the focus, so that scrolling changes nothing.
  QLabel* addRow(const QString& label, QWidget* control, const QString& hint);
  /// A row that only tells something. Returns the label for its text, which may be selected.
  QLabel* addNote(const QString& label);

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  QLabel* makeHint(const QString& text);

  QVBoxLayout* rows_;
};

}  // namespace longhand::ui
