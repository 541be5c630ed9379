#include "ui/markdown/markdown_block_list.h"

#include <utility>

#include <QHash>

namespace longhand::ui {
namespace {

// A text block is laid out as a whole: 1 MB without a line break takes a second. Longer paragraphs
// are cut into pieces of this many characters.
constexpr qsizetype kMaxBlockCharacters = 6000;
// Blocks of one message; more is no text that anybody wrote.
constexpr std::size_t kMaxBlocks = 200000;

quint64 hashRuns(const MarkdownRuns& runs, std::size_t seed) {
  std::size_t hash = qHash(runs.size(), seed);
  for (const MarkdownRun& run : runs) {
    hash = qHash(run.text, hash + run.style);
    if (!run.link.isEmpty()) hash = qHash(run.link, hash + 1);
  }
  return hash;
}

quint64 hashBlock(const MarkdownBlock& block) {
  std::size_t hash = static_cast<std::size_t>(block.kind) * 64 +
                     static_cast<std::size_t>(block.level) * 8 + (block.isTight ? 1U : 0U) +
                     (block.firstLine ? 2U : 0U) + (block.lastLine ? 4U : 0U) +
                     (block.continues ? 1024U : 0U);
  hash = qHash(block.containers, hash);
  hash = qHash(block.marker, hash);
  hash = qHash(block.language, hash);
  hash = hashRuns(block.runs, hash);
  if (block.table) {
    hash = qHash(block.table->hasHeader, hash);
    for (const Qt::Alignment alignment : block.table->alignments) {
      hash = qHash(alignment.toInt(), hash);
    }
    for (const auto& row : block.table->rows) {
      hash = qHash(row.size(), hash);
      for (const MarkdownRuns& cell : row) hash = hashRuns(cell, hash);
    }
  }
  return hash;
}

/// Where to cut a run: after white space near the limit, never inside a surrogate pair.
qsizetype cutPosition(const QString& text, qsizetype limit) {
  for (qsizetype i = limit; i > limit - 200 && i > 0; --i) {
    if (text[i - 1].isSpace()) return i;
  }
  return text[limit].isLowSurrogate() ? limit - 1 : limit;
}

/// Pieces of at most kMaxBlockCharacters.
std::vector<MarkdownRuns> cut(MarkdownRuns runs) {
  std::vector<MarkdownRuns> pieces(1);
  qsizetype length = 0;
  for (MarkdownRun& run : runs) {
    while (length + run.text.size() > kMaxBlockCharacters) {
      const qsizetype at = cutPosition(run.text, kMaxBlockCharacters - length);
      MarkdownRun head = run;
      head.text.truncate(at);
      if (!head.text.isEmpty()) pieces.back().push_back(std::move(head));
      run.text.remove(0, at);
      pieces.emplace_back();
      length = 0;
    }
    length += run.text.size();
    if (!run.text.isEmpty()) pieces.back().push_back(std::move(run));
  }
  if (pieces.size() > 1 && pieces.back().empty()) pieces.pop_back();
  return pieces;
}

}  // namespace

QString sanitizedMarkdown(QString text) {
  for (QChar& c : text) {
    const char16_t u = c.unicode();
    if (u == 0x2029) {
      c = kMarkdownLineBreak;
    } else if (u == 0xfffc || (u >= 0xfdd0 && u <= 0xfdef) || (u < 0x20 && u != '\t')) {
      c = QChar::ReplacementCharacter;
    }
  }
  return text;
}

void appendMarkdownRun(MarkdownRuns& runs, const QString& text, unsigned style,
                       const QString& link) {
  if (text.isEmpty()) return;
  if (!runs.empty() && runs.back().style == style && runs.back().link == link) {
    runs.back().text += text;
  } else {
    runs.push_back({text, style, link});
  }
}

bool MarkdownBlockList::push(MarkdownBlock block) {
  qsizetype length = 0;
  for (const MarkdownRun& run : block.runs) length += run.text.size();
  if (length <= kMaxBlockCharacters) {
    if (blocks_.size() >= kMaxBlocks) return false;
    block.hash = hashBlock(block);
    blocks_.push_back(std::move(block));
    return true;
  }
  std::vector<MarkdownRuns> pieces = cut(std::move(block.runs));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (blocks_.size() >= kMaxBlocks) return false;
    MarkdownBlock piece = block;
    piece.runs = std::move(pieces[i]);
    if (i > 0) {
      piece.continues = true;
      piece.isTight = true;
      piece.marker.clear();
      piece.firstLine = false;
    }
    if (i + 1 < pieces.size()) piece.lastLine = false;
    piece.hash = hashBlock(piece);
    blocks_.push_back(std::move(piece));
  }
  return true;
}

MarkdownBlocks MarkdownBlockList::take() { return std::move(blocks_); }

}  // namespace longhand::ui
