#pragma once
// The look of the window in one place: colours, distances, fonts. A Theme is a value; widgets get
// one in their constructor and again through setTheme() when the user changes it.
//
//   const Theme theme = makeTheme(ThemeKind::kDark, 1.0);
//   applyTheme(application, theme);
//
// Every text colour reaches a contrast of at least 4.5:1 on every surface it is meant for
// (WCAG 2.1, tests/ui/style/theme_test.cpp).

#include <QColor>
#include <QFont>
#include <QString>

class QApplication;

namespace longhand::ui {

enum class ThemeKind { kLight, kDark };

struct ThemeColors {
  // Surfaces, from the back to the front.
  QColor window;    // sidebar, title bar, memory strip
  QColor surface;   // the chat
  QColor raised;    // cards, composer, pop-ups
  QColor hover;     // under the pointer
  QColor selected;  // the current row of a list
  QColor bubble;    // the user's messages
  QColor codeBox;   // fenced code
  QColor codeInline;
  QColor separator;  // hairlines between areas
  QColor border;     // around fields and cards

  // Text, on any surface above.
  QColor text;
  QColor textMuted;
  QColor textDisabled;  // needs no contrast (WCAG exempts inactive controls)
  QColor link;
  QColor error;
  QColor warning;
  QColor success;

  QColor accent;      // main button, focus ring, progress
  QColor accentText;  // on accent
  QColor selection;   // behind selected text; text keeps its colour
  QColor findMatch;
  QColor findCurrent;

  // Code.
  QColor codeKeyword;
  QColor codeString;
  QColor codeComment;
  QColor codeNumber;

  // Memory strip.
  QColor memoryWeights;
  QColor memoryKvCodes;
  QColor memoryKvScales;
  QColor memoryKvExact;
  QColor memoryWorkspace;
  QColor memoryUnattributed;
  QColor memoryOther;
  QColor memoryFree;
};

/// Distances in device independent pixels.
struct ThemeMetrics {
  int spaceSmall = 4;
  int space = 8;
  int spaceLarge = 16;
  int spaceHuge = 24;
  int radius = 8;
  int radiusLarge = 14;
  int columnWidth = 760;  // widest line of chat text
  int iconSize = 16;
};

struct Theme {
  ThemeKind kind = ThemeKind::kLight;
  ThemeColors colors;
  ThemeMetrics metrics;
  QFont textFont;     // chat text
  QFont controlFont;  // buttons, lists, labels
  QFont smallFont;    // footers, legends
  QFont codeFont;

  bool isDark() const { return kind == ThemeKind::kDark; }
};

/// `textScale` (0.5 to 3) multiplies all font sizes. Families are named one by one, because Qt's
/// default family shows some emoji black and white and breaks those joined from several.
Theme makeTheme(ThemeKind kind, double textScale = 1.0);

/// Palette, font and the few style sheet rules the palette cannot say, for the whole application.
void applyTheme(QApplication& application, const Theme& theme);

/// The style sheet that applyTheme() sets.
QString styleSheet(const Theme& theme);

/// Contrast of two opaque colours, 1 to 21 (WCAG 2.1, "contrast ratio").
double contrastRatio(const QColor& first, const QColor& second);

}  // namespace longhand::ui
