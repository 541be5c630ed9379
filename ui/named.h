#pragma once
// Every control of the window has an object name (for tests and style sheets) and an accessible
// name (for screen readers): `auto* stop = named(new QPushButton(tr("Stop")), u"stopButton"_s,
// ...)`.

#include <QString>
#include <QWidget>

namespace longhand::ui {

template <typename Widget>
Widget* named(Widget* widget, const QString& objectName, const QString& accessibleName) {
  widget->setObjectName(objectName);
  widget->setAccessibleName(accessibleName);
  return widget;
}

}  // namespace longhand::ui
