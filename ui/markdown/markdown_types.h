#pragma once
// What Markdown is made of: runs of text in one style, and blocks of runs. A block is a paragraph,
// a heading, one line of code, a rule or a whole table; it knows its list marker and how deep it
// stands in lists and quotes.

#include <optional>
#include <vector>

#include <QByteArray>
#include <QString>

namespace longhand::ui {

/// A stretch of text in one style.
struct MarkdownRun {
  enum Style : unsigned {
    kPlain = 0,
    kBold = 1,
    kItalic = 2,
    kStrike = 4,
    kCode = 8,  // inline code
    kLink = 16,
    kMuted = 32,    // description of an image
    kKeyword = 64,  // of a code line, as the next three
    kString = 128,
    kComment = 256,
    kNumber = 512,
  };
  QString text;  // U+2028 for a line break
  unsigned style = kPlain;
  QString link;
};

using MarkdownRuns = std::vector<MarkdownRun>;

struct MarkdownTable {
  std::vector<Qt::Alignment> alignments;        // [columns]
  std::vector<std::vector<MarkdownRuns>> rows;  // [rows][columns]
  bool hasHeader = true;                        // the first row; false: goes on from a table above
};

struct MarkdownBlock {
  enum class Kind { kParagraph, kHeading, kCodeLine, kRule, kTable };
  Kind kind = Kind::kParagraph;
  int level = 0;           // heading: 1 to 6
  QByteArray containers;   // 'l' list item, 'q' quote, from the outside; at most kMaxContainers
  QString marker;          // of the first block of a list item: "1.", a bullet, or a check box
  bool isTight = false;    // no space above (tight list, next line of code)
  bool continues = false;  // goes on where the block before stopped, which was too long for one
  bool firstLine = false;  // code: first and last line of its box
  bool lastLine = false;
  QString language;  // code: on the first line
  MarkdownRuns runs;
  std::optional<MarkdownTable> table;
  quint64 hash = 0;  // of everything above
};

using MarkdownBlocks = std::vector<MarkdownBlock>;

/// Deeper nesting is shown at this depth.
inline constexpr int kMaxContainers = 10;

/// Markers that are drawn as shapes instead of text.
inline constexpr char16_t kBulletMarker = u'\u2022';
inline constexpr char16_t kTaskOpenMarker = u'\u2610';
inline constexpr char16_t kTaskDoneMarker = u'\u2611';

}  // namespace longhand::ui
