#pragma once
// The strip at the bottom of the window: where every byte of the device's memory is.
//
// Segments sum to the device's total. A dashed line forecasts the full context. When Longhand's own
// part is too small to be seen beside the rest, a second bar shows that part alone.

#include <cstdint>
#include <optional>
#include <vector>

#include <QString>
#include <QWidget>

#include "engine/engine.h"
#include "ui/theme.h"

class QPainter;

namespace longhand::ui {

struct MemoryStripData {
  engine::MemoryUse use;                      // the ledger
  engine::MemoryUse unused;                   // of `use`: reserved, no token stands there yet
  std::uint64_t totalBytes = 0;               // of the device; 0: unknown, the strip says so
  std::uint64_t freeBytes = 0;                // of the device
  std::uint64_t processBytes = 0;             // held by this process on the device
  QString deviceName;                         // "Main memory", "NVIDIA GeForce RTX 4090"
  std::optional<engine::MemoryUse> forecast;  // with the chosen context full
  QString forecastLabel;                      // "Balanced, 100,000 tokens"
};

/// The numbers of an engine's report.
MemoryStripData memoryStripData(const engine::MemoryReport& report);

enum class MemorySegmentKind {
  kWeights,
  kKvCodes,
  kKvScales,
  kKvExact,
  kWorkspace,
  kUnattributed,  // the process's bytes that no category counts
  kOther,         // other processes
  kFree,
};
inline constexpr int kMemorySegmentKinds = 8;

struct MemorySegment {
  MemorySegmentKind kind = MemorySegmentKind::kFree;
  std::uint64_t bytes = 0;
  std::uint64_t unusedBytes = 0;  // of `bytes`: reserved for the cache and painted lighter
};

/// All eight kinds in order; their bytes sum to data.totalBytes. Where the ledger counts more than
/// the process holds (reserved, not yet touched), the ledger wins. Empty when the total is unknown.
std::vector<MemorySegment> memorySegments(const MemoryStripData& data);

/// "KV codes", ...
QString memorySegmentName(MemorySegmentKind kind);
/// "13.70 GiB", "24.5 MiB", "512 B"; always binary units.
QString formatBytes(std::uint64_t bytes);

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
