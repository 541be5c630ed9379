#include "ui/transcript/transcript_view.h"

#include <algorithm>
#include <cmath>

#include <QPaintEvent>
#include <QPainter>
#include <QScrollBar>

#include "ui/markdown/markdown_document.h"
#include "ui/style/icons.h"
#include "ui/transcript/transcript_accessible.h"
#include "ui/transcript/transcript_view_p.h"

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

MessageItem* TranscriptView::Private::item(qint64 id) const {
  const auto found = indexes.constFind(id);
  return found == indexes.cend() ? nullptr : &at(*found);
}

double TranscriptView::Private::columnWidth() const {
  return std::max(120,
                  std::min(theme.metrics.columnWidth, view.viewport()->width() - 2 * kPadding));
}

double TranscriptView::Private::columnLeft() const {
  return std::floor((view.viewport()->width() - columnWidth()) / 2);
}

int TranscriptView::Private::indexAt(int contentY) const {
  if (items.empty()) return -1;
  const auto below = std::upper_bound(tops.begin(), tops.end() - 1, contentY);
  return std::max(0, static_cast<int>(below - tops.begin()) - 1);
}

void TranscriptView::Private::touchFrom(int index) { dirtyFrom = std::min(dirtyFrom, index); }

void TranscriptView::Private::computeTops() {
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

void TranscriptView::Private::setScrollValue(int value) {
  QScrollBar* bar = view.verticalScrollBar();
  const int viewport = view.viewport()->height();
  bar->setRange(0, std::max(0, contentHeight() - viewport));
  bar->setPageStep(viewport);
  bar->setSingleStep(3 * theme.textFont.pixelSize());
  bar->setValue(value);
}

void TranscriptView::Private::relayout() {
  if (inLayout) return;
  inLayout = true;
  QScrollBar* bar = view.verticalScrollBar();
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    computeTops();
    int value = bar->value();
    if (followEnd) {
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
  inLayout = false;
  updateDownButton();
  updateAnimation();
  view.viewport()->update();
}

/// What stays in place when heights change: the first message in sight whose height is exact.
void TranscriptView::Private::rememberAnchor() {
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

void TranscriptView::Private::dropOldDocuments() {
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

void TranscriptView::Private::rebuildIndex(int from) {
  if (from == 0) indexes.clear();
  for (int i = from; i < count(); ++i) indexes.insert(at(i).message().id, i);
}

void TranscriptView::Private::layoutAll(bool newTheme) {
  const double width = columnWidth();
  for (const auto& each : items) each->setLayout(theme, width, newTheme);
  touchFrom(0);
}

void TranscriptView::Private::messageChanged(int index) {
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

void TranscriptView::Private::updateDownButton() {
  const bool end = view.isAtEnd();
  downButton->setVisible(!end);
  downButton->move((view.viewport()->width() - kDownButton) / 2,
                   view.viewport()->height() - kDownButton - 12);
  if (end != wasAtEnd) {
    wasAtEnd = end;
    emit view.atEndChanged(end);
  }
}

void TranscriptView::Private::updateAnimation() {
  const bool waiting = !items.empty() && items.back()->message().state == MessageState::kWaiting;
  if (waiting && !animation.isActive()) animation.start(kAnimationMs);
  if (!waiting) animation.stop();
}

/// Screen readers hear of the newest message when it is complete.
void TranscriptView::Private::announce() {
  if (items.empty()) {
    view.setAccessibleDescription({});
    return;
  }
  const TranscriptMessage& last = items.back()->message();
  if (last.state == MessageState::kStreaming || last.state == MessageState::kWaiting) return;
  view.setAccessibleDescription(tr("%n message(s). Last: ", nullptr, count()) +
                                items.back()->accessibleName().left(2000));
}

// --- Construction -------------------------------------------------------------------------------

TranscriptView::TranscriptView(const Theme& theme, QWidget* parent)
    : QAbstractScrollArea(parent), d_(std::make_unique<Private>(*this)) {
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

  d_->downButton = new QToolButton(viewport());
  d_->downButton->setObjectName(QStringLiteral("scrollToEndButton"));
  d_->downButton->setToolTip(tr("Go to the end"));
  d_->downButton->setAccessibleName(tr("Go to the end"));
  d_->downButton->setFixedSize(kDownButton, kDownButton);
  d_->downButton->setCursor(Qt::PointingHandCursor);
  d_->downButton->setFocusPolicy(Qt::NoFocus);
  d_->downButton->hide();
  connect(d_->downButton, &QToolButton::clicked, this, &TranscriptView::scrollToEnd);

  d_->confirmTimer.setSingleShot(true);
  d_->confirmTimer.setInterval(1500);
  connect(&d_->confirmTimer, &QTimer::timeout, this, [this] {
    d_->confirmed = {};
    viewport()->update();
  });
  connect(&d_->animation, &QTimer::timeout, this, [this] {
    ++d_->phase;
    viewport()->update();
  });
  d_->autoScroll.setInterval(30);
  connect(&d_->autoScroll, &QTimer::timeout, this, [this] {
    verticalScrollBar()->setValue(verticalScrollBar()->value() + d_->autoScrollStep);
    d_->extendSelection(d_->lastDragPoint);
  });
  setTheme(theme);
}

TranscriptView::~TranscriptView() = default;

void TranscriptView::setTheme(const Theme& theme) {
  d_->theme = theme;
  QPalette ground = palette();  // shines through beside the scroll bar
  ground.setColor(QPalette::Window, theme.colors.surface);
  setPalette(ground);
  setAutoFillBackground(true);
  d_->downButton->setIcon(makeIcon(IconKind::kDown, theme.colors.text));
  d_->downButton->setStyleSheet(
      QStringLiteral("QToolButton { background: %1; border: 1px solid %2; border-radius: %3px; }"
                     "QToolButton:hover { background: %4; }")
          .arg(theme.colors.raised.name(), theme.colors.border.name())
          .arg(kDownButton / 2)
          .arg(theme.colors.hover.name()));
  if (!d_->followEnd) d_->rememberAnchor();
  d_->layoutAll(true);
  d_->relayout();
}

// --- Messages -----------------------------------------------------------------------------------

void TranscriptView::setMessages(const QVector<TranscriptMessage>& messages) {
  d_->items.clear();
  d_->selection = {};
  d_->hover = {};
  d_->pressed = {};
  d_->confirmed = {};
  currentId_ = 0;
  d_->items.reserve(static_cast<std::size_t>(messages.size()));
  for (const TranscriptMessage& each : messages) {
    d_->items.push_back(std::make_unique<MessageItem>(each));
  }
  d_->rebuildIndex(0);
  d_->dirtyFrom = 0;
  d_->layoutAll(true);
  d_->followEnd = true;
  if (d_->find.active()) {
    d_->startFind(d_->find.needle());
    emit findChanged(d_->find.current(), d_->find.total());
  }
  d_->relayout();
  d_->announce();
}

void TranscriptView::appendMessage(const TranscriptMessage& message) {
  if (contains(message.id)) {
    updateMessage(message);
    return;
  }
  const int index = d_->count();
  d_->items.push_back(std::make_unique<MessageItem>(message));
  d_->items.back()->setLayout(d_->theme, d_->columnWidth(), true);
  d_->rebuildIndex(index);
  // The padding below the last message moves.
  d_->touchFrom(std::max(0, index - 1));
  d_->messageChanged(std::max(0, index));
  d_->announce();
}

void TranscriptView::updateMessage(const TranscriptMessage& message) {
  const int index = indexOf(message.id);
  if (index < 0) {
    appendMessage(message);
    return;
  }
  d_->at(index).setMessage(message);
  d_->messageChanged(index);
  if (index + 1 == d_->count()) d_->announce();
}

void TranscriptView::setMessageText(qint64 id, const QString& text) {
  const int index = indexOf(id);
  if (index < 0) return;
  TranscriptMessage changed = d_->at(index).message();
  changed.text = text;
  changed.state = MessageState::kStreaming;
  d_->at(index).setMessage(changed);
  d_->messageChanged(index);
}

void TranscriptView::removeMessage(qint64 id) {
  const int index = indexOf(id);
  if (index < 0) return;
  d_->items.erase(d_->items.begin() + index);
  d_->indexes.clear();
  d_->rebuildIndex(0);
  d_->dirtyFrom = 0;
  if (d_->selection.id == id) d_->selection = {};
  if (d_->hover.id == id) d_->hover = {};
  if (currentId_ == id) currentId_ = 0;
  if (d_->find.active()) {
    d_->find.removeMessage(index);
    emit findChanged(d_->find.current(), d_->find.total());
  }
  d_->relayout();
  d_->announce();
}

void TranscriptView::clear() { setMessages({}); }

int TranscriptView::messageCount() const { return d_->count(); }

const TranscriptMessage& TranscriptView::message(int index) const {
  return d_->at(index).message();
}

int TranscriptView::indexOf(qint64 id) const { return d_->indexes.value(id, -1); }

QString TranscriptView::messageDescription(int index) const {
  return d_->at(index).accessibleName();
}

// --- Scrolling ----------------------------------------------------------------------------------

void TranscriptView::scrollToMessage(qint64 id) {
  const int index = indexOf(id);
  if (index < 0) return;
  d_->followEnd = false;
  d_->anchorId = id;
  d_->anchorOffset = 0;
  d_->relayout();
  d_->followEnd = isAtEnd();
}

void TranscriptView::scrollToEnd() {
  d_->followEnd = true;
  d_->relayout();
}

bool TranscriptView::isAtEnd() const {
  return verticalScrollBar()->value() >= verticalScrollBar()->maximum() - kAtEnd;
}

void TranscriptView::scrollContentsBy(int, int) {
  if (d_->inLayout) return;
  d_->followEnd = isAtEnd();
  d_->rememberAnchor();
  d_->relayout();
}

void TranscriptView::resizeEvent(QResizeEvent* event) {
  QAbstractScrollArea::resizeEvent(event);
  d_->layoutAll(false);
  d_->relayout();
}

QRect TranscriptView::messageRect(int index) const {
  const int top = d_->top(index) - verticalScrollBar()->value();
  return {static_cast<int>(d_->columnLeft()), top, static_cast<int>(d_->columnWidth()),
          static_cast<int>(d_->at(index).height())};
}

int TranscriptView::liveDocuments() const {
  return static_cast<int>(std::count_if(d_->items.begin(), d_->items.end(),
                                        [](const auto& item) { return item->hasDocument(); }));
}

// --- Painting -----------------------------------------------------------------------------------

void TranscriptView::paintEvent(QPaintEvent* event) {
  QPainter painter(viewport());
  painter.fillRect(event->rect(), d_->theme.colors.surface);
  const int value = verticalScrollBar()->value();
  const int bottom = value + event->rect().bottom() + 1;
  const double left = d_->columnLeft();
  for (int i = d_->indexAt(value + event->rect().top());
       i >= 0 && i < d_->count() && d_->top(i) < bottom; ++i) {
    const MessageItem& item = d_->at(i);
    const qint64 id = item.message().id;
    MessagePaintState state;
    state.hovered = d_->hover.id == id;
    state.focused = d_->keyboardFocus && hasFocus() && currentId_ == id;
    if (state.hovered) state.hot = d_->hover.hit;
    if (d_->confirmed.id == id) state.confirmed = d_->confirmed.hit;
    if (d_->selection.id == id) state.selection = {d_->selection.first(), d_->selection.last()};
    if (d_->find.active() && item.document() != nullptr) {
      state.matches = d_->find.ranges(*item.document()->textDocument());
      if (d_->find.currentPlace().message == i)
        state.currentMatch = d_->find.currentPlace().ordinal;
    }
    state.phase = d_->phase;
    painter.save();
    const QPointF origin(left, d_->top(i) - value);
    painter.translate(origin);
    item.paint(painter, QRectF(event->rect()).translated(-origin), state);
    painter.restore();
  }
}

}  // namespace longhand::ui
