#include "ui/settings/setting_row.h"

#include <QCheckBox>
#include <QEvent>
#include <QHBoxLayout>
#include <QVBoxLayout>

#include "ui/style/named.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

void makeHintOf(QLabel& label) {
  label.setProperty("textRole", u"secondary"_s);
  label.setWordWrap(true);
  label.setMinimumWidth(1);
}

}  // namespace

SettingHint::SettingHint(QWidget& control, const QString& text, QWidget* parent)
    : QLabel(parent), control_(control), hint_(text) {
  makeHintOf(*this);
  showText();
}

void SettingHint::setHint(const QString& text, Tone tone) {
  if (text == hint_ && tone == tone_) return;
  hint_ = text;
  tone_ = tone;
  showText();
}

void SettingHint::setCorrection(const QString& sentence) {
  if (sentence == correction_) return;
  correction_ = sentence;
  showText();
}

void SettingHint::showText() {
  const bool isWarning = tone_ == Tone::kWarning || !correction_.isEmpty();
  setText(correction_.isEmpty() ? hint_ : correction_);
  setStyleProperty(*this, "textRole", isWarning ? u"warning"_s : u"secondary"_s);
  control_.setAccessibleDescription(text());
}

SettingSection::SettingSection(const QString& title, QWidget* parent)
    : QWidget(parent), rows_(new QVBoxLayout(this)) {
  rows_->setContentsMargins(0, 0, 0, 10);
  rows_->setSpacing(12);
  auto* heading = new QLabel(title, this);
  heading->setProperty("textRole", u"heading"_s);
  rows_->addWidget(heading);
}

SettingHint* SettingSection::addRow(const QString& label, QWidget* control, const QString& hint) {
  control->setAccessibleName(label);
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
  auto* hintLabel = new SettingHint(*control, hint, this);
  row->addWidget(hintLabel);
  rows_->addLayout(row);
  return hintLabel;
}

QLabel* SettingSection::addNote(const QString& label) {
  auto* row = new QVBoxLayout;
  row->setSpacing(3);
  row->addWidget(new QLabel(label, this));
  auto* note = new QLabel(this);
  makeHintOf(*note);
  note->setAccessibleName(label);
  note->setTextFormat(Qt::PlainText);
  note->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  row->addWidget(note);
  rows_->addLayout(row);
  return note;
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
