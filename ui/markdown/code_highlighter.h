#pragma once
// Colours code line by line: keywords, strings, comments, numbers. One small lexer whose tables are
// chosen by the language named at the fence; an unknown language stays plain.

#include <QString>

#include "ui/markdown/markdown_types.h"

namespace longhand::ui {

class CodeHighlighter {
 public:
  /// `language`: as after the fence ("python", "C++", "js"), case ignored.
  explicit CodeHighlighter(const QString& language);

  /// The next line. Comments and strings that run over lines are followed.
  MarkdownRuns highlight(const QString& line);

  struct Rules;

 private:
  const Rules* rules_ = nullptr;  // nullptr: plain
  QString openEnd_;               // what ends the comment or string of an earlier line
  unsigned openStyle_ = 0;
};

}  // namespace longhand::ui
