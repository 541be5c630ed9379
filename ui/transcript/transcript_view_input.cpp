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
#include "ui/transcript/transcript_view_impl.h"

namespace longhand::ui {

// --- Where things are ---------------------------------------------------------------------------

QPointF TranscriptView::Impl::toItem(int index, const QPoint& viewportPoint) const {
  return QPointF(viewportPoint) -
         QPointF(columnLeft(), top(index) - view.verticalScrollBar()->value());
}

TranscriptView::Impl::Target TranscriptView::Impl::targetAt(const QPoint& viewportPoint) const {
  const int contentY = viewportPoint.y() + view.verticalScrollBar()->value();
  const int index = indexAt(contentY);
  if (index < 0 || contentY < top(0) || contentY >= contentHeight()) return {};
  return {at(index).message().id, at(index).hitTest(toItem(index, viewportPoint))};
}

void TranscriptView::Impl::setHover(const QPoint& viewportPoint) {
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

void TranscriptView::Impl::startSelection(const Target& target, bool extend) {
  if (extend && selection.id == target.id) {
    selection.position = target.hit.position;
  } else {
    selection = {target.id, target.hit.position, target.hit.position};
  }
  isSelecting = true;
}

void TranscriptView::Impl::selectWord(const Target& target) {
  const MessageItem* clicked = item(target.id);
  QTextCursor cursor(clicked->document()->textDocument());
  cursor.setPosition(target.hit.position);
  cursor.select(QTextCursor::WordUnderCursor);
  selection = {target.id, cursor.selectionStart(), cursor.selectionEnd()};
}

void TranscriptView::Impl::selectBlock(const Target& target) {
  const QTextBlock block =
      item(target.id)->document()->textDocument()->findBlock(target.hit.position);
  selection = {target.id, block.position(), block.position() + block.length() - 1};
}

void TranscriptView::Impl::extendSelection(const QPoint& viewportPoint) {
  const auto index = indexes.constFind(selection.id);
  if (index == indexes.cend()) return;
  selection.position = at(*index).positionAt(toItem(*index, viewportPoint));
  view.viewport()->update();
}

void TranscriptView::Impl::clipboard(const QString& text) {
  QGuiApplication::clipboard()->setText(text);
}

void TranscriptView::Impl::copySelection() {
  if (selection.empty()) return;
  clipboard(view.selectedText());
  emit view.copied(tr("Selection copied"));
}

void TranscriptView::Impl::copyMessage(qint64 id, bool markdown) {
  MessageItem* source = item(id);
  if (source == nullptr) return;
  if (markdown || source->message().role != TranscriptRole::kAssistant) {
    clipboard(source->message().text);
  } else {
    source->measure();
    clipboard(source->document()->plainText());
  }
  MessageHit hit;
  hit.part = MessagePart::kCopy;
  confirm({id, hit}, tr("Message copied"));
}

void TranscriptView::Impl::confirm(const Target& target, const QString& what) {
  confirmed = target;
  confirmTimer.start();
  view.viewport()->update();
  emit view.copied(what);
}

void TranscriptView::Impl::activate(const Target& target) {
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
  const Impl::Target target = impl_->targetAt(point);
  impl_->keyboardFocus = false;
  impl_->pressed = target;
  impl_->pressPoint = point;
  if (target.id != 0) currentId_ = target.id;
  const bool onText =
      target.hit.part == MessagePart::kText || target.hit.part == MessagePart::kLink;
  if (!onText) {
    if (target.hit.part == MessagePart::kNone) clearSelection();
    return;
  }
  const bool triple = target.id == impl_->selection.id && impl_->sinceDoubleClick.isValid() &&
                      impl_->sinceDoubleClick.elapsed() < QApplication::doubleClickInterval();
  if (triple) {
    impl_->selectBlock(target);
  } else {
    impl_->startSelection(target, event->modifiers().testFlag(Qt::ShiftModifier));
  }
  viewport()->update();
}

void TranscriptView::mouseDoubleClickEvent(QMouseEvent* event) {
  const Impl::Target target = impl_->targetAt(event->position().toPoint());
  if (event->button() == Qt::LeftButton && target.hit.part == MessagePart::kText) {
    impl_->selectWord(target);
    impl_->isSelecting = false;
    impl_->sinceDoubleClick.start();
    viewport()->update();
  } else {
    mousePressEvent(event);
  }
}

void TranscriptView::mouseMoveEvent(QMouseEvent* event) {
  const QPoint point = event->position().toPoint();
  if (!impl_->isSelecting) {
    impl_->setHover(point);
    return;
  }
  impl_->lastDragPoint = point;
  impl_->extendSelection(point);
  const int below = point.y() - viewport()->height();
  impl_->autoScrollStep = point.y() < 0 ? point.y() / 2 - 1 : below > 0 ? below / 2 + 1 : 0;
  if (impl_->autoScrollStep == 0) {
    impl_->autoScroll.stop();
  } else if (!impl_->autoScroll.isActive()) {
    impl_->autoScroll.start();
  }
}

void TranscriptView::mouseReleaseEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton) return;
  const QPoint point = event->position().toPoint();
  const bool dragged =
      (point - impl_->pressPoint).manhattanLength() >= QApplication::startDragDistance();
  impl_->isSelecting = false;
  impl_->autoScroll.stop();
  const Impl::Target pressed = std::exchange(impl_->pressed, {});
  const Impl::Target now = impl_->targetAt(point);
  const bool same = now.id == pressed.id && now.hit.sameButton(pressed.hit);
  const bool button = pressed.hit.part != MessagePart::kText &&
                      pressed.hit.part != MessagePart::kNone && !dragged && same;
  if (hasSelection() && QGuiApplication::clipboard()->supportsSelection()) {
    QGuiApplication::clipboard()->setText(selectedText(), QClipboard::Selection);
  }
  if (button) impl_->activate(pressed);
}

bool TranscriptView::viewportEvent(QEvent* event) {
  if (event->type() == QEvent::ToolTip) {
    const auto* help = static_cast<QHelpEvent*>(event);
    const Impl::Target target = impl_->targetAt(help->pos());
    const MessageItem* item = impl_->item(target.id);
    const QString text = item == nullptr ? QString() : item->toolTip(target.hit);
    // Plain text: a link's target must not be read as HTML.
    QToolTip::showText(help->globalPos(), text.toHtmlEscaped(), viewport());
    return true;
  }
  if (event->type() == QEvent::Leave && impl_->hover.id != 0) {
    impl_->hover = {};
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

void TranscriptView::Impl::moveCurrent(int delta) {
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
    impl_->copySelection();
    return;
  }
  if (event->matches(QKeySequence::SelectAll)) {
    const bool none = indexOf(currentId_) < 0;
    if (impl_->count() > 0)
      selectMessage(none ? impl_->at(impl_->count() - 1).message().id : currentId_);
    return;
  }
  switch (event->key()) {
    case Qt::Key_Up:
    case Qt::Key_Down: {
      const int direction = event->key() == Qt::Key_Up ? -1 : 1;
      if (control) {
        impl_->moveCurrent(direction);
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
    impl_->keyboardFocus = true;
    if (indexOf(currentId_) < 0 && impl_->count() > 0) {
      currentId_ =
          impl_->at(impl_->indexAt(verticalScrollBar()->value() + viewport()->height() - 1))
              .message()
              .id;
    }
  }
  viewport()->update();
}

void TranscriptView::focusOutEvent(QFocusEvent*) { viewport()->update(); }

// --- Menu ---------------------------------------------------------------------------------------

QMenu* TranscriptView::Impl::showMenu(qint64 id, const MessageHit& hit, const QPoint& globalPoint) {
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
  if (message.role == TranscriptRole::kAssistant) {
    add("copyMarkdown", tr("Copy as Markdown"), [this, id] { copyMessage(id, true); });
  }
  add("selectMessage", tr("Select message"), [this, id] { view.selectMessage(id); });
  const bool busy =
      message.state == TranscriptState::kWaiting || message.state == TranscriptState::kStreaming;
  if (message.role == TranscriptRole::kUser && message.canEdit && !busy) {
    menu->addSeparator();
    add("editMessage", tr("Edit and ask again"), [this, id] { emit view.editRequested(id); });
  }
  if (message.role == TranscriptRole::kAssistant && message.canRetry && !busy) {
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
    impl_->showMenu(currentId_, {}, viewport()->mapToGlobal(inside));
    return;
  }
  const Impl::Target target = impl_->targetAt(viewport()->mapFromGlobal(event->globalPos()));
  if (target.id == 0) return;
  currentId_ = target.id;
  impl_->showMenu(target.id, target.hit, event->globalPos());
}

}  // namespace longhand::ui
