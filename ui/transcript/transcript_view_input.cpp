// Mouse, keyboard and menu of the transcript.
#include <algorithm>

#include <QApplication>
#include <QClipboard>
#include <QContextMenuEvent>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMenu>
#include <QScrollBar>
#include <QTextBlock>
#include <QTextCursor>
#include <QToolTip>

#include "ui/markdown/markdown_document.h"
#include "ui/transcript/transcript_view_p.h"

namespace longhand::ui {

// --- Where things are ---------------------------------------------------------------------------

QPointF TranscriptView::Private::toItem(int index, const QPoint& viewportPoint) const {
  return QPointF(viewportPoint) -
         QPointF(columnLeft(), top(index) - view.verticalScrollBar()->value());
}

TranscriptView::Private::Target TranscriptView::Private::targetAt(
    const QPoint& viewportPoint) const {
  const int contentY = viewportPoint.y() + view.verticalScrollBar()->value();
  const int index = indexAt(contentY);
  if (index < 0 || contentY < top(0) || contentY >= contentHeight()) return {};
  return {at(index).message().id, at(index).hitTest(toItem(index, viewportPoint))};
}

void TranscriptView::Private::setHover(const QPoint& viewportPoint) {
  const Target now = targetAt(viewportPoint);
  const bool changed = now.id != hover.id || !now.hit.sameButton(hover.hit);
  hover = now;
  if (!changed) return;
  Qt::CursorShape shape = Qt::ArrowCursor;
  if (now.hit.part == MessagePart::kText) {
    shape = Qt::IBeamCursor;
  } else if (now.hit.part != MessagePart::kNone) {
    shape = Qt::PointingHandCursor;
  }
  view.viewport()->setCursor(shape);
  view.viewport()->update();
}

// --- Selection ----------------------------------------------------------------------------------

void TranscriptView::Private::startSelection(const Target& target, bool extend) {
  if (extend && selection.id == target.id) {
    selection.position = target.hit.position;
  } else {
    selection = {target.id, target.hit.position, target.hit.position};
  }
  selecting = true;
}

void TranscriptView::Private::selectWord(const Target& target) {
  const MessageItem* clicked = item(target.id);
  QTextCursor cursor(clicked->document()->textDocument());
  cursor.setPosition(target.hit.position);
  cursor.select(QTextCursor::WordUnderCursor);
  selection = {target.id, cursor.selectionStart(), cursor.selectionEnd()};
}

void TranscriptView::Private::selectBlock(const Target& target) {
  const QTextBlock block =
      item(target.id)->document()->textDocument()->findBlock(target.hit.position);
  selection = {target.id, block.position(), block.position() + block.length() - 1};
}

void TranscriptView::Private::extendSelection(const QPoint& viewportPoint) {
  const auto index = indexes.constFind(selection.id);
  if (index == indexes.cend()) return;
  selection.position = at(*index).positionAt(toItem(*index, viewportPoint));
  view.viewport()->update();
}

void TranscriptView::Private::clipboard(const QString& text) {
  QGuiApplication::clipboard()->setText(text);
}

void TranscriptView::Private::copySelection() {
  if (selection.empty()) return;
  clipboard(view.selectedText());
  emit view.copied(tr("Selection copied"));
}

void TranscriptView::Private::copyMessage(qint64 id, bool markdown) {
  MessageItem* source = item(id);
  if (source == nullptr) return;
  if (markdown || source->message().role != MessageRole::kAssistant) {
    clipboard(source->message().text);
  } else {
    source->measure();
    clipboard(source->document()->plainText());
  }
  MessageHit hit;
  hit.part = MessagePart::kCopy;
  confirm({id, hit}, tr("Message copied"));
}

void TranscriptView::Private::confirm(const Target& target, const QString& what) {
  confirmed = target;
  confirmTimer.start();
  view.viewport()->update();
  emit view.copied(what);
}

void TranscriptView::Private::activate(const Target& target) {
  switch (target.hit.part) {
    case MessagePart::kCopy:
      copyMessage(target.id, false);
      break;
    case MessagePart::kCopyCode: {
      const MarkdownDocument* document = item(target.id)->document();
      for (const CodeBox& box : document->codeBoxes(QRectF(0, 0, 1e6, document->height()))) {
        if (box.first != target.hit.codePosition) continue;
        clipboard(document->codeText(box));
        confirm(target, tr("Code copied"));
      }
      break;
    }
    case MessagePart::kEdit:
      emit view.editRequested(target.id);
      break;
    case MessagePart::kRegenerate:
      emit view.regenerateRequested(target.id);
      break;
    case MessagePart::kPrevious:
      emit view.branchRequested(target.id, -1);
      break;
    case MessagePart::kNext:
      emit view.branchRequested(target.id, +1);
      break;
    case MessagePart::kLink:
      emit view.linkActivated(target.hit.link);
      break;
    case MessagePart::kNone:
    case MessagePart::kText:
      break;
  }
}

// --- Mouse --------------------------------------------------------------------------------------

void TranscriptView::mousePressEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton) return;
  const QPoint point = event->position().toPoint();
  const Private::Target target = d_->targetAt(point);
  d_->keyboardFocus = false;
  d_->pressed = target;
  d_->pressPoint = point;
  if (target.id != 0) currentId_ = target.id;
  const bool onText =
      target.hit.part == MessagePart::kText || target.hit.part == MessagePart::kLink;
  if (!onText) {
    if (target.hit.part == MessagePart::kNone) clearSelection();
    return;
  }
  const bool triple = target.id == d_->selection.id && d_->sinceDoubleClick.isValid() &&
                      d_->sinceDoubleClick.elapsed() < QApplication::doubleClickInterval();
  if (triple) {
    d_->selectBlock(target);
  } else {
    d_->startSelection(target, event->modifiers().testFlag(Qt::ShiftModifier));
  }
  viewport()->update();
}

void TranscriptView::mouseDoubleClickEvent(QMouseEvent* event) {
  const Private::Target target = d_->targetAt(event->position().toPoint());
  if (event->button() == Qt::LeftButton && target.hit.part == MessagePart::kText) {
    d_->selectWord(target);
    d_->selecting = false;
    d_->sinceDoubleClick.start();
    viewport()->update();
  } else {
    mousePressEvent(event);
  }
}

void TranscriptView::mouseMoveEvent(QMouseEvent* event) {
  const QPoint point = event->position().toPoint();
  if (!d_->selecting) {
    d_->setHover(point);
    return;
  }
  d_->lastDragPoint = point;
  d_->extendSelection(point);
  const int below = point.y() - viewport()->height();
  d_->autoScrollStep = point.y() < 0 ? point.y() / 2 - 1 : below > 0 ? below / 2 + 1 : 0;
  if (d_->autoScrollStep == 0) {
    d_->autoScroll.stop();
  } else if (!d_->autoScroll.isActive()) {
    d_->autoScroll.start();
  }
}

void TranscriptView::mouseReleaseEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton) return;
  const QPoint point = event->position().toPoint();
  const bool dragged =
      (point - d_->pressPoint).manhattanLength() >= QApplication::startDragDistance();
  d_->selecting = false;
  d_->autoScroll.stop();
  const Private::Target pressed = std::exchange(d_->pressed, {});
  const Private::Target now = d_->targetAt(point);
  const bool same = now.id == pressed.id && now.hit.sameButton(pressed.hit);
  const bool button = pressed.hit.part != MessagePart::kText &&
                      pressed.hit.part != MessagePart::kNone && !dragged && same;
  if (hasSelection() && QGuiApplication::clipboard()->supportsSelection()) {
    QGuiApplication::clipboard()->setText(selectedText(), QClipboard::Selection);
  }
  if (button) d_->activate(pressed);
}

bool TranscriptView::viewportEvent(QEvent* event) {
  if (event->type() == QEvent::ToolTip) {
    const auto* help = static_cast<QHelpEvent*>(event);
    const Private::Target target = d_->targetAt(help->pos());
    const MessageItem* item = d_->item(target.id);
    const QString text = item == nullptr ? QString() : item->toolTip(target.hit);
    // Plain text: a link's target must not be read as HTML.
    QToolTip::showText(help->globalPos(), text.toHtmlEscaped(), viewport());
    return true;
  }
  if (event->type() == QEvent::Leave && d_->hover.id != 0) {
    d_->hover = {};
    viewport()->update();
  }
  return QAbstractScrollArea::viewportEvent(event);
}

// --- Keyboard -----------------------------------------------------------------------------------

void TranscriptView::setCurrentMessage(qint64 id) {
  const int index = indexOf(id);
  currentId_ = index < 0 ? 0 : id;
  if (index < 0) return;
  const QRect rect = messageRect(index);
  const bool visible = rect.top() >= 0 && rect.bottom() <= viewport()->height();
  if (!visible) scrollToMessage(id);
  viewport()->update();
}

void TranscriptView::Private::moveCurrent(int delta) {
  if (items.empty()) return;
  const auto current = indexes.constFind(view.currentId_);
  int index = 0;
  if (current != indexes.cend()) {
    index = std::clamp(*current + delta, 0, count() - 1);
  } else {
    // From outside: the last message in sight, or the first.
    const int value = view.verticalScrollBar()->value();
    index = indexAt(delta < 0 ? value + view.viewport()->height() - 1 : value);
  }
  keyboardFocus = true;
  view.setCurrentMessage(at(index).message().id);
}

void TranscriptView::keyPressEvent(QKeyEvent* event) {
  QScrollBar* bar = verticalScrollBar();
  const bool control = event->modifiers().testFlag(Qt::ControlModifier);
  if (event->matches(QKeySequence::Copy)) {
    d_->copySelection();
    return;
  }
  if (event->matches(QKeySequence::SelectAll)) {
    const bool none = indexOf(currentId_) < 0;
    if (d_->count() > 0) selectMessage(none ? d_->at(d_->count() - 1).message().id : currentId_);
    return;
  }
  switch (event->key()) {
    case Qt::Key_Up:
    case Qt::Key_Down: {
      const int direction = event->key() == Qt::Key_Up ? -1 : 1;
      if (control) {
        d_->moveCurrent(direction);
      } else {
        bar->setValue(bar->value() + direction * bar->singleStep());
      }
      return;
    }
    case Qt::Key_PageUp:
      bar->setValue(bar->value() - bar->pageStep() + bar->singleStep());
      return;
    case Qt::Key_PageDown:
      bar->setValue(bar->value() + bar->pageStep() - bar->singleStep());
      return;
    case Qt::Key_Space: {
      const int page = bar->pageStep() - bar->singleStep();
      bar->setValue(bar->value() + (event->modifiers().testFlag(Qt::ShiftModifier) ? -page : page));
      return;
    }
    case Qt::Key_Home:
      bar->setValue(0);
      return;
    case Qt::Key_End:
      scrollToEnd();
      return;
    case Qt::Key_Escape:
      if (hasSelection()) {
        clearSelection();
        return;
      }
      break;
    default:
      break;
  }
  event->ignore();  // the window's shortcuts
}

void TranscriptView::focusInEvent(QFocusEvent* event) {
  const auto reason = event->reason();
  if (reason == Qt::TabFocusReason || reason == Qt::BacktabFocusReason) {
    d_->keyboardFocus = true;
    if (indexOf(currentId_) < 0 && d_->count() > 0) {
      currentId_ =
          d_->at(d_->indexAt(verticalScrollBar()->value() + viewport()->height() - 1)).message().id;
    }
  }
  viewport()->update();
}

void TranscriptView::focusOutEvent(QFocusEvent*) { viewport()->update(); }

// --- Menu ---------------------------------------------------------------------------------------

QMenu* TranscriptView::Private::showMenu(qint64 id, const MessageHit& hit,
                                         const QPoint& globalPoint) {
  const MessageItem* target = item(id);
  if (target == nullptr) return nullptr;
  const TranscriptMessage& message = target->message();
  auto* menu = new QMenu(&view);
  menu->setObjectName(QStringLiteral("messageMenu"));
  menu->setAttribute(Qt::WA_DeleteOnClose);
  const auto add = [&](const char* name, const QString& text, auto action) {
    QAction* entry = menu->addAction(text);
    entry->setObjectName(QString::fromLatin1(name));
    QObject::connect(entry, &QAction::triggered, &view, action);
    return entry;
  };
  add("copySelection", tr("Copy selection"), [this] {
    copySelection();
  })->setEnabled(!selection.empty());
  if (!hit.link.isEmpty()) {
    add("copyLink", tr("Copy link"), [this, link = hit.link] {
      clipboard(link);
      emit view.copied(tr("Link copied"));
    });
  }
  menu->addSeparator();
  add("copyMessage", tr("Copy message"), [this, id] { copyMessage(id, false); });
  if (message.role == MessageRole::kAssistant) {
    add("copyMarkdown", tr("Copy as Markdown"), [this, id] { copyMessage(id, true); });
  }
  add("selectMessage", tr("Select message"), [this, id] { view.selectMessage(id); });
  const bool busy =
      message.state == MessageState::kWaiting || message.state == MessageState::kStreaming;
  if (message.role == MessageRole::kUser && message.canEdit && !busy) {
    menu->addSeparator();
    add("editMessage", tr("Edit and ask again"), [this, id] { emit view.editRequested(id); });
  }
  if (message.role == MessageRole::kAssistant && message.canRetry && !busy) {
    menu->addSeparator();
    add("regenerate", tr("Answer again"), [this, id] { emit view.regenerateRequested(id); });
  }
  menu->popup(globalPoint);
  return menu;
}

void TranscriptView::contextMenuEvent(QContextMenuEvent* event) {
  if (event->reason() == QContextMenuEvent::Keyboard) {
    const int index = indexOf(currentId_);
    if (index < 0) return;
    const QPoint corner = messageRect(index).topLeft() + QPoint(0, 24);
    const QPoint inside(corner.x(), std::clamp(corner.y(), 0, viewport()->height()));
    d_->showMenu(currentId_, {}, viewport()->mapToGlobal(inside));
    return;
  }
  const Private::Target target = d_->targetAt(viewport()->mapFromGlobal(event->globalPos()));
  if (target.id == 0) return;
  currentId_ = target.id;
  d_->showMenu(target.id, target.hit, event->globalPos());
}

}  // namespace longhand::ui
