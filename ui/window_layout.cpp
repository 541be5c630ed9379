#include "ui/window_layout.h"

#include <QJsonDocument>
#include <QJsonObject>

using namespace Qt::StringLiterals;

namespace longhand::ui {

WindowLayout WindowLayout::fromJson(const QByteArray& json, ThemeKind defaultTheme) {
  const QJsonObject object = QJsonDocument::fromJson(json).object();
  WindowLayout layout;
  layout.splitter = QByteArray::fromBase64(object.value("splitter"_L1).toString().toLatin1());
  layout.showsSidebar = object.value("sidebar"_L1).toBool(true);
  layout.showsRightPane = object.value("right_pane"_L1).toBool(true);
  layout.showsSettings = object.value("settings"_L1).toBool(false);
  layout.documentFolder = object.value("document_folder"_L1).toString();
  const QString theme = object.value("theme"_L1).toString();
  layout.theme = theme == "dark"_L1    ? ThemeKind::kDark
                 : theme == "light"_L1 ? ThemeKind::kLight
                                       : defaultTheme;
  return layout;
}

QByteArray WindowLayout::toJson() const {
  const QJsonObject object = {{u"splitter"_s, QString::fromLatin1(splitter.toBase64())},
                              {u"sidebar"_s, showsSidebar},
                              {u"right_pane"_s, showsRightPane},
                              {u"settings"_s, showsSettings},
                              {u"document_folder"_s, documentFolder},
                              {u"theme"_s, theme == ThemeKind::kDark ? u"dark"_s : u"light"_s}};
  return QJsonDocument(object).toJson(QJsonDocument::Compact);
}

}  // namespace longhand::ui
