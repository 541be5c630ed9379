#pragma once
// Pieces of the settings panel: a titled section, and in it rows of label, control and one short
// line that says what the control does.

#include <QLabel>
#include <QWidget>

class QVBoxLayout;

namespace longhand::ui {

/// The line under a control, which is its description for screen readers too: what the control
/// does, or what became of a number that was out of range.
class SettingHint final : public QLabel {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(SettingHint)

 public:
  enum class Tone { kPlain, kWarning };

  /// `control` must outlive the hint.
  SettingHint(QWidget& control, const QString& text, QWidget* parent);

  void setHint(const QString& text, Tone tone = Tone::kPlain);
  /// Shown in its place until it is empty again.
  void setCorrection(const QString& sentence);

 private:
  void showText();

  QWidget& control_;
  QString hint_;
  Tone tone_ = Tone::kPlain;
  QString correction_;
};

/// A section with a heading; rows are added from the top.
class SettingSection final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(SettingSection)

 public:
  SettingSection(const QString& title, QWidget* parent);

  /// Takes `control` (its accessible name becomes `label`). Returns the line with the hint, which
  /// can change with the value. A spin or combo box in the row ignores the mouse wheel until it has
  /// the focus, so that scrolling changes nothing.
  SettingHint* addRow(const QString& label, QWidget* control, const QString& hint);
  /// A row that only tells something. Returns the label for its text, which may be selected.
  QLabel* addNote(const QString& label);

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  QVBoxLayout* rows_;
};

}  // namespace longhand::ui
