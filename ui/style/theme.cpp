#include "ui/style/theme.h"

#include <algorithm>
#include <cmath>

#include <QApplication>
#include <QPalette>
#include <QStringList>
#include <QStyleFactory>

namespace longhand::ui {
namespace {

ThemeColors lightColors() {
  ThemeColors c;
  c.window = QColor(0xf5f5f3);
  c.surface = QColor(0xfefefd);
  c.raised = QColor(0xffffff);
  c.hover = QColor(0xebebe8);
  c.selected = QColor(0xe2e6f2);
  c.bubble = QColor(0xeef0f6);
  c.codeBox = QColor(0xf6f6f4);
  c.codeInline = QColor(0xeeeeeb);
  c.separator = QColor(0xe6e6e2);
  c.border = QColor(0xd4d4cf);
  c.text = QColor(0x23252b);
  c.textMuted = QColor(0x5c6069);
  c.textDisabled = QColor(0x9a9da5);
  c.link = QColor(0x2a55b8);
  c.error = QColor(0xb3261e);
  c.warning = QColor(0x8a5300);
  c.success = QColor(0x1f6e3c);
  c.accent = QColor(0x3a5fc4);
  c.accentText = QColor(0xffffff);
  c.selection = QColor(0xc3d3fb);
  c.findMatch = QColor(0xfff0a8);
  c.findCurrent = QColor(0xffc46b);
  c.codeKeyword = QColor(0x8a2f87);
  c.codeString = QColor(0x2c6a2f);
  c.codeComment = QColor(0x646871);
  c.codeNumber = QColor(0x9a4a08);
  c.memoryWeights = QColor(0x3d5a9e);
  c.memoryKvCodes = QColor(0x1d9a8a);
  c.memoryKvScales = QColor(0x7cc7ba);
  c.memoryKvExact = QColor(0xd58a1f);
  c.memoryWorkspace = QColor(0x9a6bc4);
  c.memoryUnattributed = QColor(0xa8838c);
  c.memoryOther = QColor(0xb4b6bd);
  c.memoryFree = QColor(0xe6e6e2);
  return c;
}

ThemeColors darkColors() {
  ThemeColors c;
  c.window = QColor(0x191a1d);
  c.surface = QColor(0x1f2024);
  c.raised = QColor(0x292b30);
  c.hover = QColor(0x2e3036);
  c.selected = QColor(0x343a4c);
  c.bubble = QColor(0x2f323b);
  c.codeBox = QColor(0x18191c);
  c.codeInline = QColor(0x33353c);
  c.separator = QColor(0x2f3136);
  c.border = QColor(0x41444b);
  // Below pure white: Noto's CJK looks a step bolder than its Latin on dark.
  c.text = QColor(0xdcdde1);
  c.textMuted = QColor(0xa3a7b0);
  c.textDisabled = QColor(0x6d717a);
  c.link = QColor(0x93b4ff);
  c.error = QColor(0xff9c92);
  c.warning = QColor(0xf0b35c);
  c.success = QColor(0x83cf9b);
  c.accent = QColor(0x4a6cd0);
  c.accentText = QColor(0xffffff);
  c.selection = QColor(0x36508f);
  c.findMatch = QColor(0x55501f);
  c.findCurrent = QColor(0x7d5410);
  c.codeKeyword = QColor(0xd7a0e6);
  c.codeString = QColor(0x9fcf8f);
  c.codeComment = QColor(0x959aa4);
  c.codeNumber = QColor(0xecb07a);
  c.memoryWeights = QColor(0x6d8ddb);
  c.memoryKvCodes = QColor(0x2fb3a1);
  c.memoryKvScales = QColor(0x90d8cc);
  c.memoryKvExact = QColor(0xe2a144);
  c.memoryWorkspace = QColor(0xae86d6);
  c.memoryUnattributed = QColor(0x94727b);
  c.memoryOther = QColor(0x6a6d75);
  c.memoryFree = QColor(0x303238);
  return c;
}

QFont makeFont(const QStringList& families, double pixels) {
  QFont font;
  font.setFamilies(families);
  font.setPixelSize(std::max(1, static_cast<int>(std::lround(pixels))));
  return font;
}

double linearChannel(double value) {
  return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
}

double luminance(const QColor& color) {
  return 0.2126 * linearChannel(color.redF()) + 0.7152 * linearChannel(color.greenF()) +
         0.0722 * linearChannel(color.blueF());
}

QPalette makePalette(const ThemeColors& c) {
  QPalette palette;
  palette.setColor(QPalette::Window, c.window);
  palette.setColor(QPalette::WindowText, c.text);
  palette.setColor(QPalette::Base, c.raised);
  palette.setColor(QPalette::AlternateBase, c.surface);
  palette.setColor(QPalette::Text, c.text);
  palette.setColor(QPalette::PlaceholderText, c.textMuted);
  palette.setColor(QPalette::Button, c.raised);
  palette.setColor(QPalette::ButtonText, c.text);
  palette.setColor(QPalette::BrightText, c.error);
  palette.setColor(QPalette::ToolTipBase, c.raised);
  palette.setColor(QPalette::ToolTipText, c.text);
  palette.setColor(QPalette::Highlight, c.accent);
  palette.setColor(QPalette::HighlightedText, c.accentText);
  palette.setColor(QPalette::Link, c.link);
  palette.setColor(QPalette::LinkVisited, c.link);
  palette.setColor(QPalette::Light, c.hover);
  palette.setColor(QPalette::Midlight, c.separator);
  palette.setColor(QPalette::Mid, c.border);
  palette.setColor(QPalette::Dark, c.textMuted);
  palette.setColor(QPalette::Shadow, c.border);
  for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText}) {
    palette.setColor(QPalette::Disabled, role, c.textDisabled);
  }
  palette.setColor(QPalette::Disabled, QPalette::Highlight, c.hover);
  palette.setColor(QPalette::Disabled, QPalette::HighlightedText, c.textDisabled);
  return palette;
}

}  // namespace

Theme makeTheme(ThemeKind kind, double textScale) {
  const double scale = std::clamp(textScale, 0.5, 3.0);
  const QStringList sans = {QStringLiteral("Noto Sans"), QStringLiteral("Noto Sans CJK SC"),
                            QStringLiteral("Noto Color Emoji")};
  const QStringList mono = {QStringLiteral("Noto Sans Mono"),
                            QStringLiteral("Noto Sans Mono CJK SC"),
                            QStringLiteral("Noto Color Emoji")};
  Theme theme;
  theme.kind = kind;
  theme.colors = kind == ThemeKind::kDark ? darkColors() : lightColors();
  theme.textFont = makeFont(sans, 15.0 * scale);
  theme.controlFont = makeFont(sans, 13.0 * scale);
  theme.smallFont = makeFont(sans, 12.0 * scale);
  theme.codeFont = makeFont(mono, 13.0 * scale);
  theme.codeFont.setStyleHint(QFont::Monospace);
  theme.metrics.columnWidth = static_cast<int>(std::lround(760.0 * scale));
  return theme;
}

QString styleSheet(const Theme& theme) {
  const ThemeColors& c = theme.colors;
  QString sheet = QStringLiteral(
      "QToolTip { color: %text; background: %raised; border: 1px solid %border; padding: 6px; }\n"
      "QScrollBar { background: transparent; border: none; margin: 0; }\n"
      "QScrollBar:vertical { width: 12px; }\n"
      "QScrollBar:horizontal { height: 12px; }\n"
      "QScrollBar::handle { background: %border; border-radius: 3px; margin: 3px; }\n"
      "QScrollBar::handle:vertical { min-height: 32px; }\n"
      "QScrollBar::handle:horizontal { min-width: 32px; }\n"
      "QScrollBar::handle:hover { background: %muted; }\n"
      "QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }\n"
      "QScrollBar::add-page, QScrollBar::sub-page { background: none; }\n"
      "QMenu { background: %raised; color: %text; border: 1px solid %border; padding: 4px; }\n"
      "QMenu::item { padding: 6px 24px 6px 12px; border-radius: 4px; }\n"
      "QMenu::item:selected { background: %selected; }\n"
      "QMenu::item:disabled { color: %disabled; }\n"
      "QMenu::separator { height: 1px; background: %separator; margin: 4px 8px; }\n");
  const std::pair<const char16_t*, QColor> names[] = {
      {u"%text", c.text},          {u"%raised", c.raised},     {u"%border", c.border},
      {u"%muted", c.textMuted},    {u"%selected", c.selected}, {u"%disabled", c.textDisabled},
      {u"%separator", c.separator}};
  for (const auto& [name, color] : names) {
    sheet.replace(QString::fromUtf16(name), color.name());
  }
  return sheet;
}

void applyTheme(QApplication& application, const Theme& theme) {
  if (QStyle* fusion = QStyleFactory::create(QStringLiteral("Fusion"))) {
    QApplication::setStyle(fusion);
  }
  QApplication::setPalette(makePalette(theme.colors));
  QApplication::setFont(theme.controlFont);
  application.setStyleSheet(styleSheet(theme));
}

double contrastRatio(const QColor& first, const QColor& second) {
  const double a = luminance(first) + 0.05;
  const double b = luminance(second) + 0.05;
  return a > b ? a / b : b / a;
}

}  // namespace longhand::ui
