#include "ui/markdown/code_highlighter.h"

#include <array>

#include <QSet>

namespace longhand::ui {

struct CodeHighlighter::Rules {
  QStringList languages;
  QSet<QString> keywords;
  QStringList lineComments;
  QString commentBegin;
  QString commentEnd;
  QString quotes;           // characters that open and close a string
  QString longQuote;        // a string over lines opens and closes with three of these
  bool ignoreCase = false;  // of keywords
};

namespace {

QSet<QString> words(const char* list) {
  const QStringList parts = QString::fromLatin1(list).split(QLatin1Char(' '));
  return {parts.begin(), parts.end()};
}

QStringList names(const char* list) { return QString::fromLatin1(list).split(QLatin1Char(' ')); }

const std::array<CodeHighlighter::Rules, 6>& allRules() {
  static const std::array<CodeHighlighter::Rules, 6> rules = {{
      {names("python py python3 starlark"),
       words(
           "and as assert async await break class continue def del elif else except False finally "
           "for from global if import in is lambda match None nonlocal not or pass raise return "
           "self True try while with yield"),
       names("#"),
       {},
       {},
       QStringLiteral("\"'"),
       QStringLiteral("\"'"),
       false},
      {names("c c++ cpp cc h hpp cuda cu java javascript js jsx typescript ts tsx csharp c# cs go "
             "rust rs "
             "kotlin kt swift scala dart php json json5 css"),
       words("abstract alignas as async auto await bool break case catch char class co_await const "
             "constexpr continue crate def default defer delete do double dyn else enum explicit "
             "export extends extern false final float fn for func function if impl implements "
             "import in inline instanceof int interface let long loop match mod move mut namespace "
             "new nil noexcept null nullptr of operator override package private protected pub "
             "public return self short signed sizeof static struct super switch template this "
             "throw throws trait true try type typedef typename typeof undefined union unsigned "
             "unsafe use using val var virtual void volatile where while yield"),
       names("//"),
       QStringLiteral("/*"),
       QStringLiteral("*/"),
       QStringLiteral("\"'`"),
       {},
       false},
      {names("bash sh shell zsh console fish make makefile dockerfile cmake"),
       words(
           "alias break case cd continue do done echo elif else esac eval exec exit export fi for "
           "function if in local read return set shift source sudo then trap unset until while"),
       names("#"),
       {},
       {},
       QStringLiteral("\"'"),
       {},
       false},
      {names("sql sqlite mysql postgresql"),
       words("add all alter and as asc begin between by case check column commit create cross "
             "default delete desc distinct drop else end exists foreign from full group having if "
             "in index inner insert into is join key left like limit not null offset on or order "
             "outer primary references right rollback select set table then union unique update "
             "values view when where with"),
       names("--"),
       QStringLiteral("/*"),
       QStringLiteral("*/"),
       QStringLiteral("'\""),
       {},
       true},
      {names("yaml yml toml ini conf properties"),
       words("true false yes no null on off"),
       names("# ;"),
       {},
       {},
       QStringLiteral("\"'"),
       {},
       true},
      {names("ruby rb perl pl r julia jl lua elixir ex"),
       words("and begin break case class def do else elsif elseif end ensure false for foreach "
             "function if in let local module my next nil not or our package repeat require rescue "
             "return self struct sub then true undef unless until use using when while yield "
             "TRUE FALSE NULL"),
       names("#"),
       {},
       {},
       QStringLiteral("\"'"),
       {},
       false},
  }};
  return rules;
}

bool isWord(QChar c) { return c.isLetterOrNumber() || c == QLatin1Char('_'); }

void append(MarkdownRuns& runs, QStringView text, unsigned style) {
  if (text.isEmpty()) return;
  if (!runs.empty() && runs.back().style == style) {
    runs.back().text += text;
  } else {
    runs.push_back({text.toString(), style, {}});
  }
}

/// Index after the quote that ends the string opened at `first`; the line's end if it stays open.
qsizetype stringEnd(QStringView line, qsizetype first) {
  for (qsizetype i = first + 1; i < line.size(); ++i) {
    if (line[i] == QLatin1Char('\\')) {
      ++i;
    } else if (line[i] == line[first]) {
      return i + 1;
    }
  }
  return line.size();
}

}  // namespace

CodeHighlighter::CodeHighlighter(const QString& language) {
  const QString name = language.toLower();
  for (const Rules& rules : allRules()) {
    if (rules.languages.contains(name)) rules_ = &rules;
  }
}

MarkdownRuns CodeHighlighter::highlight(const QString& line) {
  MarkdownRuns runs;
  const QStringView view(line);
  if (rules_ == nullptr) {
    append(runs, view, MarkdownRun::kPlain);
    return runs;
  }
  qsizetype i = 0;
  while (i < view.size()) {
    if (!openEnd_.isEmpty()) {
      const qsizetype found = view.indexOf(openEnd_, i);
      const qsizetype end = found < 0 ? view.size() : found + openEnd_.size();
      append(runs, view.mid(i, end - i), openStyle_);
      if (found >= 0) openEnd_.clear();
      i = end;
      continue;
    }
    const QStringView rest = view.mid(i);
    const QChar c = view[i];
    bool comment = false;
    for (const QString& begin : rules_->lineComments) comment = comment || rest.startsWith(begin);
    if (comment && (c != QLatin1Char('#') || i == 0 || view[i - 1].isSpace())) {
      append(runs, rest, MarkdownRun::kComment);
      break;
    }
    if (!rules_->commentBegin.isEmpty() && rest.startsWith(rules_->commentBegin)) {
      append(runs, rest.left(2), MarkdownRun::kComment);
      openEnd_ = rules_->commentEnd;
      openStyle_ = MarkdownRun::kComment;
      i += 2;
    } else if (rules_->longQuote.contains(c) && rest.startsWith(QString(3, c))) {
      append(runs, rest.left(3), MarkdownRun::kString);
      openEnd_ = QString(3, c);
      openStyle_ = MarkdownRun::kString;
      i += 3;
    } else if (rules_->quotes.contains(c)) {
      const qsizetype end = stringEnd(view, i);
      append(runs, view.mid(i, end - i), MarkdownRun::kString);
      i = end;
    } else if (isWord(c)) {
      qsizetype end = i + 1;
      const bool number = c.isDigit();
      while (end < view.size() &&
             (isWord(view[end]) || (number && view[end] == QLatin1Char('.')))) {
        ++end;
      }
      QString word = view.mid(i, end - i).toString();
      const bool keyword = rules_->keywords.contains(rules_->ignoreCase ? word.toLower() : word);
      append(runs, word,
             number    ? unsigned{MarkdownRun::kNumber}
             : keyword ? unsigned{MarkdownRun::kKeyword}
                       : unsigned{MarkdownRun::kPlain});
      i = end;
    } else {
      append(runs, view.mid(i, 1), MarkdownRun::kPlain);
      ++i;
    }
  }
  return runs;
}

}  // namespace longhand::ui
