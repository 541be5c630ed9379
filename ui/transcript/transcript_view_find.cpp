// Search and selection by program in the transcript.
#include <QScrollBar>

#include "ui/markdown/markdown_document.h"
#include "ui/transcript/transcript_view_impl.h"

namespace longhand::ui {

void TranscriptView::Impl::startFind(const QString& text) {
  find.start(text);
  for (int i = 0; i < count() && find.active(); ++i) find.countMessage(i, at(i).message());
}

/// Makes a match the current one and scrolls only as far as it takes to see it.
void TranscriptView::Impl::goToMatch(int match) {
  if (match >= 0) {
    find.setCurrent(match);
    const TranscriptFind::Place place = find.currentPlace();
    followsEnd = false;
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
  if (text == impl_->find.needle()) return;
  impl_->startFind(text);
  impl_->goToMatch(impl_->find.active() ? impl_->find.firstFrom(std::max(
                                              0, impl_->indexAt(verticalScrollBar()->value())))
                                        : -1);
}

void TranscriptView::findNext() {
  const int total = impl_->find.total();
  impl_->goToMatch(total == 0 ? -1 : (impl_->find.current() + 1) % total);
}

void TranscriptView::findPrevious() {
  const int total = impl_->find.total();
  const int current = impl_->find.current();
  impl_->goToMatch(total == 0 ? -1 : current <= 0 ? total - 1 : current - 1);
}

int TranscriptView::findCount() const { return impl_->find.total(); }

int TranscriptView::findCurrent() const { return impl_->find.current(); }

bool TranscriptView::hasSelection() const { return !impl_->selection.empty(); }

QString TranscriptView::selectedText() const {
  MessageItem* item = impl_->item(impl_->selection.id);
  if (item == nullptr || impl_->selection.empty()) return {};
  item->measure();
  return item->document()->plainText(impl_->selection.first(), impl_->selection.last());
}

void TranscriptView::clearSelection() {
  impl_->selection = {};
  viewport()->update();
}

void TranscriptView::selectMessage(qint64 id) {
  MessageItem* item = impl_->item(id);
  if (item == nullptr) return;
  item->measure();
  impl_->selection = {id, 0, item->document()->textDocument()->characterCount() - 1};
  currentId_ = id;
  viewport()->update();
}

}  // namespace longhand::ui
