#include "ui/settings/setting_table.h"

#include <utility>

#include <QMetaMethod>
#include <QMetaProperty>
#include <QScopedValueRollback>
#include <QWidget>

namespace longhand::ui {

namespace {

/// Qt's notion of what a control is for: the value, the text, whether it is checked.
QMetaProperty contentOf(const QWidget& control) { return control.metaObject()->userProperty(); }

QVariant content(const QWidget& control) { return contentOf(control).read(&control); }

}  // namespace

SettingTable::SettingTable(QObject* parent) : QObject(parent) {}

void SettingTable::add(const QString& label, QWidget* control, Show show, Store store,
                       Enter enter) {
  if (!enter) {
    enter = [control](const QVariant& value) { contentOf(*control).write(control, value); };
  }
  const QMetaMethod tell = metaObject()->method(metaObject()->indexOfSlot("onControlChanged()"));
  connect(control, contentOf(*control).notifySignal(), this, tell);
  lines_.push_back({label, control, std::move(show), std::move(store), std::move(enter), {}});
}

void SettingTable::onControlChanged() {
  if (!isShowing_) emit changed();
}

void SettingTable::show(const SettingsValues& values) {
  const QScopedValueRollback<bool> showing(isShowing_, true);
  for (Line& line : lines_) {
    line.show(values);
    line.inUse = content(*line.control);
  }
}

void SettingTable::follow(const SettingsValues& values, const std::function<void()>& changeLimits) {
  const QScopedValueRollback<bool> showing(isShowing_, true);
  std::vector<std::pair<const Line*, QVariant>> edits;
  for (const Line& line : lines_) {
    if (isEdited(line)) edits.emplace_back(&line, content(*line.control));
  }
  if (changeLimits) changeLimits();
  show(values);
  for (const auto& [line, edit] : edits) line->enter(edit);
}

void SettingTable::edit(const SettingsValues& values) {
  {
    const QScopedValueRollback<bool> showing(isShowing_, true);
    for (const Line& line : lines_) line.show(values);
  }
  emit changed();
}

SettingsValues SettingTable::withEdits(SettingsValues values) const {
  for (const Line& line : lines_) {
    if (isEdited(line)) line.store(values);
  }
  return values;
}

QStringList SettingTable::edited() const {
  QStringList labels;
  for (const Line& line : lines_) {
    if (isEdited(line)) labels.append(line.label);
  }
  return labels;
}

bool SettingTable::isEdited(const Line& line) { return content(*line.control) != line.inUse; }

}  // namespace longhand::ui
