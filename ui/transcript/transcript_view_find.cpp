// Search and selection by program in the transcript.
#include <QScrollBar>

#include "ui/markdown/markdown_document.h"
#include "ui/transcript/transcript_view_p.h"

namespace longhand::ui {

void TranscriptView::Private::startFind(const QString& text) {
  find.start(text);
  for (int i = 0; i < count() && find.active(); ++i) find.countMessage(i, at(i).message());
}

/// Makes a match the current one and scrolls only as far as it takes to see it.
void TranscriptView::Private::goToMatch(int match) {
  if (match >= 0) {
    find.setCurrent(match);
    const TranscriptFind::Place place = find.currentPlace();
    followEnd = false;
    MessageItem& target = at(place.message);
    target.measure();
    touchFrom(place.message);
    computeTops();
    const auto ranges = find.ranges(*target.document()->textDocument());
    const auto ordinal = static_cast<std::size_t>(place.ordinal);
    if (ordinal < ranges.size()) {
      const QRectF line = target.document()->cursorRect(ranges[ordinal].first);
      const int y = top(place.message) + static_cast<int>(target.textOrigin().y() + line.top());
      const int value = view.verticalScrollBar()->value();
      const int height = view.viewport()->height();
      const bool visible = y >= value + 8 && y + line.height() + 40 <= value + height;
      anchorId = target.message().id;
      anchorOffset = top(place.message) - (visible ? value : y - height / 3);
    }
    relayout();
    rememberAnchor();
  }
  view.viewport()->update();
  emit view.findChanged(find.current(), find.total());
}

void TranscriptView::setFindText(const QString& text) {
  if (text == d_->find.needle()) return;
  d_->startFind(text);
  d_->goToMatch(d_->find.active()
                    ? d_->find.firstFrom(std::max(0, d_->indexAt(verticalScrollBar()->value())))
                    : -1);
}

void TranscriptView::findNext() {
  const int total = d_->find.total();
  d_->goToMatch(total == 0 ? -1 : (d_->find.current() + 1) % total);
}

void TranscriptView::findPrevious() {
  const int total = d_->find.total();
  const int current = d_->find.current();
  d_->goToMatch(total == 0 ? -1 : current <= 0 ? total - 1 : current - 1);
}

int TranscriptView::findCount() const { return d_->find.total(); }

int TranscriptView::findCurrent() const { return d_->find.current(); }

bool TranscriptView::hasSelection() const { return !d_->selection.empty(); }

QString TranscriptView::selectedText() const {
  MessageItem* item = d_->item(d_->selection.id);
  if (item == nullptr || d_->selection.empty()) return {};
  item->measure();
  return item->document()->plainText(d_->selection.first(), d_->selection.last());
}

void TranscriptView::clearSelection() {
  d_->selection = {};
  viewport()->update();
}

void TranscriptView::selectMessage(qint64 id) {
  MessageItem* item = d_->item(id);
  if (item == nullptr) return;
  item->measure();
  d_->selection = {id, 0, item->document()->textDocument()->characterCount() - 1};
  currentId_ = id;
  viewport()->update();
}

}  // namespace longhand::ui
