#pragma once
// The window's line icons, drawn from paths on a 16 x 16 grid: sharp at every size, in any colour.

#include <QColor>
#include <QIcon>
#include <QRectF>

class QPainter;

namespace longhand::ui {

enum class IconKind {
  kSend,
  kStop,
  kCopy,
  kCheck,
  kEdit,
  kRegenerate,
  kPrevious,
  kNext,
  kDown,
  kDocument,
  kAttach,
  kSearch,
  kClose,
  kAdd,
  kSettings,
  kSidebar,
  kMore,
};

/// Fills the square `rect` with the icon.
void paintIcon(QPainter& painter, IconKind kind, const QRectF& rect, const QColor& color);

/// An icon of 16, 24, 32 and 48 pixels. `disabled` may be invalid: then a paler `color`.
QIcon makeIcon(IconKind kind, const QColor& color, const QColor& disabled = {});

}  // namespace longhand::ui
