#pragma once
// What the window remembers of its looks: which sides are shown, where the splitters stand, the
// theme, the folder of documents. Kept as JSON in the settings; anything unreadable becomes the
// default.

#include <QByteArray>
#include <QString>

#include "ui/style/theme.h"

namespace longhand::ui {

struct WindowLayout {
  QByteArray splitter;  // QSplitter::saveState; empty: the default widths
  bool showsSidebar = true;
  bool showsRightPane = true;
  bool showsSettings = false;  // of the right pane's two pages
  ThemeKind theme = ThemeKind::kLight;
  QString documentFolder;  // where the open dialog begins; empty: the home folder

  static WindowLayout fromJson(const QByteArray& json, ThemeKind defaultTheme);
  QByteArray toJson() const;
};

}  // namespace longhand::ui
