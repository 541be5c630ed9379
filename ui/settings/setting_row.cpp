#include "ui/settings/setting_row.h"

#include <QCheckBox>
#include <QEvent>
#include <QHBoxLayout>
#include <QVBoxLayout>

using namespace Qt::StringLiterals;

namespace longhand::ui {

SettingSection::SettingSection(const QString& title, QWidget* parent)
    : QWidget(parent), rows_(new QVBoxLayout(this)) {
  rows_->setContentsMargins(0, 0, 0, 10);
  rows_->setSpacing(12);
  auto* heading = new QLabel(title, this);
  heading->setProperty("textRole", u"heading"_s);
  rows_->addWidget(heading);
}

QLabel* SettingSection::addRow(const QString& label, QWidget* control, const QString& hint) {
  control->setAccessibleName(label);
  control->setAccessibleDescription(hint);
  control->setFocusPolicy(Qt::StrongFocus);
  control->installEventFilter(this);

  auto* line = new QHBoxLayout;
  line->setSpacing(12);
  if (qobject_cast<QCheckBox*>(control) != nullptr) {
    line->addWidget(control, 1);  // a check box carries its own label
  } else {
    auto* name = new QLabel(label, this);
    name->setBuddy(control);
    line->addWidget(name, 1);
    control->setFixedWidth(128);
    line->addWidget(control);
  }
  auto* row = new QVBoxLayout;
  row->setSpacing(3);
  row->addLayout(line);
  QLabel* const hintLabel = makeHint(hint);
  row->addWidget(hintLabel);
  rows_->addLayout(row);
  return hintLabel;
}

QLabel* SettingSection::addNote(const QString& label) {
  auto* row = new QVBoxLayout;
  row->setSpacing(3);
  row->addWidget(new QLabel(label, this));
  QLabel* const note = makeHint(QString());
  note->setAccessibleName(label);
  note->setTextFormat(Qt::PlainText);
  note->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  row->addWidget(note);
  rows_->addLayout(row);
  return note;
}

QLabel* SettingSection::makeHint(const QString& text) {
  auto* hint = new QLabel(text, this);
  hint->setProperty("textRole", u"secondary"_s);
  hint->setWordWrap(true);
  hint->setMinimumWidth(1);
  return hint;
}

bool SettingSection::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() == QEvent::Wheel) {
    const auto* control = qobject_cast<QWidget*>(watched);
    if (control != nullptr && !control->hasFocus()) {
      event->ignore();  // goes on to the scroll area
      return true;
    }
  }
  return QWidget::eventFilter(watched, event);
}

}  // namespace longhand::ui
