#include "ui/style/icons.h"

#include <array>

#include <QPainter>
#include <QPainterPath>
#include <QPixmap>

namespace longhand::ui {
namespace {

using Point = std::array<double, 2>;

void addLine(QPainterPath& path, std::initializer_list<Point> points, bool closed = false) {
  bool first = true;
  for (const auto& [x, y] : points) {
    if (first) {
      path.moveTo(x, y);
    } else {
      path.lineTo(x, y);
    }
    first = false;
  }
  if (closed) path.closeSubpath();
}

void addPage(QPainterPath& path) {
  addLine(path, {{9, 1.75}, {3.5, 1.75}, {3.5, 14.25}, {12.5, 14.25}, {12.5, 5.25}}, false);
  addLine(path, {{9, 1.75}, {12.5, 5.25}});
  addLine(path, {{9, 1.75}, {9, 5.25}, {12.5, 5.25}});
}

void addGear(QPainterPath& path) {
  // Three sliders read better at 16 pixels than a gear.
  for (const auto& [y, knob] : {Point{4, 10.5}, Point{8, 5.5}, Point{12, 9}}) {
    addLine(path, {{2, y}, {knob - 1.75, y}});
    addLine(path, {{knob + 1.75, y}, {14, y}});
    path.addEllipse(QPointF(knob, y), 1.75, 1.75);
  }
}

/// Lines of the icon on the 16 x 16 grid; kStop and kMore are filled instead.
QPainterPath iconPath(IconKind kind) {
  QPainterPath path;
  switch (kind) {
    case IconKind::kSend:
      addLine(path, {{8, 13}, {8, 3.25}});
      addLine(path, {{3.5, 7.5}, {8, 3}, {12.5, 7.5}});
      break;
    case IconKind::kStop:
      path.addRoundedRect(QRectF(4, 4, 8, 8), 1.5, 1.5);
      break;
    case IconKind::kCopy:
      path.addRoundedRect(QRectF(5.75, 5.75, 8, 8), 1.5, 1.5);
      addLine(path, {{3.25, 10.25}, {2.25, 10.25}, {2.25, 2.25}, {10.25, 2.25}, {10.25, 3.25}});
      break;
    case IconKind::kCheck:
      addLine(path, {{3, 8.5}, {6.5, 12}, {13, 4.5}});
      break;
    case IconKind::kEdit:
      addLine(path, {{2.5, 13.5}, {3.25, 10.5}, {11, 2.75}, {13.25, 5}, {5.5, 12.75}}, true);
      addLine(path, {{9.5, 4.25}, {11.75, 6.5}});
      break;
    case IconKind::kRegenerate:
      path.arcMoveTo(QRectF(2.75, 2.75, 10.5, 10.5), 30);
      path.arcTo(QRectF(2.75, 2.75, 10.5, 10.5), 30, 290);
      addLine(path, {{13, 1.75}, {13, 5.25}, {9.5, 5.25}});
      break;
    case IconKind::kPrevious:
      addLine(path, {{9.75, 3.75}, {5.5, 8}, {9.75, 12.25}});
      break;
    case IconKind::kNext:
      addLine(path, {{6.25, 3.75}, {10.5, 8}, {6.25, 12.25}});
      break;
    case IconKind::kDown:
      addLine(path, {{3.75, 6.25}, {8, 10.5}, {12.25, 6.25}});
      break;
    case IconKind::kDocument:
      addPage(path);
      addLine(path, {{5.75, 8.5}, {10.25, 8.5}});
      addLine(path, {{5.75, 11.25}, {10.25, 11.25}});
      break;
    case IconKind::kAttach:
      path.moveTo(12.75, 7.25);
      path.lineTo(7.6, 12.4);
      path.cubicTo(6.0, 14.0, 2.4, 11.4, 4.1, 8.9);
      path.lineTo(9.4, 3.6);
      path.cubicTo(10.9, 2.2, 13.2, 4.3, 11.6, 6.0);
      path.lineTo(6.9, 10.7);
      path.cubicTo(6.1, 11.4, 5.0, 10.4, 5.8, 9.5);
      path.lineTo(9.9, 5.4);
      break;
    case IconKind::kSearch:
      path.addEllipse(QPointF(7, 7), 4.5, 4.5);
      addLine(path, {{10.4, 10.4}, {14, 14}});
      break;
    case IconKind::kClose:
      addLine(path, {{3.75, 3.75}, {12.25, 12.25}});
      addLine(path, {{12.25, 3.75}, {3.75, 12.25}});
      break;
    case IconKind::kAdd:
      addLine(path, {{8, 2.75}, {8, 13.25}});
      addLine(path, {{2.75, 8}, {13.25, 8}});
      break;
    case IconKind::kSettings:
      addGear(path);
      break;
    case IconKind::kSidebar:
      path.addRoundedRect(QRectF(1.75, 2.75, 12.5, 10.5), 1.5, 1.5);
      addLine(path, {{6.25, 2.75}, {6.25, 13.25}});
      break;
    case IconKind::kMore:
      for (const double x : {3.5, 8.0, 12.5}) path.addEllipse(QPointF(x, 8), 1.3, 1.3);
      break;
  }
  return path;
}

QPixmap iconPixmap(IconKind kind, int size, const QColor& color) {
  QPixmap pixmap(size, size);
  pixmap.fill(Qt::transparent);
  QPainter painter(&pixmap);
  paintIcon(painter, kind, QRectF(0, 0, size, size), color);
  return pixmap;
}

}  // namespace

void paintIcon(QPainter& painter, IconKind kind, const QRectF& rect, const QColor& color) {
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.translate(rect.topLeft());
  painter.scale(rect.width() / 16.0, rect.height() / 16.0);
  if (kind == IconKind::kStop || kind == IconKind::kMore) {
    painter.fillPath(iconPath(kind), color);
  } else {
    const double width = kind == IconKind::kSend || kind == IconKind::kCheck ? 1.8 : 1.3;
    painter.setPen(QPen(color, width, Qt::SolidLine, Qt::RoundCap, Qt::RoundJoin));
    painter.setBrush(Qt::NoBrush);
    painter.drawPath(iconPath(kind));
  }
  painter.restore();
}

QIcon makeIcon(IconKind kind, const QColor& color, const QColor& disabled) {
  QColor pale = disabled;
  if (!pale.isValid()) {
    pale = color;
    pale.setAlphaF(0.4F);
  }
  QIcon icon;
  for (const int size : {16, 24, 32, 48}) {
    icon.addPixmap(iconPixmap(kind, size, color), QIcon::Normal);
    icon.addPixmap(iconPixmap(kind, size, pale), QIcon::Disabled);
  }
  return icon;
}

}  // namespace longhand::ui
