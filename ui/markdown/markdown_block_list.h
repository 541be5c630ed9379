#pragma once
// What parsing Markdown and plain text share: runs are cleaned and joined, blocks are collected
// with their hashes, and those too long to be laid out as a whole are cut.

#include <vector>

#include <QChar>
#include <QString>

#include "ui/markdown/markdown_types.h"

namespace longhand::ui {

inline constexpr QChar kMarkdownLineBreak(QChar::LineSeparator);

/// Characters that mean structure to QTextDocument become harmless.
QString sanitizedMarkdown(QString text);
/// Joins the run before where style and link are the same; an empty text adds nothing.
void appendMarkdownRun(MarkdownRuns& runs, const QString& text, unsigned style,
                       const QString& link);

class MarkdownBlockList {
 public:
  /// Sets the block's hash. False: there are too many, the text is no text that anybody wrote.
  bool push(MarkdownBlock block);
  MarkdownBlocks take();

 private:
  MarkdownBlocks blocks_;
};

}  // namespace longhand::ui
