#include "ui/transcript/transcript_view.h"

#include <algorithm>
#include <cmath>

#include <QPaintEvent>
#include <QPainter>
#include <QScrollBar>

#include "ui/markdown/markdown_document.h"
#include "ui/style/icons.h"
#include "ui/transcript/transcript_accessible.h"
#include "ui/transcript/transcript_view_impl.h"

namespace longhand::ui {
namespace {

constexpr int kPadding = 24;  // around the column
constexpr int kMaxDocuments = 64;
constexpr int kAtEnd = 8;  // pixels from the end that still count as the end
// One pass measures what the estimates put into sight; exact heights can move more into sight.
constexpr int kMaxPasses = 12;
constexpr int kDownButton = 34;
constexpr int kAnimationMs = 350;

}  // namespace

// --- Geometry -----------------------------------------------------------------------------------

MessageItem* TranscriptView::Impl::item(qint64 id) const {
  const auto found = indexes.constFind(id);
  return found == indexes.cend() ? nullptr : &at(*found);
}

double TranscriptView::Impl::columnWidth() const {
  return std::max(120,
                  std::min(theme.metrics.columnWidth, view.viewport()->width() - 2 * kPadding));
}

double TranscriptView::Impl::columnLeft() const {
  return std::floor((view.viewport()->width() - columnWidth()) / 2);
}

int TranscriptView::Impl::indexAt(int contentY) const {
  if (items.empty()) return -1;
  const auto below = std::upper_bound(tops.begin(), tops.end() - 1, contentY);
  return std::max(0, static_cast<int>(below - tops.begin()) - 1);
}

void TranscriptView::Impl::touchFrom(int index) { dirtyFrom = std::min(dirtyFrom, index); }

void TranscriptView::Impl::computeTops() {
  const int n = count();
  tops.resize(static_cast<std::size_t>(n) + 1);
  if (dirtyFrom == 0 || n == 0) tops[0] = n == 0 ? 0 : kPadding / 2;
  for (int i = dirtyFrom; i < n; ++i) {
    const bool last = i + 1 == n;
    tops[static_cast<std::size_t>(i) + 1] =
        top(i) + static_cast<int>(at(i).height()) + (last ? kPadding : 0);
  }
  dirtyFrom = n;
}

void TranscriptView::Impl::setScrollValue(int value) {
  QScrollBar* bar = view.verticalScrollBar();
  const int viewport = view.viewport()->height();
  bar->setRange(0, std::max(0, contentHeight() - viewport));
  bar->setPageStep(viewport);
  bar->setSingleStep(3 * theme.textFont.pixelSize());
  bar->setValue(value);
}

void TranscriptView::Impl::relayout() {
  if (isInLayout) return;
  isInLayout = true;
  QScrollBar* bar = view.verticalScrollBar();
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    computeTops();
    int value = bar->value();
    if (followsEnd) {
      value = std::max(0, contentHeight() - view.viewport()->height());
    } else if (const auto anchor = indexes.constFind(anchorId); anchor != indexes.cend()) {
      value = top(*anchor) - anchorOffset;
    }
    setScrollValue(value);
    bool changed = false;
    const int bottom = bar->value() + view.viewport()->height();
    for (int i = indexAt(bar->value()); i >= 0 && i < count() && top(i) < bottom; ++i) {
      MessageItem& visible = at(i);
      visible.lastUsed = ++clock;
      if (visible.isMeasured() && visible.hasDocument()) continue;
      const double before = visible.height();
      visible.measure();
      if (visible.height() != before) {
        // The last message's top includes the padding below, which computeTops() adds again.
        touchFrom(i);
        changed = true;
      }
    }
    if (!changed) break;
  }
  dropOldDocuments();
  isInLayout = false;
  updateDownButton();
  updateAnimation();
  view.viewport()->update();
}

/// What stays in place when heights change: the first message in sight whose height is exact.
void TranscriptView::Impl::rememberAnchor() {
  const int value = view.verticalScrollBar()->value();
  const int bottom = value + view.viewport()->height();
  const int first = indexAt(value);
  anchorId = 0;
  for (int i = first; i >= 0 && i < count() && top(i) < bottom; ++i) {
    if (anchorId != 0 && !at(i).isMeasured()) continue;
    anchorId = at(i).message().id;
    anchorOffset = top(i) - value;
    if (at(i).isMeasured()) break;
  }
}

void TranscriptView::Impl::dropOldDocuments() {
  std::vector<MessageItem*> live;
  for (const auto& each : items) {
    if (each->hasDocument()) live.push_back(each.get());
  }
  if (live.size() <= kMaxDocuments) return;
  const auto keep = live.end() - kMaxDocuments;
  std::nth_element(live.begin(), keep, live.end(), [](const MessageItem* a, const MessageItem* b) {
    return a->lastUsed < b->lastUsed;
  });
  for (auto old = live.begin(); old != keep; ++old) (*old)->dropDocument();
}

void TranscriptView::Impl::rebuildIndex(int from) {
  if (from == 0) indexes.clear();
  for (int i = from; i < count(); ++i) indexes.insert(at(i).message().id, i);
}

void TranscriptView::Impl::layoutAll(bool newTheme) {
  const double width = columnWidth();
  for (const auto& each : items) each->setLayout(theme, width, newTheme);
  touchFrom(0);
}

void TranscriptView::Impl::messageChanged(int index) {
  touchFrom(index);
  if (find.active()) {
    const int before = find.total();
    const int current = find.current();
    find.countMessage(index, at(index).message());
    if (find.total() != before || find.current() != current) {
      emit view.findChanged(find.current(), find.total());
    }
  }
  relayout();
}

void TranscriptView::Impl::updateDownButton() {
  const bool end = view.isAtEnd();
  downButton->setVisible(!end);
  downButton->move((view.viewport()->width() - kDownButton) / 2,
                   view.viewport()->height() - kDownButton - 12);
  if (end != wasAtEnd) {
    wasAtEnd = end;
    emit view.atEndChanged(end);
  }
}

void TranscriptView::Impl::updateAnimation() {
  const bool waiting = !items.empty() && items.back()->message().state == TranscriptState::kWaiting;
  if (waiting && !animation.isActive()) animation.start(kAnimationMs);
  if (!waiting) animation.stop();
}

/// Screen readers hear of the newest message when it is complete.
void TranscriptView::Impl::announce() {
  if (items.empty()) {
    view.setAccessibleDescription({});
    return;
  }
  const TranscriptMessage& last = items.back()->message();
  if (last.state == TranscriptState::kStreaming || last.state == TranscriptState::kWaiting) return;
  view.setAccessibleDescription(tr("%n message(s). Last: ", nullptr, count()) +
                                items.back()->accessibleName().left(2000));
}

// --- Construction -------------------------------------------------------------------------------

TranscriptView::TranscriptView(const Theme& theme, QWidget* parent)
    : QAbstractScrollArea(parent), impl_(std::make_unique<Impl>(*this)) {
  installTranscriptAccessibility();
  setObjectName(QStringLiteral("transcript"));
  setAccessibleName(tr("Conversation"));
  setFrameShape(QFrame::NoFrame);
  setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  setVerticalScrollBarPolicy(Qt::ScrollBarAsNeeded);
  setFocusPolicy(Qt::StrongFocus);
  viewport()->setMouseTracking(true);
  viewport()->setAttribute(Qt::WA_OpaquePaintEvent);
  viewport()->setCursor(Qt::ArrowCursor);

  impl_->downButton = new QToolButton(viewport());
  impl_->downButton->setObjectName(QStringLiteral("scrollToEndButton"));
  impl_->downButton->setToolTip(tr("Go to the end"));
  impl_->downButton->setAccessibleName(tr("Go to the end"));
  impl_->downButton->setFixedSize(kDownButton, kDownButton);
  impl_->downButton->setCursor(Qt::PointingHandCursor);
  impl_->downButton->setFocusPolicy(Qt::NoFocus);
  impl_->downButton->hide();
  connect(impl_->downButton, &QToolButton::clicked, this, &TranscriptView::scrollToEnd);

  impl_->confirmTimer.setSingleShot(true);
  impl_->confirmTimer.setInterval(1500);
  connect(&impl_->confirmTimer, &QTimer::timeout, this, [this] {
    impl_->confirmed = {};
    viewport()->update();
  });
  connect(&impl_->animation, &QTimer::timeout, this, [this] {
    ++impl_->phase;
    viewport()->update();
  });
  impl_->autoScroll.setInterval(30);
  connect(&impl_->autoScroll, &QTimer::timeout, this, [this] {
    verticalScrollBar()->setValue(verticalScrollBar()->value() + impl_->autoScrollStep);
    impl_->extendSelection(impl_->lastDragPoint);
  });
  setTheme(theme);
}

TranscriptView::~TranscriptView() = default;

void TranscriptView::setTheme(const Theme& theme) {
  impl_->theme = theme;
  QPalette ground = palette();  // shines through beside the scroll bar
  ground.setColor(QPalette::Window, theme.colors.surface);
  setPalette(ground);
  setAutoFillBackground(true);
  impl_->downButton->setIcon(makeIcon(IconKind::kDown, theme.colors.text));
  impl_->downButton->setStyleSheet(
      QStringLiteral("QToolButton { background: %1; border: 1px solid %2; border-radius: %3px; }"
                     "QToolButton:hover { background: %4; }")
          .arg(theme.colors.raised.name(), theme.colors.border.name())
          .arg(kDownButton / 2)
          .arg(theme.colors.hover.name()));
  if (!impl_->followsEnd) impl_->rememberAnchor();
  impl_->layoutAll(true);
  impl_->relayout();
}

// --- Messages -----------------------------------------------------------------------------------

void TranscriptView::setMessages(const QVector<TranscriptMessage>& messages) {
  impl_->items.clear();
  impl_->selection = {};
  impl_->hover = {};
  impl_->pressed = {};
  impl_->confirmed = {};
  currentId_ = 0;
  impl_->items.reserve(static_cast<std::size_t>(messages.size()));
  for (const TranscriptMessage& each : messages) {
    impl_->items.push_back(std::make_unique<MessageItem>(each));
  }
  impl_->rebuildIndex(0);
  impl_->dirtyFrom = 0;
  impl_->layoutAll(true);
  impl_->followsEnd = true;
  if (impl_->find.active()) {
    impl_->startFind(impl_->find.needle());
    emit findChanged(impl_->find.current(), impl_->find.total());
  }
  impl_->relayout();
  impl_->announce();
}

void TranscriptView::appendMessage(const TranscriptMessage& message) {
  if (contains(message.id)) {
    updateMessage(message);
    return;
  }
  const int index = impl_->count();
  impl_->items.push_back(std::make_unique<MessageItem>(message));
  impl_->items.back()->setLayout(impl_->theme, impl_->columnWidth(), true);
  impl_->rebuildIndex(index);
  // The padding below the last message moves.
  impl_->touchFrom(std::max(0, index - 1));
  impl_->messageChanged(std::max(0, index));
  impl_->announce();
}

void TranscriptView::updateMessage(const TranscriptMessage& message) {
  const int index = indexOf(message.id);
  if (index < 0) {
    appendMessage(message);
    return;
  }
  impl_->at(index).setMessage(message);
  impl_->messageChanged(index);
  if (index + 1 == impl_->count()) impl_->announce();
}

void TranscriptView::setMessageText(qint64 id, const QString& text) {
  const int index = indexOf(id);
  if (index < 0) return;
  TranscriptMessage changed = impl_->at(index).message();
  changed.text = text;
  changed.state = TranscriptState::kStreaming;
  impl_->at(index).setMessage(changed);
  impl_->messageChanged(index);
}

void TranscriptView::removeMessage(qint64 id) {
  const int index = indexOf(id);
  if (index < 0) return;
  impl_->items.erase(impl_->items.begin() + index);
  impl_->indexes.clear();
  impl_->rebuildIndex(0);
  impl_->dirtyFrom = 0;
  if (impl_->selection.id == id) impl_->selection = {};
  if (impl_->hover.id == id) impl_->hover = {};
  if (currentId_ == id) currentId_ = 0;
  if (impl_->find.active()) {
    impl_->find.removeMessage(index);
    emit findChanged(impl_->find.current(), impl_->find.total());
  }
  impl_->relayout();
  impl_->announce();
}

void TranscriptView::clear() { setMessages({}); }

int TranscriptView::messageCount() const { return impl_->count(); }

const TranscriptMessage& TranscriptView::message(int index) const {
  return impl_->at(index).message();
}

int TranscriptView::indexOf(qint64 id) const { return impl_->indexes.value(id, -1); }

QString TranscriptView::messageDescription(int index) const {
  return impl_->at(index).accessibleName();
}

// --- Scrolling ----------------------------------------------------------------------------------

void TranscriptView::scrollToMessage(qint64 id) {
  const int index = indexOf(id);
  if (index < 0) return;
  impl_->followsEnd = false;
  impl_->anchorId = id;
  impl_->anchorOffset = 0;
  impl_->relayout();
  impl_->followsEnd = isAtEnd();
}

void TranscriptView::scrollToEnd() {
  impl_->followsEnd = true;
  impl_->relayout();
}

bool TranscriptView::isAtEnd() const {
  return verticalScrollBar()->value() >= verticalScrollBar()->maximum() - kAtEnd;
}

void TranscriptView::scrollContentsBy(int, int) {
  if (impl_->isInLayout) return;
  impl_->followsEnd = isAtEnd();
  impl_->rememberAnchor();
  impl_->relayout();
}

void TranscriptView::resizeEvent(QResizeEvent* event) {
  QAbstractScrollArea::resizeEvent(event);
  impl_->layoutAll(false);
  impl_->relayout();
}

QRect TranscriptView::messageRect(int index) const {
  const int top = impl_->top(index) - verticalScrollBar()->value();
  return {static_cast<int>(impl_->columnLeft()), top, static_cast<int>(impl_->columnWidth()),
          static_cast<int>(impl_->at(index).height())};
}

int TranscriptView::liveDocuments() const {
  return static_cast<int>(std::count_if(impl_->items.begin(), impl_->items.end(),
                                        [](const auto& item) { return item->hasDocument(); }));
}

// --- Painting -----------------------------------------------------------------------------------

void TranscriptView::paintEvent(QPaintEvent* event) {
  QPainter painter(viewport());
  painter.fillRect(event->rect(), impl_->theme.colors.surface);
  const int value = verticalScrollBar()->value();
  const int bottom = value + event->rect().bottom() + 1;
  const double left = impl_->columnLeft();
  for (int i = impl_->indexAt(value + event->rect().top());
       i >= 0 && i < impl_->count() && impl_->top(i) < bottom; ++i) {
    const MessageItem& item = impl_->at(i);
    const qint64 id = item.message().id;
    MessagePaintState state;
    state.hovered = impl_->hover.id == id;
    state.focused = impl_->keyboardFocus && hasFocus() && currentId_ == id;
    if (state.hovered) state.hot = impl_->hover.hit;
    if (impl_->confirmed.id == id) state.confirmed = impl_->confirmed.hit;
    if (impl_->selection.id == id)
      state.selection = {impl_->selection.first(), impl_->selection.last()};
    if (impl_->find.active() && item.document() != nullptr) {
      state.matches = impl_->find.ranges(*item.document()->textDocument());
      if (impl_->find.currentPlace().message == i)
        state.currentMatch = impl_->find.currentPlace().ordinal;
    }
    state.phase = impl_->phase;
    painter.save();
    const QPointF origin(left, impl_->top(i) - value);
    painter.translate(origin);
    item.paint(painter, QRectF(event->rect()).translated(-origin), state);
    painter.restore();
  }
}

}  // namespace longhand::ui
