// The window's spelling of sizes, counts and times.
#include "ui/style/format.h"

#include <QTest>

using namespace Qt::StringLiterals;
using namespace longhand::ui;

class FormatTest final : public QObject {
  Q_OBJECT

 private slots:
  void countsHaveThousandsSeparators() {
    QCOMPARE(formatCount(0), u"0"_s);
    QCOMPARE(formatCount(1209), u"1,209"_s);
    QCOMPARE(formatTokens(1), u"1 token"_s);
    QCOMPARE(formatTokens(100000), u"100,000 tokens"_s);
  }

  void durationsUseTheUnitsPeopleUse() {
    QCOMPARE(formatDuration(0.042), u"42 ms"_s);
    QCOMPARE(formatDuration(0.42), u"0.4 s"_s);
    QCOMPARE(formatDuration(12.4), u"12 s"_s);
    QCOMPARE(formatDuration(125.0), u"2 min 5 s"_s);
    QCOMPARE(formatDuration(3840.0), u"1 h 4 min"_s);
    QCOMPARE(formatDuration(-1.0), u"unknown"_s);
    QCOMPARE(formatDuration(std::numeric_limits<double>::infinity()), u"unknown"_s);
  }

  void ratesAreUnknownUntilMeasured() {
    QCOMPARE(formatRate(41.34), u"41.3 tokens/s"_s);
    QCOMPARE(formatRate(3204.0), u"3,204 tokens/s"_s);
    QCOMPARE(formatRate(0.0), u"-- tokens/s"_s);
  }

  void datesAreShorterTheNearerTheyAre() {
    const QDateTime now(QDate(2026, 5, 12), QTime(14, 30));
    QCOMPARE(formatWhen(QDateTime(QDate(2026, 5, 12), QTime(9, 5)), now), u"09:05"_s);
    QCOMPARE(formatWhen(QDateTime(QDate(2026, 5, 11), QTime(23, 59)), now), u"Yesterday"_s);
    QCOMPARE(formatWhen(QDateTime(QDate(2026, 1, 3), QTime(9, 5)), now), u"3 Jan"_s);
    QCOMPARE(formatWhen(QDateTime(QDate(2025, 12, 3), QTime(9, 5)), now), u"3 Dec 2025"_s);
  }
};

QTEST_APPLESS_MAIN(FormatTest)
#include "format_test.moc"
