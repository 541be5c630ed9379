#include "ui/markdown/markdown_document.h"

#include <algorithm>
#include <cmath>

#include <QFontMetricsF>
#include <QTextBlock>
#include <QTextCursor>
#include <QTextFrame>
#include <QTextLayout>
#include <QTextTable>

#include "ui/markdown/markdown_document_marks.h"

namespace longhand::ui {
namespace {

QString isolatedLines(QString text) {
  text.replace(QChar(QChar::LineSeparator), QLatin1Char('\n'));
  return text;
}

}  // namespace

MarkdownDocument::MarkdownDocument(const Theme& theme)
    : theme_(theme), document_(std::make_unique<QTextDocument>()) {
  document_->setUndoRedoEnabled(false);
  document_->setDocumentMargin(0);
  document_->setDefaultFont(theme_.textFont);
  QTextOption option = document_->defaultTextOption();
  option.setWrapMode(QTextOption::WrapAtWordBoundaryOrAnywhere);
  option.setTabStopDistance(4.0 *
                            QFontMetricsF(theme_.codeFont).horizontalAdvance(QLatin1Char(' ')));
  document_->setDefaultTextOption(option);
}

MarkdownDocument::~MarkdownDocument() = default;

void MarkdownDocument::setMarkdown(const QString& markdown) { rebuild(parseMarkdown(markdown)); }

void MarkdownDocument::setPlainText(const QString& text) { rebuild(parsePlainText(text)); }

void MarkdownDocument::setWidth(double width) {
  if (document_->textWidth() != width) document_->setTextWidth(width);
}

double MarkdownDocument::width() const { return document_->textWidth(); }

double MarkdownDocument::height() const {
  // The layout leaves out the last block's margin, in which a code box ends.
  const bool endsInCode = !shown_.empty() && shown_.back().kind == MarkdownBlock::Kind::kCodeLine;
  return document_->size().height() + (endsInCode ? kCodePadding : 0);
}

double MarkdownDocument::idealWidth() const { return document_->idealWidth(); }

// --- Building -----------------------------------------------------------------------------------

void MarkdownDocument::rebuild(const MarkdownBlocks& blocks) {
  std::size_t same = 0;
  while (same < shown_.size() && same < blocks.size() && shown_[same].hash == blocks[same].hash) {
    ++same;
  }
  rebuiltBlocks_ = static_cast<int>(blocks.size() - same);
  if (same == shown_.size() && same == blocks.size()) return;

  QTextCursor cursor(document_.get());
  cursor.beginEditBlock();
  removeFrom(same);
  if (same == 0) {
    // The layout ignores the margin above the first block.
    QTextFrameFormat root = document_->rootFrame()->frameFormat();
    const bool code = !blocks.empty() && blocks[0].kind == MarkdownBlock::Kind::kCodeLine;
    root.setTopMargin(code ? kCodeTitle : 0);
    document_->rootFrame()->setFrameFormat(root);
  }
  cursor.movePosition(QTextCursor::End);
  for (std::size_t i = same; i < blocks.size(); ++i) {
    const MarkdownBlock& block = blocks[i];
    insertBlock(cursor, block, i == 0);
    shown_[i].hash = block.hash;
  }
  cursor.endEditBlock();
}

/// Leaves the blocks before `first` as they were built.
void MarkdownDocument::removeFrom(std::size_t first) {
  if (first >= shown_.size()) return;
  QTextCursor cursor(document_.get());
  QTextBlockFormat kept;
  if (first > 0) kept = document_->findBlock(shown_[first].position - 1).blockFormat();
  cursor.setPosition(first > 0 ? shown_[first].position - 1 : 0);
  cursor.movePosition(QTextCursor::End, QTextCursor::KeepAnchor);
  cursor.removeSelectedText();
  // Joining an empty block with the one behind it takes the latter's format.
  if (cursor.blockFormat() != kept) cursor.setBlockFormat(kept);
  if (first == 0) cursor.setBlockCharFormat({});
  shown_.resize(first);
}

QTextBlockFormat MarkdownDocument::blockFormat(const MarkdownBlock& block, bool first) const {
  QTextBlockFormat format;
  const int indent = indentOf(block.containers);
  format.setProperty(kKind, static_cast<int>(block.kind));
  if (!block.containers.isEmpty()) {
    format.setProperty(kContainers, QString::fromLatin1(block.containers));
  }
  if (!block.marker.isEmpty()) format.setProperty(kMarker, block.marker);
  if (block.isTight) format.setProperty(kTight, true);
  if (block.continues) format.setProperty(kContinues, true);
  format.setLeftMargin(indent);

  int above = block.isTight ? (block.marker.isEmpty() ? 0 : kTightSpace) : kParagraphSpace;
  switch (block.kind) {
    case MarkdownBlock::Kind::kHeading:
      above = block.level <= 2 ? 22 : 16;
      format.setHeadingLevel(block.level);
      break;
    case MarkdownBlock::Kind::kCodeLine:
      format.setLeftMargin(indent + kCodePadding);
      format.setRightMargin(kCodePadding);
      above = block.firstLine ? kCodeSpace + kCodeTitle : 0;
      if (block.lastLine) format.setBottomMargin(kCodePadding + kCodeSpace);
      break;
    case MarkdownBlock::Kind::kParagraph:
    case MarkdownBlock::Kind::kRule:
    case MarkdownBlock::Kind::kTable:
      break;
  }
  format.setTopMargin(first ? 0 : above);
  return format;
}

QTextCharFormat MarkdownDocument::charFormat(const MarkdownBlock& block) const {
  QTextCharFormat format;
  if (block.kind == MarkdownBlock::Kind::kCodeLine) {
    format.setFont(theme_.codeFont);
  } else if (block.kind == MarkdownBlock::Kind::kRule) {
    QFont font = theme_.textFont;
    font.setPixelSize(kRuleFontPixels);
    format.setFont(font);
  } else if (block.kind == MarkdownBlock::Kind::kHeading) {
    constexpr double kScales[] = {1.5, 1.3, 1.15, 1.0, 1.0, 0.93};
    QFont font = theme_.textFont;
    const double scale = kScales[std::clamp(block.level, 1, 6) - 1];
    font.setPixelSize(static_cast<int>(std::lround(font.pixelSize() * scale)));
    font.setWeight(QFont::DemiBold);
    format.setFont(font);
  }
  return format;
}

void MarkdownDocument::insertBlock(QTextCursor& cursor, const MarkdownBlock& block, bool first) {
  QTextBlockFormat format = blockFormat(block, first);
  const QTextCharFormat base = charFormat(block);
  if (block.table) {
    format = {};
    format.setProperty(kGuard, true);
  }
  if (first) {
    cursor.setBlockFormat(format);
    cursor.setBlockCharFormat(base);
  } else {
    cursor.insertBlock(format, base);
  }
  shown_.push_back(
      {0, cursor.position(), block.kind, block.firstLine, block.lastLine, block.language});
  if (block.table) {
    insertTable(cursor, *block.table, indentOf(block.containers));
    cursor.movePosition(QTextCursor::End);
    cursor.setBlockFormat(format);
  } else {
    insertRuns(cursor, block.runs, base);
  }
}

void MarkdownDocument::insertTable(QTextCursor& cursor, const MarkdownTable& table,
                                   int leftMargin) {
  const int columns = std::max(1, static_cast<int>(table.alignments.size()));
  const int rows = std::max(1, static_cast<int>(table.rows.size()));
  QTextTableFormat format;
  format.setBorderCollapse(true);
  format.setBorder(1);
  format.setBorderBrush(theme_.colors.border);
  format.setBorderStyle(QTextFrameFormat::BorderStyle_Solid);
  format.setCellPadding(7);
  format.setCellSpacing(0);
  format.setHeaderRowCount(table.hasHeader ? 1 : 0);
  format.setLeftMargin(leftMargin);
  format.setTopMargin(table.hasHeader ? kCodeSpace : 0);
  format.setBottomMargin(kCodeSpace);
  QTextTable* shown = cursor.insertTable(rows, columns, format);
  for (int row = 0; row < static_cast<int>(table.rows.size()); ++row) {
    const auto& cells = table.rows[static_cast<std::size_t>(row)];
    for (int column = 0; column < columns; ++column) {
      QTextTableCell cell = shown->cellAt(row, column);
      QTextCharFormat base;
      if (row == 0 && table.hasHeader) {
        QTextTableCellFormat header;
        header.setBackground(theme_.colors.codeBox);
        cell.setFormat(header);
        base.setFontWeight(QFont::DemiBold);
      }
      QTextCursor inside = cell.firstCursorPosition();
      const Qt::Alignment alignment = table.alignments[static_cast<std::size_t>(column)];
      if (alignment != Qt::AlignLeft) {
        QTextBlockFormat aligned;
        aligned.setAlignment(alignment);
        inside.setBlockFormat(aligned);
      }
      if (static_cast<std::size_t>(column) < cells.size()) {
        insertRuns(inside, cells[static_cast<std::size_t>(column)], base);
      }
    }
  }
}

void MarkdownDocument::insertRuns(QTextCursor& cursor, const MarkdownRuns& runs,
                                  const QTextCharFormat& base) const {
  const ThemeColors& colors = theme_.colors;
  for (const MarkdownRun& run : runs) {
    QTextCharFormat format = base;
    if ((run.style & MarkdownRun::kCode) != 0) {
      QFont font = theme_.codeFont;
      if (base.hasProperty(QTextFormat::FontPixelSize)) {
        font.setPixelSize(static_cast<int>(std::lround(base.font().pixelSize() * 0.9)));
      }
      font.setWeight(static_cast<QFont::Weight>(
          base.hasProperty(QTextFormat::FontWeight) ? base.fontWeight() : int{QFont::Normal}));
      format.setFont(font);
      format.setBackground(colors.codeInline);
    }
    if ((run.style & MarkdownRun::kBold) != 0) format.setFontWeight(QFont::Bold);
    if ((run.style & MarkdownRun::kItalic) != 0) format.setFontItalic(true);
    if ((run.style & MarkdownRun::kStrike) != 0) format.setFontStrikeOut(true);
    if ((run.style & MarkdownRun::kMuted) != 0) format.setForeground(colors.textMuted);
    if ((run.style & MarkdownRun::kKeyword) != 0) format.setForeground(colors.codeKeyword);
    if ((run.style & MarkdownRun::kString) != 0) format.setForeground(colors.codeString);
    if ((run.style & MarkdownRun::kComment) != 0) format.setForeground(colors.codeComment);
    if ((run.style & MarkdownRun::kNumber) != 0) format.setForeground(colors.codeNumber);
    if ((run.style & MarkdownRun::kLink) != 0) {
      format.setForeground(colors.link);
      format.setFontUnderline(true);
      format.setAnchor(true);
      format.setAnchorHref(run.link);
      format.setToolTip(run.link);
    }
    cursor.insertText(run.text, format);
  }
}

// --- Geometry -----------------------------------------------------------------------------------

QRectF MarkdownDocument::blockRect(int position) const {
  return document_->documentLayout()->blockBoundingRect(document_->findBlock(position));
}

/// The last block that begins at or above `y`.
std::size_t MarkdownDocument::firstShownAt(double y) const {
  const auto above = std::partition_point(shown_.begin(), shown_.end(), [&](const Shown& shown) {
    return blockRect(shown.position).top() <= y;
  });
  return above == shown_.begin() ? 0 : static_cast<std::size_t>(above - shown_.begin()) - 1;
}

CodeBox MarkdownDocument::makeCodeBox(std::size_t firstLine, std::size_t lastLine) const {
  CodeBox box;
  const QTextBlock last = document_->findBlock(shown_[lastLine].position);
  box.first = shown_[firstLine].position;
  box.last = last.position() + last.length() - 1;
  box.language = shown_[firstLine].language;
  const QTextBlock begin = document_->findBlock(box.first);
  const double left = begin.blockFormat().leftMargin() - kCodePadding;
  const double top = blockRect(box.first).top() - kCodeTitle;
  const double bottom = blockRect(last.position()).bottom() + kCodePadding;
  box.rect = QRectF(left, top, document_->textWidth() - left, bottom - top);
  box.buttonRect = QRectF(box.rect.right() - 28, top + 3, 24, 24);
  return box;
}

std::vector<CodeBox> MarkdownDocument::codeBoxes(const QRectF& clip) const {
  std::vector<CodeBox> boxes;
  if (shown_.empty()) return boxes;
  std::size_t i = firstShownAt(clip.top());
  while (i > 0 && shown_[i].kind == MarkdownBlock::Kind::kCodeLine && !shown_[i].firstLine) --i;
  while (i < shown_.size()) {
    if (blockRect(shown_[i].position).top() - kCodeTitle > clip.bottom()) break;
    if (shown_[i].kind != MarkdownBlock::Kind::kCodeLine) {
      ++i;
      continue;
    }
    std::size_t last = i;
    while (last + 1 < shown_.size() && !shown_[last].lastLine) ++last;
    boxes.push_back(makeCodeBox(i, last));
    i = last + 1;
  }
  return boxes;
}

int MarkdownDocument::positionAt(const QPointF& point, bool exact) const {
  return document_->documentLayout()->hitTest(point, exact ? Qt::ExactHit : Qt::FuzzyHit);
}

QString MarkdownDocument::linkAt(const QPointF& point) const {
  return document_->documentLayout()->anchorAt(point);
}

QRectF MarkdownDocument::cursorRect(int position) const {
  const QTextBlock block = document_->findBlock(position);
  if (!block.isValid()) return {};
  const QRectF rect = blockRect(position);
  const QTextLayout* layout = block.layout();
  const int inside = position - block.position();
  const QTextLine line = layout->lineForTextPosition(inside);
  if (!line.isValid()) return QRectF(rect.topLeft(), QSizeF(1, rect.height()));
  const QTextLine top = layout->lineAt(0);
  return {rect.left() + line.cursorToX(inside) - top.x(), rect.top() + line.y() - top.y(), 1,
          line.height()};
}

// --- Text ---------------------------------------------------------------------------------------

QString MarkdownDocument::plainText() const {
  return plainText(0, document_->characterCount() - 1);
}

QString MarkdownDocument::plainText(int first, int last) const {
  QString result;
  bool started = false;
  for (QTextBlock block = document_->findBlock(first); block.isValid() && block.position() <= last;
       block = block.next()) {
    const QTextBlockFormat format = block.blockFormat();
    if (format.boolProperty(kGuard)) continue;
    QTextCursor cursor(block);
    const QTextTable* table = cursor.currentTable();
    const QTextTableCell cell = table != nullptr ? table->cellAt(cursor) : QTextTableCell();
    if (started && !format.boolProperty(kContinues)) {
      const bool sameRow = table != nullptr && cell.column() > 0;
      const bool sameTable = table != nullptr && cell.row() > 0;
      result += sameRow                                    ? QStringLiteral("\t")
                : sameTable || format.boolProperty(kTight) ? QStringLiteral("\n")
                                                           : QStringLiteral("\n\n");
    }
    started = true;
    const int from = std::max(first, block.position()) - block.position();
    const int to = std::min(last - block.position(), block.length() - 1);
    const QString marker = format.stringProperty(kMarker);
    if (from == 0 && !marker.isEmpty() && to > 0) {
      const qsizetype depth = format.stringProperty(kContainers).count(QLatin1Char('l'));
      result += QString(std::max<qsizetype>(0, depth - 1) * 2, QLatin1Char(' ')) + marker +
                QLatin1Char(' ');
    }
    if (format.intProperty(kKind) == static_cast<int>(MarkdownBlock::Kind::kRule) &&
        table == nullptr) {
      result += QStringLiteral("---");
    }
    result += isolatedLines(block.text().mid(from, to - from));
  }
  return result;
}

QString MarkdownDocument::codeText(const CodeBox& box) const {
  return plainText(box.first, box.last);
}

}  // namespace longhand::ui
