#pragma once
// The style sheet of the main window's own widgets. Rules name properties, not widgets:
//   QLabel  textRole    title, heading, section, secondary, warning, plain
//   QPushButton buttonRole  primary, badge, link
// Spin and combo boxes keep the Fusion look: a sheet on them would cost their arrows.

#include <QString>

#include "ui/style/theme.h"

namespace longhand::ui {

QString windowStyleSheet(const Theme& theme);

}  // namespace longhand::ui
