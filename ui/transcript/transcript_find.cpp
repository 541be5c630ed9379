#include "ui/transcript/transcript_find.h"

#include <numeric>

#include <QTextBlock>
#include <QTextDocument>

#include "ui/markdown/markdown_blocks.h"

namespace longhand::ui {

void TranscriptFind::start(const QString& needle) {
  needle_ = needle;
  counts_.clear();
  current_ = {};
}

void TranscriptFind::countMessage(int index, const TranscriptMessage& message) {
  int count = 0;
  if (active()) {
    const bool markdown = message.role == TranscriptRole::kAssistant;
    for (const QString& text :
         blockTexts(markdown ? parseMarkdown(message.text) : parsePlainText(message.text))) {
      count += static_cast<int>(text.count(needle_, Qt::CaseInsensitive));
    }
  }
  const auto at = static_cast<std::size_t>(index);
  if (at >= counts_.size()) counts_.resize(at + 1, 0);
  counts_[at] = count;
  if (current_.message == index && current_.ordinal >= count) current_ = {};
}

void TranscriptFind::removeMessage(int index) {
  const auto at = static_cast<std::size_t>(index);
  if (at < counts_.size()) counts_.erase(counts_.begin() + index);
  if (current_.message == index) current_ = {};
  if (current_.message > index) --current_.message;
}

int TranscriptFind::total() const { return std::accumulate(counts_.begin(), counts_.end(), 0); }

int TranscriptFind::current() const {
  if (current_.message < 0) return -1;
  return std::accumulate(counts_.begin(), counts_.begin() + current_.message, current_.ordinal);
}

void TranscriptFind::setCurrent(int match) {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (match < counts_[i]) {
      current_ = {static_cast<int>(i), match};
      return;
    }
    match -= counts_[i];
  }
  current_ = {};
}

int TranscriptFind::firstFrom(int index) const {
  if (total() == 0) return -1;
  const int known = static_cast<int>(counts_.size());
  const int before = std::accumulate(counts_.begin(), counts_.begin() + std::min(index, known), 0);
  return before < total() ? before : 0;
}

std::vector<std::pair<int, int>> TranscriptFind::ranges(const QTextDocument& document) const {
  std::vector<std::pair<int, int>> found;
  if (!active()) return found;
  const int length = static_cast<int>(needle_.size());
  for (QTextBlock block = document.begin(); block.isValid(); block = block.next()) {
    const QString text = block.text();
    // As QString::count() does: matches may overlap.
    for (qsizetype at = text.indexOf(needle_, 0, Qt::CaseInsensitive); at >= 0;
         at = text.indexOf(needle_, at + 1, Qt::CaseInsensitive)) {
      const int first = block.position() + static_cast<int>(at);
      found.emplace_back(first, first + length);
    }
  }
  return found;
}

}  // namespace longhand::ui
