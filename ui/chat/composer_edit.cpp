#include "ui/chat/composer_edit.h"

#include <algorithm>
#include <cmath>

#include <QAbstractTextDocumentLayout>
#include <QInputMethodEvent>
#include <QKeyEvent>
#include <QMimeData>
#include <QScrollBar>
#include <QTextBlock>

namespace longhand::ui {
namespace {
constexpr int kMaxLines = 8;
}

ComposerEdit::ComposerEdit(QWidget* parent) : QPlainTextEdit(parent) {
  setObjectName(QStringLiteral("composerEdit"));
  setFrameShape(QFrame::NoFrame);
  setTabChangesFocus(true);
  setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  setVerticalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  setWordWrapMode(QTextOption::WrapAtWordBoundaryOrAnywhere);
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  // Files belong to the composer around it.
  setAcceptDrops(false);
  document()->setDocumentMargin(4);
  connect(document()->documentLayout(), &QAbstractTextDocumentLayout::documentSizeChanged, this,
          &ComposerEdit::fitHeight);
}

QSize ComposerEdit::sizeHint() const {
  // A plain text layout measures its height in lines.
  const double lines =
      std::clamp(document()->documentLayout()->documentSize().height(), 1.0, double{kMaxLines});
  const double height = lines * fontMetrics().lineSpacing() + 2 * document()->documentMargin();
  return {200, static_cast<int>(std::ceil(height)) + 2};
}

void ComposerEdit::fitHeight() {
  const bool full = document()->documentLayout()->documentSize().height() > kMaxLines;
  setVerticalScrollBarPolicy(full ? Qt::ScrollBarAsNeeded : Qt::ScrollBarAlwaysOff);
  updateGeometry();
}

void ComposerEdit::resizeEvent(QResizeEvent* event) {
  QPlainTextEdit::resizeEvent(event);
  fitHeight();
  // The field was a line too short when the text came: show it from the top again.
  verticalScrollBar()->setValue(0);
  ensureCursorVisible();
}

void ComposerEdit::keyPressEvent(QKeyEvent* event) {
  const bool enter = event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter;
  if (enter && !isComposing_) {
    if (event->modifiers().testFlag(Qt::ShiftModifier)) {
      textCursor().insertText(QStringLiteral("\n"));
      ensureCursorVisible();
    } else {
      emit enterPressed();
    }
    return;
  }
  if (event->key() == Qt::Key_Escape && !isComposing_) {
    emit escapePressed();
    return;
  }
  QPlainTextEdit::keyPressEvent(event);
}

void ComposerEdit::inputMethodEvent(QInputMethodEvent* event) {
  isComposing_ = !event->preeditString().isEmpty();
  QPlainTextEdit::inputMethodEvent(event);
}

bool ComposerEdit::canInsertFromMimeData(const QMimeData* source) const {
  return source->hasText();
}

void ComposerEdit::insertFromMimeData(const QMimeData* source) {
  if (!source->hasText()) return;
  textCursor().insertText(source->text());
  ensureCursorVisible();
}

}  // namespace longhand::ui
