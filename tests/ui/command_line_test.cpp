// What `longhand` accepts on its command line.
#include "ui/command_line.h"

#include <QTest>

using namespace Qt::StringLiterals;
using namespace longhand::ui;

class CommandLineTest final : public QObject {
  Q_OBJECT

 private slots:
  void withoutOptionsTheWindowOpensAsItWas() {
    const CommandLineResult result = parseCommandLine({u"longhand"_s});
    QVERIFY(!result.isDone);
    QVERIFY(result.options.screenshotPath.isEmpty());
    QVERIFY(!result.options.size.isValid());
    QVERIFY(!result.options.theme.has_value());
  }

  void allOptionsAreRead() {
    const CommandLineResult result = parseCommandLine(
        {u"longhand"_s, u"--model"_s, u"/models/llama"_s, u"--document"_s, u"a b.txt"_s, u"--ask"_s,
         u"Who?"_s, u"--screenshot"_s, u"shot.png"_s, u"--size"_s, u"1024x700"_s, u"--theme"_s,
         u"dark"_s, u"--data-dir"_s, u"/tmp/data"_s, u"--page"_s, u"settings"_s});
    QVERIFY(!result.isDone);
    QCOMPARE(result.options.modelFolder, u"/models/llama"_s);
    QCOMPARE(result.options.documentPath, u"a b.txt"_s);
    QCOMPARE(result.options.question, u"Who?"_s);
    QCOMPARE(result.options.screenshotPath, u"shot.png"_s);
    QCOMPARE(result.options.size, QSize(1024, 700));
    QVERIFY(result.options.theme == ThemeKind::kDark);
    QCOMPARE(result.options.dataFolder, u"/tmp/data"_s);
    QCOMPARE(result.options.page, u"settings"_s);
  }

  void aBareFileIsTheDocument() {  // the desktop entry starts `longhand FILE`
    const CommandLineResult result = parseCommandLine({u"longhand"_s, u"a b.txt"_s});
    QVERIFY(!result.isDone);
    QCOMPARE(result.options.documentPath, u"a b.txt"_s);
  }

  void mistakesAreNamedAndEndWithStatusTwo_data() {
    QTest::addColumn<QStringList>("arguments");
    QTest::addColumn<QString>("named");
    QTest::newRow("unknown option") << QStringList{u"--fast"_s} << u"fast"_s;
    QTest::newRow("two documents") << QStringList{u"a.txt"_s, u"b.txt"_s} << u"b.txt"_s;
    QTest::newRow("two documents, one by option")
        << QStringList{u"a.txt"_s, u"--document"_s, u"b.txt"_s} << u"b.txt"_s;
    QTest::newRow("no size") << QStringList{u"--size"_s, u"big"_s} << u"--size"_s;
    QTest::newRow("no theme") << QStringList{u"--theme"_s, u"blue"_s} << u"--theme"_s;
    QTest::newRow("no value") << QStringList{u"--ask"_s} << u"ask"_s;
  }

  void mistakesAreNamedAndEndWithStatusTwo() {
    QFETCH(const QStringList, arguments);
    QFETCH(const QString, named);
    const CommandLineResult result = parseCommandLine(QStringList{u"longhand"_s} + arguments);
    QVERIFY(result.isDone);
    QCOMPARE(result.exitStatus, 2);
    QVERIFY2(result.text.contains(named), qPrintable(result.text));
    QVERIFY(!result.text.contains(u'\n'));
  }

  void helpNamesEveryOption() {
    const CommandLineResult result = parseCommandLine({u"longhand"_s, u"--help"_s});
    QVERIFY(result.isDone);
    QCOMPARE(result.exitStatus, 0);
    for (const QString& option : {u"--model"_s, u"--document"_s, u"--ask"_s, u"--screenshot"_s,
                                  u"--size"_s, u"--theme"_s, u"--data-dir"_s}) {
      QVERIFY2(result.text.contains(option), qPrintable(option));
    }
  }
};

QTEST_GUILESS_MAIN(CommandLineTest)
#include "command_line_test.moc"
