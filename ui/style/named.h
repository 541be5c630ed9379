#pragma once
// Every control of the window has an object name (for tests and style sheets) and an accessible
// name (for screen readers): `auto* stop = named(new QPushButton(tr("Stop")), u"stopButton"_s,
// ...)`.

#include <QString>
#include <QStyle>
#include <QWidget>

namespace longhand::ui {

template <typename Widget>
Widget* named(Widget* widget, const QString& objectName, const QString& accessibleName) {
  widget->setObjectName(objectName);
  widget->setAccessibleName(accessibleName);
  return widget;
}

/// Sets a property that style sheet rules ask for, and applies the rules anew: Qt looks at them
/// only when a widget is first shown.
inline void setStyleProperty(QWidget& widget, const char* name, const QString& value) {
  widget.setProperty(name, value);
  widget.style()->unpolish(&widget);
  widget.style()->polish(&widget);
}

}  // namespace longhand::ui
