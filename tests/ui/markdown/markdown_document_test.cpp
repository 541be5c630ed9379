// Markdown as text blocks: what is shown, that streaming gives the same document as parsing once,
// and that hostile text stays fast.
#include "ui/markdown/markdown_document.h"

#include <QElapsedTimer>
#include <QImage>
#include <QPainter>
#include <QTextBlock>
#include <QTextTable>
#include <QtTest>

#include "ui/markdown/code_highlighter.h"

using namespace longhand::ui;
using Kind = MarkdownBlock::Kind;

namespace {

QString sample() {
  return QString::fromUtf8(
      "# 标题 with `code`\n\nText **bold** *it* ~~no~~ [link](https://example.org) "
      "https://auto.example &amp; &mdash; <b>raw</b> 😀\n\n"
      "3. three\n4. four\n   - inner\n\n     more\n\n- [x] done\n- [ ] open\n\n"
      "> quote\n>\n> > deeper\n\n"
      "```python\ndef f(x):\n    return \"a\"  # why\n\n```\n\n"
      "| a | b |\n|:--|--:|\n| 1 | `2` |\n| 3 | |\n\n---\n\n"
      "| second |\n|--------|\n| table |\n\n```\nafter table\n```\n\nend");
}

QStringList shownTexts(const MarkdownDocument& document) {
  QStringList texts;
  for (QTextBlock block = document.textDocument()->begin(); block.isValid(); block = block.next()) {
    texts.append(block.text());
  }
  return texts;
}

QImage rendered(MarkdownDocument& document) {
  document.setWidth(500);
  QImage image(520, static_cast<int>(document.height()) + 4, QImage::Format_RGB32);
  image.fill(Qt::white);
  QPainter painter(&image);
  painter.translate(10, 2);
  document.paint(painter, QRectF(-10, -2, 520, document.height() + 4), {});
  return image;
}

}  // namespace

class MarkdownDocumentTest : public QObject {
  Q_OBJECT

  const Theme theme_ = makeTheme(ThemeKind::kLight);

 private slots:
  void blocksKnowTheirKindMarkerAndContainers() {
    const MarkdownBlocks blocks = parseMarkdown(
        QStringLiteral("## head\n\n7. seven\n   > said\n\n- [x] done\n\n---\n\n    code"));
    QCOMPARE(blocks.size(), std::size_t{6});
    QCOMPARE(blocks[0].kind, Kind::kHeading);
    QCOMPARE(blocks[0].level, 2);
    QCOMPARE(blocks[1].marker, QStringLiteral("7."));
    QCOMPARE(blocks[1].containers, QByteArray("l"));
    QCOMPARE(blocks[2].containers, QByteArray("lq"));
    QCOMPARE(blocks[2].marker, QString());
    QCOMPARE(blocks[3].marker, QString(QChar(kTaskDoneMarker)));
    QCOMPARE(blocks[4].kind, Kind::kRule);
    QCOMPARE(blocks[5].kind, Kind::kCodeLine);
    QVERIFY(blocks[5].firstLine && blocks[5].lastLine);
  }

  void runsCarryTheirStyles() {
    const MarkdownBlocks blocks = parseMarkdown(QStringLiteral("p**b***i*~~s~~`c`[l](u)***x***"));
    const std::vector<unsigned> expected = {MarkdownRun::kPlain,
                                            MarkdownRun::kBold,
                                            MarkdownRun::kItalic,
                                            MarkdownRun::kStrike,
                                            MarkdownRun::kCode,
                                            MarkdownRun::kLink,
                                            MarkdownRun::kBold | MarkdownRun::kItalic};
    std::vector<unsigned> styles;
    for (const MarkdownRun& run : blocks.at(0).runs) styles.push_back(run.style);
    QCOMPARE(styles, expected);
    QCOMPARE(blocks[0].runs[5].link, QStringLiteral("u"));
  }

  void tableHasItsCellsAndAlignments() {
    const MarkdownBlocks blocks =
        parseMarkdown(QStringLiteral("| a | b |\n|:--|--:|\n| 1 | **2** |"));
    QCOMPARE(blocks.size(), std::size_t{1});
    QVERIFY(blocks[0].table.has_value());
    QCOMPARE(blocks[0].table->rows.size(), std::size_t{2});
    QCOMPARE(blocks[0].table->alignments[1], Qt::Alignment(Qt::AlignRight));
    QCOMPARE(blocks[0].table->rows[1][1][0].text, QStringLiteral("2"));
    QCOMPARE(blocks[0].table->rows[1][1][0].style, unsigned{MarkdownRun::kBold});
  }

  void tableBeyondTheBoundsIsShownAsText() {
    const QString wide = u'|' + QStringLiteral("a|").repeated(100) + u'\n' + u'|' +
                         QStringLiteral("---|").repeated(100);
    const MarkdownBlocks blocks = parseMarkdown(wide);
    QCOMPARE(blocks.size(), std::size_t{2});
    QVERIFY(!blocks[0].table.has_value());
  }

  void longTableBecomesSeveral() {
    const QString text =
        QStringLiteral("|a|b|\n|---|---|\n") + QStringLiteral("|x|y|\n").repeated(500);
    const MarkdownBlocks blocks = parseMarkdown(text);
    std::size_t rows = 0;
    for (const MarkdownBlock& block : blocks) rows += block.table->rows.size();
    QCOMPARE(rows, std::size_t{501});
    QVERIFY(blocks.size() > 1);
    QVERIFY(blocks[0].table->hasHeader);
    QVERIFY(!blocks[1].table->hasHeader);
  }

  void htmlIsShownAsText() {
    MarkdownDocument document(theme_);
    document.setMarkdown(QStringLiteral("<script>alert(1)</script>\n\na <b>b</b> <img src=x>"));
    QCOMPARE(document.plainText(),
             QStringLiteral("<script>alert(1)</script>\n\na <b>b</b> <img src=x>"));
  }

  void imagesAreDescribedAndNeverLoaded() {
    MarkdownDocument document(theme_);
    document.setMarkdown(QStringLiteral("![a chart](http://example.org/x.png)"));
    QCOMPARE(document.plainText(), QStringLiteral("[image: a chart]"));
    for (QTextBlock block = document.textDocument()->begin(); block.isValid();
         block = block.next()) {
      for (const QTextLayout::FormatRange& range : block.textFormats()) {
        QVERIFY(!range.format.isImageFormat());
      }
    }
  }

  void charactersThatMeanStructureAreReplaced() {
    MarkdownDocument document(theme_);
    const QString hostile =
        QStringLiteral("a") + QChar(0xfdd0) + QChar(0xfdd1) + QChar(0xfffc) + QChar(0x2029) + u'b';
    document.setMarkdown(hostile);
    QCOMPARE(document.textDocument()->blockCount(), 1);
    document.setPlainText(hostile);
    QCOMPARE(document.textDocument()->blockCount(), 1);
    document.setMarkdown(QStringLiteral("a&#0;&#xfdd0;&#x110000;&bogus;&#20013;"));
    QCOMPARE(document.plainText(), QStringLiteral("a") + QString(3, QChar(0xfffd)) +
                                       QStringLiteral("&bogus;") + QChar(20013));
  }

  void plainTextOfADocumentIsWhatAPersonWouldType() {
    MarkdownDocument document(theme_);
    document.setMarkdown(
        QStringLiteral("Intro\n\n1. one\n2. two\n   - in\n\n```c\nint a;\n\nint b;\n```\n\n| x | y "
                       "|\n|---|---|\n| "
                       "1 | 2 |\n\nlast  \nline"));
    QCOMPARE(document.plainText(), QString::fromUtf8("Intro\n\n1. one\n2. two\n  • in\n\nint a;\n\n"
                                                     "int b;\n\nx\ty\n1\t2\n\nlast\nline"));
  }

  void streamingAtEveryCharacterGivesTheSameDocument() {
    const QString text = sample();
    MarkdownDocument streamed(theme_);
    streamed.setWidth(500);
    for (qsizetype i = 0; i <= text.size(); ++i) {
      streamed.setMarkdown(text.left(i));
      if (i % 23 != 0 && i != text.size()) continue;
      MarkdownDocument once(theme_);
      once.setMarkdown(text.left(i));
      once.setWidth(500);
      QCOMPARE(shownTexts(streamed), shownTexts(once));
      QCOMPARE(streamed.textDocument()->toHtml(), once.textDocument()->toHtml());
      QCOMPARE(streamed.height(), once.height());
    }
    MarkdownDocument once(theme_);
    once.setMarkdown(text);
    QCOMPARE(rendered(streamed), rendered(once));
  }

  void shrinkingAndReplacingTextWorksToo() {
    const QString text = sample();
    MarkdownDocument document(theme_);
    for (const qsizetype length : {text.size(), qsizetype{10}, text.size() / 2, qsizetype{0}}) {
      document.setMarkdown(text.left(length));
      MarkdownDocument once(theme_);
      once.setMarkdown(text.left(length));
      QCOMPARE(document.textDocument()->toHtml(), once.textDocument()->toHtml());
    }
  }

  void textsForSearchAreThoseOfTheDocument() {
    MarkdownDocument document(theme_);
    document.setMarkdown(sample());
    QCOMPARE(shownTexts(document), blockTexts(parseMarkdown(sample())));
  }

  void anUpdateRebuildsOnlyTheTail() {
    QString text;
    for (int i = 0; i < 500; ++i) text += QStringLiteral("- item %1 of a list\n").arg(i);
    MarkdownDocument document(theme_);
    document.setMarkdown(text);
    QCOMPARE(document.rebuiltBlocks(), 500);
    document.setMarkdown(text + QStringLiteral("- one mo"));
    QCOMPARE(document.rebuiltBlocks(), 1);
    document.setMarkdown(text + QStringLiteral("- one more"));
    QCOMPARE(document.rebuiltBlocks(), 1);
    document.setMarkdown(text + QStringLiteral("- one more"));
    QCOMPARE(document.rebuiltBlocks(), 0);
  }

  void codeBoxGivesItsCodeBack() {
    MarkdownDocument document(theme_);
    document.setWidth(400);
    document.setMarkdown(QStringLiteral("a\n\n```python\nx = 1\n\n  y\n```\n\nb\n\n```\nz\n```"));
    const auto boxes = document.codeBoxes(QRectF(0, 0, 400, document.height()));
    QCOMPARE(boxes.size(), std::size_t{2});
    QCOMPARE(boxes[0].language, QStringLiteral("python"));
    QCOMPARE(document.codeText(boxes[0]), QStringLiteral("x = 1\n\n  y"));
    QCOMPARE(document.codeText(boxes[1]), QStringLiteral("z"));
    QVERIFY(boxes[0].rect.contains(boxes[0].buttonRect));
    QVERIFY(boxes[0].rect.bottom() < boxes[1].rect.top());
    QVERIFY(boxes[1].rect.bottom() <= document.height() + 0.5);
  }

  void codeAtTheTopHasItsTitleInside() {
    MarkdownDocument document(theme_);
    document.setWidth(400);
    document.setMarkdown(QStringLiteral("```c\nint a;\n```"));
    const auto boxes = document.codeBoxes(QRectF(0, 0, 400, document.height()));
    QCOMPARE(boxes.size(), std::size_t{1});
    QCOMPARE(boxes[0].rect.top(), 0.0);
    QVERIFY(boxes[0].rect.bottom() <= document.height() + 0.5);
    document.setMarkdown(QStringLiteral("text"));
    MarkdownDocument once(theme_);
    once.setWidth(400);
    once.setMarkdown(QStringLiteral("text"));
    QCOMPARE(document.height(), once.height());
  }

  void codeAfterATableDoesNotOverlapIt() {
    MarkdownDocument document(theme_);
    document.setWidth(400);
    document.setMarkdown(QStringLiteral("| a |\n|---|\n| b |\n\n```\nz\n```"));
    const auto boxes = document.codeBoxes(QRectF(0, 0, 400, document.height()));
    QCOMPARE(boxes.size(), std::size_t{1});
    const int cell = document.plainText().indexOf(u'b');
    QVERIFY(cell > 0);
    const QTextTable* table =
        qobject_cast<QTextTable*>(document.textDocument()->rootFrame()->childFrames().first());
    const QRectF last = document.cursorRect(table->cellAt(1, 0).firstPosition());
    QVERIFY(boxes[0].rect.top() >= last.bottom() + 6);
  }

  void positionsAndPointsAgree() {
    MarkdownDocument document(theme_);
    document.setWidth(500);
    document.setMarkdown(
        QStringLiteral("first line\n\n| aa | bb |\n|---|---|\n| cc | dd |\n\nlast"));
    for (const int position : {0, 3, 14, 17, 20, 24}) {
      QCOMPARE(document.positionAt(document.cursorRect(position).center(), false), position);
    }
  }

  void linksAreFoundUnderThePointer() {
    MarkdownDocument document(theme_);
    document.setWidth(500);
    document.setMarkdown(QStringLiteral("see [here](https://example.org/?a=1&amp;b=2) now"));
    QCOMPARE(document.linkAt(document.cursorRect(6).center()),
             QStringLiteral("https://example.org/?a=1&b=2"));
    QCOMPARE(document.linkAt(document.cursorRect(1).center()), QString());
  }

  void commentsAndStringsOverLinesAreFollowed() {
    CodeHighlighter python(QStringLiteral("Python"));
    QCOMPARE(python.highlight(QStringLiteral("def f(): return 12 # x"))[0].style,
             unsigned{MarkdownRun::kKeyword});
    python.highlight(QStringLiteral("\"\"\"doc"));
    QCOMPARE(python.highlight(QStringLiteral("def inside"))[0].style,
             unsigned{MarkdownRun::kString});
    CodeHighlighter c(QStringLiteral("c++"));
    c.highlight(QStringLiteral("/* a"));
    const MarkdownRuns runs = c.highlight(QStringLiteral("b */ int"));
    QCOMPARE(runs[0].style, unsigned{MarkdownRun::kComment});
    QCOMPARE(runs[0].text, QStringLiteral("b */"));
    QCOMPARE(runs.back().style, unsigned{MarkdownRun::kKeyword});
    QCOMPARE(CodeHighlighter(QStringLiteral("brainf")).highlight(QStringLiteral("int 1")).size(),
             std::size_t{1});
  }

  void hostileTextStaysFast_data() {
    QTest::addColumn<QString>("text");
    const auto repeat = [](const char* piece, int times) {
      return QString::fromLatin1(piece).repeated(times);
    };
    QTest::newRow("one word") << repeat("x", 100000);
    QTest::newRow("deep quotes") << repeat("> ", 30000);
    QTest::newRow("deep lists") << repeat("- ", 3000);
    QTest::newRow("brackets") << repeat("[", 50000);
    QTest::newRow("emphasis") << repeat("*a_ ", 20000);
    QTest::newRow("code spans") << repeat("`a``b", 5000);
    QTest::newRow("wide table") << u'|' + repeat("a|", 5000) + u'\n' + u'|' + repeat("---|", 5000) +
                                       u'\n' + repeat("|x\n", 5000);
    QTest::newRow("long table") << QStringLiteral("|a|b|c|d|\n|---|---|---|---|\n") +
                                       repeat("|x\n", 20000);
    QTest::newRow("comments") << repeat("<!--", 20000);
    QTest::newRow("entities") << repeat("&amp;", 15000);
    QTest::newRow("links") << repeat("[a](b) ", 3000);
  }
  void hostileTextStaysFast() {
    QFETCH(QString, text);
    QElapsedTimer timer;
    timer.start();
    MarkdownDocument document(theme_);
    document.setWidth(600);
    document.setMarkdown(text);
    document.setMarkdown(text + u'y');
    QVERIFY(document.height() > 0);
    // 10 to 150 ms each in release on an idle core; quadratic behaviour would take minutes.
    QVERIFY2(timer.elapsed() < 20000, qPrintable(QString::number(timer.elapsed())));
  }
};

QTEST_MAIN(MarkdownDocumentTest)
#include "markdown_document_test.moc"
