#pragma once
// Shared by the files of MarkdownDocument: what its blocks remember, and its distances in pixels.

#include <QByteArray>
#include <QTextFormat>

namespace longhand::ui {

/// Properties of the block formats.
enum BlockProperty {
  kMarker = QTextFormat::UserProperty + 1,  // QString
  kContainers,                              // QString of 'l' and 'q'
  kKind,                                    // int, MarkdownBlock::Kind
  kTight,                                   // bool
  kContinues,                               // bool
  kGuard,  // bool: the empty block that QTextDocument keeps before and after a table
};

inline constexpr int kParagraphSpace = 10;
inline constexpr int kTightSpace = 3;
inline constexpr int kListIndent = 26;
inline constexpr int kQuoteIndent = 18;
inline constexpr int kQuoteBar = 3;
inline constexpr int kCodePadding = 12;
inline constexpr int kCodeSpace = 12;
inline constexpr int kCodeTitle = 30;
inline constexpr int kRuleFontPixels = 6;

/// Of the first `depth` containers, in pixels.
inline int indentOf(const QByteArray& containers, qsizetype depth) {
  int indent = 0;
  for (qsizetype i = 0; i < depth; ++i) indent += containers[i] == 'q' ? kQuoteIndent : kListIndent;
  return indent;
}

inline int indentOf(const QByteArray& containers) {
  return indentOf(containers, containers.size());
}

}  // namespace longhand::ui
