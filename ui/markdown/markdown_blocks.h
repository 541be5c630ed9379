#pragma once
// Markdown as a flat list of blocks: what md4c's tree of containers becomes before it is put into a
// QTextDocument. Flat, so that an update of a streamed text can start again at any line of a list
// or of a code block.

#include <QString>
#include <QStringList>

#include "ui/markdown/markdown_types.h"

namespace longhand::ui {

/// Never fails: text beyond the bounds (see the .cpp) comes back as parsePlainText() gives it.
MarkdownBlocks parseMarkdown(const QString& markdown);
/// One paragraph for each line of `text`.
MarkdownBlocks parsePlainText(const QString& text);

/// The text of each QTextBlock that the blocks become, in order (for searching without a document).
QStringList blockTexts(const MarkdownBlocks& blocks);

}  // namespace longhand::ui
