#include "ui/style/window_style.h"

#include <utility>

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

const QString kTexts =
    uR"(
QLabel[textRole="display"] { font-size: @displayPx; font-weight: 600; color: @text; }
QLabel[textRole="title"] { font-size: @titlePx; font-weight: 600; color: @text; }
QLabel[textRole="heading"] { font-weight: 600; color: @text; }
QLabel[textRole="section"] { font-size: @smallPx; font-weight: 600; color: @muted; }
QLabel[textRole="secondary"] { font-size: @smallPx; color: @muted; }
QLabel[textRole="warning"] { font-size: @smallPx; color: @warning; }
QLabel[textRole="plain"] { color: @text; }
)"_s;

const QString kButtons =
    uR"(
QPushButton { background: @raised; color: @text; border: 1px solid @border; border-radius: 6px;
              padding: 5px 12px; min-height: 18px; }
QPushButton:hover { background: @hover; }
QPushButton:pressed { background: @selected; }
QPushButton:focus { border: 1px solid @accent; }
QPushButton:disabled { color: @disabled; background: transparent; border-color: @separator; }
QPushButton[buttonRole="primary"] { background: @accent; color: @onAccent; border-color: @accent; }
QPushButton[buttonRole="primary"]:hover { background: @accentHover; }
QPushButton[buttonRole="primary"]:focus { border: 1px solid @text; }
QPushButton[buttonRole="primary"]:disabled { background: @hover; color: @disabled;
                                             border-color: @hover; }
QPushButton[buttonRole="badge"] { background: transparent; color: @warning;
                                  border: 1px solid @warning; border-radius: 10px;
                                  padding: 1px 10px; font-size: @smallPx; }
QPushButton[buttonRole="badge"]:hover { background: @hover; }
QPushButton[buttonRole="link"] { background: transparent; color: @accent; border: none; padding: 0px;
  font-size: @smallPx; min-height: 0px; }
QPushButton[buttonRole="link"]:hover, QPushButton[buttonRole="link"]:focus {
  text-decoration: underline; }
QPushButton[buttonRole="question"] { background: @raised; border-radius: 10px; padding: 8px 14px;
                                     text-align: left; }
QPushButton[buttonRole="question"]:hover { background: @hover; border-color: @accent; }
QPushButton[buttonRole="question"]:disabled { background: transparent; }
QPushButton[flat="true"] { background: transparent; border: 1px solid transparent;
                           padding: 3px 5px; }
QPushButton[flat="true"]:hover { background: @hover; }
QPushButton[flat="true"]:focus { border: 1px solid @accent; }
QToolButton { background: transparent; color: @muted; border: 1px solid transparent;
              border-radius: 6px; padding: 4px; }
QToolButton:hover { background: @hover; color: @text; }
QToolButton:checked { background: @selected; color: @text; }
QToolButton:focus { border: 1px solid @accent; }
QToolButton::menu-indicator { image: none; width: 0; }
)"_s;

const QString kAreas =
    uR"(
QWidget#topBar { background: @window; border-bottom: 1px solid @separator; }
QWidget#sidebar { background: @window; }
QWidget#rightPane, QWidget#chatPane, QDialog#qualityDialog { background: @surface; }
QWidget#bottomArea { background: @window; border-top: 1px solid @separator; }
QWidget#settingsFooter { border-top: 1px solid @separator; }
QSplitter::handle { background: @separator; }
QLineEdit#searchField, QLineEdit#findField {
  background: @raised; color: @text; border: 1px solid @border; border-radius: 6px;
  padding: 4px 8px; selection-background-color: @selection; selection-color: @text; }
QLineEdit#searchField:focus, QLineEdit#findField:focus {
  border: 1px solid @accent; }
QListView#conversationList, QListWidget#documentList { background: transparent; outline: none; }
QListWidget#documentList::item { padding: 4px 8px; margin: 0 8px; border-radius: 6px;
                                 color: @text; }
QListWidget#documentList::item:hover { background: @hover; }
QListWidget#documentList::item:selected { background: @selected; color: @text; }
QScrollArea, QWidget#documentContent, QWidget#settingsContent, QWidget#welcomeContent,
QWidget#qualityContent {
  background: transparent; }
QPlainTextEdit#documentText { background: @surface; color: @text; padding: 8px 10px;
                              border-top: 1px solid @separator;
                              selection-background-color: @selection; selection-color: @text; }
)"_s;

const QString kCards =
    uR"(
QFrame#errorBar { background: @raised; border: 1px solid @error; border-radius: 8px; }
QFrame#errorBar QLabel#errorBarText { color: @error; }
QFrame#presetBar { background: @raised; border: 1px solid @accent; border-radius: 8px; }
QFrame#noticeBar { background: @raised; border: 1px solid @border; border-radius: 8px; }
QFrame#undoBar { background: @raised; border: 1px solid @border; border-radius: 8px;
                 margin: 0 10px; }
QFrame#findBar { background: @raised; border: 1px solid @border; border-radius: 8px; }
QFrame#loadingCard, QFrame#readingCard, QFrame#workCard, QFrame#documentProgress,
QFrame#qualityProgress {
  background: @raised; border: 1px solid @border; border-radius: 8px; }
QProgressBar { background: @hover; border: none; border-radius: 3px; min-height: 6px;
               max-height: 6px; }
QProgressBar::chunk { background: @accent; border-radius: 3px; }
QTableWidget#forecastTable { background: transparent; color: @text; font-size: @smallPx; }
QTableWidget#forecastTable::item { padding: 4px 6px; border-bottom: 1px solid @separator; }
QTableWidget#forecastTable:focus { border: 1px solid @accent; }
QTableWidget#forecastTable QHeaderView { background: transparent; border: none; }
QTableWidget#forecastTable QHeaderView::section {
  background: transparent; color: @muted; border: none; border-bottom: 1px solid @border;
  padding: 4px 9px; font-size: @smallPx; font-weight: 600; }
QTableWidget#qualityTable { background: transparent; color: @text; }
QTableWidget#qualityTable::item { padding: 2px 8px 6px 8px; border-bottom: 1px solid @separator; }
QTableWidget#qualityTable:focus { border: 1px solid @accent; }
QTableWidget#qualityTable QHeaderView { background: transparent; border: none; }
QTableWidget#qualityTable QHeaderView::section {
  background: transparent; color: @muted; border: none; border-bottom: 1px solid @border;
  padding: 4px 11px; font-size: @smallPx; font-weight: 600; }
QTabBar::tab { background: transparent; color: @muted; padding: 7px 12px; border: none;
               border-bottom: 2px solid transparent; }
QTabBar::tab:selected { color: @text; border-bottom: 2px solid @accent; }
QTabBar::tab:hover { color: @text; }
QTabBar::tab:focus { color: @text; border-bottom: 2px solid @text; }
QTextBrowser { background: @surface; color: @text; border: 1px solid @separator;
               border-radius: 6px; padding: 8px; }
)"_s;

}  // namespace

QString windowStyleSheet(const Theme& theme) {
  const ThemeColors& c = theme.colors;
  const auto pixels = [](const QFont& font, int more) {
    return u"%1px"_s.arg(font.pixelSize() + more);
  };
  QString sheet = kTexts + kButtons + kAreas + kCards;
  // Longer names first: "@accentHover" must not be read as "@accent".
  const std::pair<QString, QString> values[] = {
      {u"@accentHover"_s, c.accent.lighter(theme.isDark() ? 115 : 110).name()},
      {u"@accent"_s, c.accent.name()},
      {u"@onAccent"_s, c.accentText.name()},
      {u"@border"_s, c.border.name()},
      {u"@displayPx"_s, pixels(theme.textFont, 7)},
      {u"@disabled"_s, c.textDisabled.name()},
      {u"@error"_s, c.error.name()},
      {u"@hover"_s, c.hover.name()},
      {u"@muted"_s, c.textMuted.name()},
      {u"@raised"_s, c.raised.name()},
      {u"@selected"_s, c.selected.name()},
      {u"@selection"_s, c.selection.name()},
      {u"@separator"_s, c.separator.name()},
      {u"@smallPx"_s, pixels(theme.smallFont, 0)},
      {u"@surface"_s, c.surface.name()},
      {u"@titlePx"_s, pixels(theme.textFont, 1)},
      {u"@text"_s, c.text.name()},
      {u"@warning"_s, c.warning.name()},
      {u"@window"_s, c.window.name()},
  };
  for (const auto& [name, value] : values) sheet.replace(name, value);
  return sheet;
}

}  // namespace longhand::ui
