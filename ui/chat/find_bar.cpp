#include "ui/chat/find_bar.h"

#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QToolButton>

#include "ui/style/format.h"
#include "ui/style/icons.h"
#include "ui/style/named.h"
#include "ui/transcript/transcript_view.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

FindBar::FindBar(TranscriptView& transcript, const Theme& theme, QWidget* parent)
    : QFrame(parent),
      transcript_(transcript),
      text_(named(new QLineEdit(this), u"findField"_s, tr("Find in this chat"))),
      count_(named(new QLabel(this), u"findCount"_s, tr("Places found"))),
      previous_(named(new QToolButton(this), u"findPreviousButton"_s, tr("Previous place"))),
      next_(named(new QToolButton(this), u"findNextButton"_s, tr("Next place"))),
      close_(named(new QToolButton(this), u"findCloseButton"_s, tr("Close search"))) {
  setObjectName(u"findBar"_s);
  text_->setPlaceholderText(tr("Find in this chat"));
  text_->installEventFilter(this);
  count_->setProperty("textRole", u"secondary"_s);
  count_->setMinimumWidth(64);
  previous_->setToolTip(tr("Previous (Shift+Enter)"));
  next_->setToolTip(tr("Next (Enter)"));
  close_->setToolTip(tr("Close (Esc)"));
  auto* layout = new QHBoxLayout(this);
  layout->setContentsMargins(8, 6, 6, 6);
  layout->setSpacing(6);
  layout->addWidget(text_, 1);
  layout->addWidget(count_);
  layout->addWidget(previous_);
  layout->addWidget(next_);
  layout->addWidget(close_);

  connect(text_, &QLineEdit::textChanged, &transcript_, &TranscriptView::setFindText);
  connect(&transcript_, &TranscriptView::findChanged, this, &FindBar::showCount);
  connect(previous_, &QToolButton::clicked, &transcript_, &TranscriptView::findPrevious);
  connect(next_, &QToolButton::clicked, &transcript_, &TranscriptView::findNext);
  connect(close_, &QToolButton::clicked, this, &FindBar::close);
  setTheme(theme);
  hide();
}

void FindBar::setTheme(const Theme& theme) {
  previous_->setIcon(makeIcon(IconKind::kPrevious, theme.colors.textMuted));
  next_->setIcon(makeIcon(IconKind::kNext, theme.colors.textMuted));
  close_->setIcon(makeIcon(IconKind::kClose, theme.colors.textMuted));
}

void FindBar::open() {
  show();
  text_->setFocus(Qt::ShortcutFocusReason);
  text_->selectAll();
  transcript_.setFindText(text_->text());
}

void FindBar::close() {
  if (!isVisibleTo(parentWidget())) return;
  hide();
  transcript_.setFindText(QString());
  emit closed();
}

void FindBar::showCount(int current, int count) {
  count_->setText(text_->text().isEmpty() ? QString()
                  : count == 0            ? tr("not found")
                               : tr("%1 of %2").arg(formatCount(current + 1), formatCount(count)));
}

bool FindBar::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() != QEvent::KeyPress) return QFrame::eventFilter(watched, event);
  const auto* key = static_cast<QKeyEvent*>(event);
  if (key->key() == Qt::Key_Escape) {
    close();
    return true;
  }
  if (key->key() == Qt::Key_Return || key->key() == Qt::Key_Enter) {
    if (key->modifiers().testFlag(Qt::ShiftModifier)) {
      transcript_.findPrevious();
    } else {
      transcript_.findNext();
    }
    return true;
  }
  return QFrame::eventFilter(watched, event);
}

}  // namespace longhand::ui
