#pragma once
// The settings as a table, a line for each control: how a value is shown in it and how it is read
// back. A control cannot be added without both, and everything else is a loop over the lines:
// showing what is in use, what was edited, keeping edits, going back.

#include <functional>
#include <vector>

#include <QObject>
#include <QString>
#include <QStringList>
#include <QVariant>

#include "ui/settings/settings_values.h"

class QWidget;

namespace longhand::ui {

class SettingTable final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(SettingTable)

 public:
  using Show = std::function<void(const SettingsValues&)>;
  using Store = std::function<void(SettingsValues&)>;
  using Enter = std::function<void(const QVariant&)>;

  explicit SettingTable(QObject* parent);

  /// `show` puts a value into `control`, `store` the control's into the values. `enter` puts an
  /// edit back that was made before; without one it is set.
  void add(const QString& label, QWidget* control, Show show, Store store, Enter enter = {});

  /// Shows the values in use. What was edited and is not applied is given up.
  void show(const SettingsValues& values);
  /// The same, but edits stay. `changeLimits` (may be empty) may change the controls' ranges.
  void follow(const SettingsValues& values, const std::function<void()>& changeLimits);
  /// Shows other values as if each was entered by hand.
  void edit(const SettingsValues& values);

  /// `values` with what was edited. What a control cannot show exactly is no edit.
  SettingsValues withEdits(SettingsValues values) const;
  /// The labels of what was edited.
  QStringList edited() const;

 signals:
  /// A control was changed by hand, or by edit().
  void changed();

 private slots:
  void onControlChanged();

 private:
  struct Line {
    QString label;
    QWidget* control = nullptr;
    Show show;
    Store store;
    Enter enter;
    QVariant inUse;  // what the control shows of the values in use
  };

  static bool isEdited(const Line& line);

  std::vector<Line> lines_;
  bool isShowing_ = false;  // at work itself: not an edit
};

}  // namespace longhand::ui
