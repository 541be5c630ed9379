// The look: contrasts of WCAG 2.1 and font families.
#include "ui/style/theme.h"

#include <QtTest>

using namespace longhand::ui;

class ThemeTest : public QObject {
  Q_OBJECT

 private slots:
  void contrastOfBlackOnWhiteIsTwentyOne() {
    QCOMPARE(qRound(contrastRatio(Qt::black, Qt::white)), 21);
    QCOMPARE(qRound(contrastRatio(Qt::white, Qt::white)), 1);
    // Known pair: #767676 on white is the palest grey that passes 4.5:1.
    QVERIFY(contrastRatio(QColor(0x767676), Qt::white) >= 4.5);
    QVERIFY(contrastRatio(QColor(0x777777), Qt::white) < 4.5);
  }

  void everyTextColourIsReadableOnEverySurface_data() {
    QTest::addColumn<bool>("dark");
    QTest::newRow("light") << false;
    QTest::newRow("dark") << true;
  }
  void everyTextColourIsReadableOnEverySurface() {
    QFETCH(bool, dark);
    const ThemeColors c = makeTheme(dark ? ThemeKind::kDark : ThemeKind::kLight).colors;
    const std::pair<const char*, QColor> surfaces[] = {
        {"window", c.window},     {"surface", c.surface}, {"raised", c.raised},  {"hover", c.hover},
        {"selected", c.selected}, {"bubble", c.bubble},   {"codeBox", c.codeBox}};
    const std::pair<const char*, QColor> texts[] = {{"text", c.text},       {"muted", c.textMuted},
                                                    {"link", c.link},       {"error", c.error},
                                                    {"warning", c.warning}, {"success", c.success}};
    const auto check = [](const char* text, const QColor& front, const char* ground,
                          const QColor& back) {
      const double ratio = contrastRatio(front, back);
      QVERIFY2(ratio >= 4.5, qPrintable(QStringLiteral("%1 on %2: %3")
                                            .arg(QLatin1String(text), QLatin1String(ground))
                                            .arg(ratio)));
    };
    for (const auto& [ground, back] : surfaces) {
      for (const auto& [name, front] : texts) check(name, front, ground, back);
    }
    check("accentText", c.accentText, "accent", c.accent);
    for (const QColor& code : {c.text, c.codeKeyword, c.codeString, c.codeComment, c.codeNumber}) {
      check("code", code, "codeBox", c.codeBox);
    }
    for (const QColor& mark : {c.selection, c.findMatch, c.findCurrent, c.codeInline}) {
      check("text", c.text, "mark", mark);
    }
  }

  void fontsNameTheirFamiliesAndScale() {
    const Theme theme = makeTheme(ThemeKind::kLight, 2.0);
    QCOMPARE(theme.textFont.families().first(), QStringLiteral("Noto Sans"));
    QCOMPARE(theme.codeFont.families().first(), QStringLiteral("Noto Sans Mono"));
    QVERIFY(theme.textFont.families().contains(QStringLiteral("Noto Color Emoji")));
    QCOMPARE(theme.textFont.pixelSize(), 2 * makeTheme(ThemeKind::kLight).textFont.pixelSize());
  }

  void styleSheetLeavesNoNameUnreplaced() {
    for (const ThemeKind kind : {ThemeKind::kLight, ThemeKind::kDark}) {
      QVERIFY(!styleSheet(makeTheme(kind)).contains(QLatin1Char('%')));
    }
  }
};

QTEST_MAIN(ThemeTest)
#include "theme_test.moc"
