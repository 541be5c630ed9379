#pragma once
// The strip at the bottom of the window: where every byte of the device's memory is.
//
// Segments sum to the device's total. A dashed line forecasts the full context. When Longhand's own
// part is too small to be seen beside the rest, a second bar shows that part alone.

#include <optional>
#include <vector>

#include <QString>
#include <QWidget>

#include "ui/memory/memory_segments.h"
#include "ui/style/theme.h"

class QPainter;

namespace longhand::ui {

class MemoryStrip final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(MemoryStrip)

 public:
  explicit MemoryStrip(const Theme& theme, QWidget* parent = nullptr);

  void setTheme(const Theme& theme);
  void setData(const MemoryStripData& data);
  const MemoryStripData& data() const { return data_; }

  /// Everything the strip shows, in sentences; also its accessible description.
  QString textEquivalent() const;
  /// True when the second bar is shown.
  bool isZoomed() const;
  /// The segment at a point; nullopt outside the bars.
  std::optional<MemorySegment> segmentAt(const QPoint& point) const;
  /// Where a segment is painted (in the zoomed bar for Longhand's own, when there is one); empty
  /// when it has no bytes.
  QRectF segmentRect(MemorySegmentKind kind) const;

  QSize sizeHint() const override;
  QSize minimumSizeHint() const override;

 protected:
  bool event(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  struct Bar;
  struct LegendEntry;
  std::vector<Bar> bars() const;
  /// The legend broken into rows of the strip's width.
  std::vector<LegendEntry> legend() const;
  int legendRows() const;
  void paintLegend(QPainter& painter, double top) const;

  Theme theme_;
  MemoryStripData data_;
  std::vector<MemorySegment> segments_;
  int shownRows_ = 1;  // of the legend, in the geometry last asked for
};

}  // namespace longhand::ui
