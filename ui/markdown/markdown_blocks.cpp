#include "ui/markdown/markdown_blocks.h"

#include <md4c.h>

#include <string_view>
#include <utility>

#include "ui/markdown/code_highlighter.h"
#include "ui/markdown/markdown_block_list.h"
#include "ui/markdown/markdown_entities.h"

namespace longhand::ui {
namespace {

// md4c pads each row of a table to the width of its header, so that 100 KB can ask for 10^8 cells.
constexpr qsizetype kMaxTableCells = 20000;
constexpr std::size_t kMaxTableColumns = 64;
// QTextTable needs time with the square of its cells (20,000: a minute). Longer tables become
// several, one below the other.
constexpr std::size_t kMaxCellsOfOneTable = 400;
Qt::Alignment cellAlignment(MD_ALIGN align) {
  switch (align) {
    case MD_ALIGN_CENTER:
      return Qt::AlignHCenter;
    case MD_ALIGN_RIGHT:
      return Qt::AlignRight;
    case MD_ALIGN_LEFT:
    case MD_ALIGN_DEFAULT:
      break;
  }
  return Qt::AlignLeft;
}

// What a callback returns to end the parse. md4c 0.4.8 overlooks positive values inside tables.
constexpr int kAbort = -1;

/// Receives md4c's events. A callback that returns kAbort ends the parse.
class Builder {
 public:
  int enterBlock(MD_BLOCKTYPE type, void* detail) {
    switch (type) {
      case MD_BLOCK_QUOTE:
        closeLeaf();
        flushMarker();
        containers_.push_back('q');
        break;
      case MD_BLOCK_UL:
        enterList({false, 0, static_cast<MD_BLOCK_UL_DETAIL*>(detail)->is_tight != 0, '.'});
        break;
      case MD_BLOCK_OL: {
        const auto* list = static_cast<MD_BLOCK_OL_DETAIL*>(detail);
        enterList({true, list->start, list->is_tight != 0, list->mark_delimiter});
        break;
      }
      case MD_BLOCK_LI:
        enterItem(*static_cast<MD_BLOCK_LI_DETAIL*>(detail));
        break;
      case MD_BLOCK_HR:
        openLeaf(MarkdownBlock::Kind::kRule);
        closeLeaf();
        break;
      case MD_BLOCK_H:
        openLeaf(MarkdownBlock::Kind::kHeading);
        leaf_.level = static_cast<int>(static_cast<MD_BLOCK_H_DETAIL*>(detail)->level);
        break;
      case MD_BLOCK_CODE:
        enterCode(*static_cast<MD_BLOCK_CODE_DETAIL*>(detail));
        break;
      case MD_BLOCK_P:
      case MD_BLOCK_HTML:
        openLeaf(MarkdownBlock::Kind::kParagraph);
        break;
      case MD_BLOCK_TABLE:
        closeLeaf();
        flushMarker();  // a table has no first line for it
        openLeaf(MarkdownBlock::Kind::kTable);
        leaf_.table.emplace();
        cells_ = 0;
        break;
      case MD_BLOCK_TR:
        enterRow();
        break;
      case MD_BLOCK_TH:
      case MD_BLOCK_TD:
        if (++cells_ > kMaxTableCells || leaf_.table->alignments.size() > kMaxTableColumns)
          return kAbort;
        enterCell(type == MD_BLOCK_TH, *static_cast<MD_BLOCK_TD_DETAIL*>(detail));
        break;
      case MD_BLOCK_DOC:
      case MD_BLOCK_THEAD:
      case MD_BLOCK_TBODY:
        break;
    }
    return failed_ ? kAbort : 0;
  }

  int leaveBlock(MD_BLOCKTYPE type) {
    switch (type) {
      case MD_BLOCK_QUOTE:
        closeLeaf();
        containers_.chop(1);
        break;
      case MD_BLOCK_UL:
      case MD_BLOCK_OL:
        closeLeaf();
        lists_.pop_back();
        break;
      case MD_BLOCK_LI:
        closeLeaf();
        flushMarker();
        containers_.chop(1);
        break;
      case MD_BLOCK_CODE:
        leaveCode();
        break;
      case MD_BLOCK_H:
      case MD_BLOCK_P:
      case MD_BLOCK_HTML:
      case MD_BLOCK_TABLE:
        closeLeaf();
        break;
      default:
        break;
    }
    return failed_ ? kAbort : 0;
  }

  int enterSpan(MD_SPANTYPE type, void* detail) {
    switch (type) {
      case MD_SPAN_A:
        link_ = attributeText(static_cast<MD_SPAN_A_DETAIL*>(detail)->href);
        ++depths_[4];
        break;
      case MD_SPAN_IMG:
        if (depths_[5]++ == 0) append(QStringLiteral("[image: "));
        break;
      default:
        if (const int index = styleIndex(type); index >= 0) ++depths_[index];
        break;
    }
    return 0;
  }

  int leaveSpan(MD_SPANTYPE type) {
    switch (type) {
      case MD_SPAN_A:
        --depths_[4];
        if (depths_[4] == 0) link_.clear();
        break;
      case MD_SPAN_IMG:
        if (depths_[5] == 1) append(QStringLiteral("]"));
        --depths_[5];
        break;
      default:
        if (const int index = styleIndex(type); index >= 0) --depths_[index];
        break;
    }
    return 0;
  }

  int text(MD_TEXTTYPE type, std::string_view utf8) {
    switch (type) {
      case MD_TEXT_NULLCHAR:
        append(QString(QChar(QChar::ReplacementCharacter)));
        break;
      case MD_TEXT_BR:
      case MD_TEXT_SOFTBR:  // models break lines to be seen: verses, addresses, key: value rows
        append(QString(kMarkdownLineBreak));
        break;
      case MD_TEXT_ENTITY:
        append(sanitizedMarkdown(decodeEntity(utf8)));
        break;
      case MD_TEXT_CODE:
        if (inCode_) {
          code_.append(utf8.data(), static_cast<qsizetype>(utf8.size()));
          break;
        }
        [[fallthrough]];
      default:
        append(
            sanitizedMarkdown(QString::fromUtf8(utf8.data(), static_cast<qsizetype>(utf8.size()))));
        break;
    }
    return failed_ ? kAbort : 0;
  }

  MarkdownBlocks finish() {
    closeLeaf();
    return list_.take();
  }

 private:
  struct List {
    bool ordered = false;
    unsigned number = 0;
    bool isTight = true;
    char delimiter = '.';
    bool started = false;
  };

  static int styleIndex(MD_SPANTYPE type) {
    switch (type) {
      case MD_SPAN_STRONG:
        return 0;
      case MD_SPAN_EM:
        return 1;
      case MD_SPAN_DEL:
        return 2;
      case MD_SPAN_CODE:
        return 3;
      default:
        return -1;
    }
  }

  static QString attributeText(const MD_ATTRIBUTE& attribute) {
    if (attribute.text == nullptr) return {};
    QString result;
    for (int i = 0; attribute.substr_offsets[i] < attribute.size; ++i) {
      const MD_OFFSET first = attribute.substr_offsets[i];
      const MD_OFFSET last = attribute.substr_offsets[i + 1];
      const std::string_view part(attribute.text + first, last - first);
      result += attribute.substr_types[i] == MD_TEXT_ENTITY
                    ? decodeEntity(part)
                    : QString::fromUtf8(part.data(), static_cast<qsizetype>(part.size()));
    }
    return sanitizedMarkdown(result);
  }

  void enterList(const List& list) {
    closeLeaf();
    flushMarker();
    lists_.push_back(list);
  }

  void enterItem(const MD_BLOCK_LI_DETAIL& item) {
    closeLeaf();
    List& list = lists_.back();
    if (item.is_task != 0) {
      marker_ = QChar(item.task_mark == ' ' ? kTaskOpenMarker : kTaskDoneMarker);
    } else if (list.ordered) {
      marker_ = QString::number(list.number++) + QLatin1Char(list.delimiter);
    } else {
      marker_ = QChar(kBulletMarker);
    }
    itemTight_ = list.isTight && (list.started || lists_.size() > 1);
    list.started = true;
    containers_.push_back('l');
  }

  /// An item that has no text of its own still shows its marker.
  void flushMarker() {
    if (marker_.isEmpty()) return;
    openLeaf(MarkdownBlock::Kind::kParagraph);
    closeLeaf();
  }

  void enterCode(const MD_BLOCK_CODE_DETAIL& detail) {
    openLeaf(MarkdownBlock::Kind::kCodeLine);
    leaf_.language = attributeText(detail.lang);
    inCode_ = true;
    code_.clear();
  }

  void leaveCode() {
    inCode_ = false;
    if (code_.endsWith('\n')) code_.chop(1);
    const QStringList lines = QString::fromUtf8(code_).split(QLatin1Char('\n'));
    MarkdownBlock head = std::exchange(leaf_, {});
    open_ = false;
    CodeHighlighter highlighter(head.language);
    for (qsizetype i = 0; i < lines.size() && !failed_; ++i) {
      MarkdownBlock line = head;
      line.firstLine = i == 0;
      line.lastLine = i + 1 == lines.size();
      if (i > 0) {
        line.isTight = true;
        line.marker.clear();
        line.language.clear();
      }
      line.runs = highlighter.highlight(sanitizedMarkdown(lines[i]));
      failed_ = !list_.push(std::move(line));
    }
  }

  void enterRow() {
    MarkdownTable& table = *leaf_.table;
    const std::size_t cells = table.rows.size() * table.alignments.size();
    if (table.rows.size() > 1 && cells >= kMaxCellsOfOneTable) {
      MarkdownBlock rest;
      rest.kind = MarkdownBlock::Kind::kTable;
      rest.containers = leaf_.containers;
      rest.continues = true;
      rest.table.emplace();
      rest.table->alignments = table.alignments;
      rest.table->hasHeader = false;
      failed_ = !list_.push(std::exchange(leaf_, std::move(rest)));
    }
    leaf_.table->rows.emplace_back();
  }

  void enterCell(bool header, const MD_BLOCK_TD_DETAIL& detail) {
    MarkdownTable& table = *leaf_.table;
    if (table.rows.empty()) table.rows.emplace_back();
    table.rows.back().emplace_back();
    if (header && table.hasHeader && table.rows.size() == 1)
      table.alignments.push_back(cellAlignment(detail.align));
  }

  void openLeaf(MarkdownBlock::Kind kind) {
    closeLeaf();
    leaf_ = {};
    leaf_.kind = kind;
    leaf_.containers = containers_.left(kMaxContainers);
    leaf_.marker = std::exchange(marker_, {});
    leaf_.isTight = !leaf_.marker.isEmpty() && itemTight_;
    open_ = true;
  }

  void closeLeaf() {
    if (!open_) return;
    open_ = false;
    // md4c ends an HTML block with a line break.
    if (!leaf_.runs.empty() && leaf_.runs.back().text.endsWith(kMarkdownLineBreak)) {
      leaf_.runs.back().text.chop(1);
    }
    failed_ = !list_.push(std::move(leaf_)) || failed_;
    leaf_ = {};
  }

  void append(const QString& text) {
    if (!open_) openLeaf(MarkdownBlock::Kind::kParagraph);  // text of a tight list item
    unsigned style = MarkdownRun::kPlain;
    if (depths_[0] > 0) style |= MarkdownRun::kBold;
    if (depths_[1] > 0) style |= MarkdownRun::kItalic;
    if (depths_[2] > 0) style |= MarkdownRun::kStrike;
    if (depths_[3] > 0) style |= MarkdownRun::kCode;
    if (depths_[4] > 0 && !link_.isEmpty()) style |= MarkdownRun::kLink;
    if (depths_[5] > 0) style |= MarkdownRun::kMuted;
    if (leaf_.table) {
      if (leaf_.table->rows.empty() || leaf_.table->rows.back().empty()) return;
      appendMarkdownRun(leaf_.table->rows.back().back(), text, style, link_);
    } else {
      appendMarkdownRun(leaf_.runs, text, style, link_);
    }
  }

  MarkdownBlockList list_;
  MarkdownBlock leaf_;
  bool open_ = false;
  bool failed_ = false;
  QByteArray containers_;  // not bounded: leaving must find what was entered
  std::vector<List> lists_;
  QString marker_;  // of the item that waits for its first block
  bool itemTight_ = false;
  bool inCode_ = false;
  QByteArray code_;
  qsizetype cells_ = 0;
  QString link_;
  int depths_[6] = {};  // bold, italic, strike, code, link, image
};

Builder& builder(void* userdata) { return *static_cast<Builder*>(userdata); }

bool runParser(const QByteArray& utf8, Builder& target) {
  MD_PARSER parser = {};
  parser.flags = MD_FLAG_TABLES | MD_FLAG_STRIKETHROUGH | MD_FLAG_TASKLISTS | MD_FLAG_NOHTML |
                 MD_FLAG_PERMISSIVEURLAUTOLINKS | MD_FLAG_PERMISSIVEEMAILAUTOLINKS;
  parser.enter_block = [](MD_BLOCKTYPE type, void* detail, void* user) {
    return builder(user).enterBlock(type, detail);
  };
  parser.leave_block = [](MD_BLOCKTYPE type, void*, void* user) {
    return builder(user).leaveBlock(type);
  };
  parser.enter_span = [](MD_SPANTYPE type, void* detail, void* user) {
    return builder(user).enterSpan(type, detail);
  };
  parser.leave_span = [](MD_SPANTYPE type, void*, void* user) {
    return builder(user).leaveSpan(type);
  };
  parser.text = [](MD_TEXTTYPE type, const MD_CHAR* text, MD_SIZE size, void* user) {
    return builder(user).text(type, std::string_view(text, size));
  };
  return md_parse(utf8.constData(), static_cast<MD_SIZE>(utf8.size()), &parser, &target) == 0;
}

QString runsText(const MarkdownRuns& runs) {
  QString text;
  for (const MarkdownRun& run : runs) text += run.text;
  return text;
}

}  // namespace

MarkdownBlocks parseMarkdown(const QString& markdown) {
  Builder target;
  if (runParser(markdown.toUtf8(), target)) return target.finish();
  return parsePlainText(markdown);
}

MarkdownBlocks parsePlainText(const QString& text) {
  MarkdownBlockList list;
  for (const QString& line : text.split(QLatin1Char('\n'))) {
    MarkdownBlock block;
    block.isTight = true;
    QString clean = line;
    if (clean.endsWith(QLatin1Char('\r'))) clean.chop(1);
    appendMarkdownRun(block.runs, sanitizedMarkdown(clean), MarkdownRun::kPlain, {});
    if (!list.push(std::move(block))) break;
  }
  return list.take();
}

QStringList blockTexts(const MarkdownBlocks& blocks) {
  QStringList texts;
  for (const MarkdownBlock& block : blocks) {
    if (!block.table) {
      texts.append(runsText(block.runs));
      continue;
    }
    texts.append(QString());  // QTextDocument keeps a block before a table and one after it
    for (const auto& row : block.table->rows) {
      for (std::size_t i = 0; i < block.table->alignments.size(); ++i) {
        texts.append(i < row.size() ? runsText(row[i]) : QString());
      }
    }
    texts.append(QString());
  }
  return texts;
}

}  // namespace longhand::ui
