#pragma once
// A QTextDocument that shows Markdown as it streams in.
//
//   MarkdownDocument document(theme);
//   document.setMarkdown(textSoFar);         // again for each update: only the changed tail is
//   rebuilt document.setWidth(600); document.paint(painter, clip, {});
//
// Parsed with md4c (CommonMark with tables, task lists, strikethrough, bare links). HTML is shown
// as the text it is, images by their description, links are never followed: nothing is loaded from
// anywhere. Every block of text is a QTextBlock of the document's root frame or of a table's cell;
// bullets, numbers, check boxes, quote bars and code boxes are painted by paint() and are no
// characters of the document.

#include <memory>
#include <vector>

#include <QAbstractTextDocumentLayout>
#include <QRectF>
#include <QString>
#include <QTextBlockFormat>
#include <QTextCharFormat>
#include <QTextDocument>

#include "ui/markdown/markdown_blocks.h"
#include "ui/style/theme.h"

class QPainter;
class QTextCursor;

namespace longhand::ui {

/// A fenced or indented code block, in the document's coordinates.
struct CodeBox {
  QRectF rect;        // with its title row
  QRectF buttonRect;  // where the copy button belongs
  QString language;
  int first = 0;  // positions in the document: of its text, and after it
  int last = 0;
};

class MarkdownDocument {
 public:
  explicit MarkdownDocument(const Theme& theme);
  ~MarkdownDocument();
  Q_DISABLE_COPY_MOVE(MarkdownDocument)

  /// Rebuilds from the first block that differs from the last call. Anything that cannot be shown
  /// as Markdown within bounds (a table of a million cells) is shown as plain text.
  void setMarkdown(const QString& markdown);
  /// The text as it is, line breaks kept.
  void setPlainText(const QString& text);

  void setWidth(double width);
  double width() const;
  double height() const;
  /// The width of the longest line, when nothing has to be broken.
  double idealWidth() const;

  QTextDocument* textDocument() const { return document_.get(); }

  /// Paints what `clip` (document coordinates) touches. `selections` go on top of the boxes.
  void paint(QPainter& painter, const QRectF& clip,
             const QVector<QAbstractTextDocumentLayout::Selection>& selections) const;

  /// Code boxes that `clip` touches, from top to bottom.
  std::vector<CodeBox> codeBoxes(const QRectF& clip) const;
  /// The code of a box, lines joined by '\n', without a last line break.
  QString codeText(const CodeBox& box) const;

  /// The characters between two positions of the document, as a person would type them: list
  /// markers included, table cells parted by tabs, no Unicode separators.
  QString plainText(int first, int last) const;
  QString plainText() const;

  /// Text position nearest to a point, or -1 when `exact` and no text is there.
  int positionAt(const QPointF& point, bool exact) const;
  /// The target of the link at a point; empty when there is none.
  QString linkAt(const QPointF& point) const;
  /// Where the character after `position` stands.
  QRectF cursorRect(int position) const;

  /// How many blocks the last setMarkdown() rebuilt (for tests).
  int rebuiltBlocks() const { return rebuiltBlocks_; }

 private:
  /// What is remembered of each MarkdownBlock shown.
  struct Shown {
    quint64 hash = 0;
    int position = 0;  // of its first character in the document
    MarkdownBlock::Kind kind = MarkdownBlock::Kind::kParagraph;
    bool firstLine = false;
    bool lastLine = false;
    QString language;
  };

  void rebuild(const MarkdownBlocks& blocks);
  void removeFrom(std::size_t first);
  void insertBlock(QTextCursor& cursor, const MarkdownBlock& block, bool first);
  void insertTable(QTextCursor& cursor, const MarkdownTable& table, int leftMargin);
  void insertRuns(QTextCursor& cursor, const MarkdownRuns& runs, const QTextCharFormat& base) const;
  QTextBlockFormat blockFormat(const MarkdownBlock& block, bool first) const;
  QTextCharFormat charFormat(const MarkdownBlock& block) const;
  std::size_t firstShownAt(double y) const;
  QRectF blockRect(int position) const;
  CodeBox makeCodeBox(std::size_t firstLine, std::size_t lastLine) const;
  void paintMarkers(QPainter& painter, const QRectF& clip) const;

  Theme theme_;
  std::unique_ptr<QTextDocument> document_;
  std::vector<Shown> shown_;
  int rebuiltBlocks_ = 0;
};

}  // namespace longhand::ui
