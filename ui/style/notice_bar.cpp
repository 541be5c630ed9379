#include "ui/style/notice_bar.h"

#include <QAccessible>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QPushButton>
#include <QToolButton>
#include <QVBoxLayout>

#include "ui/style/named.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

NoticeBar::NoticeBar(const QString& objectName, QWidget* parent)
    : QFrame(parent),
      text_(named(new QLabel(this), objectName + u"Text"_s, tr("Notice"))),
      hint_(named(new QLabel(this), objectName + u"Hint"_s, tr("What you can do"))),
      action_(named(new QPushButton(this), objectName + u"Action"_s, QString())),
      dismiss_(named(new QToolButton(this), objectName + u"Dismiss"_s, tr("Dismiss this notice"))) {
  setObjectName(objectName);
  setFrameShape(QFrame::NoFrame);
  for (QLabel* label : {text_, hint_}) {
    label->setWordWrap(true);
    label->setTextFormat(Qt::PlainText);  // messages quote file names and documents
    label->setTextInteractionFlags(Qt::TextSelectableByMouse);
    label->setMinimumWidth(1);
  }
  hint_->setProperty("textRole", u"secondary"_s);
  dismiss_->setText(u"\u2715"_s);
  dismiss_->setToolTip(tr("Dismiss"));
  dismiss_->setAutoRaise(true);

  auto* texts = new QVBoxLayout;
  texts->setSpacing(2);
  texts->addWidget(text_);
  texts->addWidget(hint_);
  auto* row = new QHBoxLayout(this);
  row->setContentsMargins(12, 8, 6, 8);
  row->setSpacing(8);
  row->addLayout(texts, 1);
  row->addWidget(action_, 0, Qt::AlignVCenter);
  row->addWidget(dismiss_, 0, Qt::AlignTop);

  connect(action_, &QPushButton::clicked, this, [this] {
    hide();
    emit actionTriggered();
  });
  connect(dismiss_, &QToolButton::clicked, this, &NoticeBar::dismiss);
  hide();
}

void NoticeBar::showNotice(const QString& text, const QString& hint, const QString& actionText) {
  text_->setText(text);
  hint_->setText(hint);
  hint_->setVisible(!hint.isEmpty());
  action_->setText(actionText);
  action_->setAccessibleName(actionText);
  action_->setVisible(!actionText.isEmpty());
  setAccessibleName(hint.isEmpty() ? text : text + u' ' + hint);
  show();
  QAccessibleEvent alert(this, QAccessible::Alert);
  QAccessible::updateAccessibility(&alert);
}

void NoticeBar::dismiss() {
  if (!isVisibleTo(parentWidget())) return;
  hide();
  emit dismissed();
}

void NoticeBar::focusAction() { action_->setFocus(Qt::OtherFocusReason); }

void NoticeBar::keyPressEvent(QKeyEvent* event) {
  if (event->key() == Qt::Key_Escape) {
    dismiss();
    return;
  }
  const bool isEnter = event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter;
  if (isEnter && action_->hasFocus()) {  // outside of dialogs a button only knows Space
    action_->click();
    return;
  }
  QFrame::keyPressEvent(event);
}

QString NoticeBar::notice() const {
  return isVisibleTo(parentWidget()) ? accessibleName() : QString();
}

}  // namespace longhand::ui
