#include "ui/memory/memory_strip.h"

#include <algorithm>
#include <cmath>

#include <QHelpEvent>
#include <QPainter>
#include <QPainterPath>
#include <QToolTip>

#include "ui/style/format.h"

namespace longhand::ui {
namespace {

constexpr int kMarginX = 14;
constexpr int kMarginY = 7;
constexpr int kBarHeight = 10;
constexpr int kBarGap = 6;
constexpr int kLegendGap = 6;
constexpr int kSwatch = 9;
constexpr double kMinSegment = 3;  // a segment with bytes is never thinner
// Below this share of the total, Longhand's own memory gets a bar of its own.
constexpr double kZoomShare = 0.25;
// A forecast farther out than this stands at the end of that bar.
constexpr double kMaxForecastShare = 4;

/// Over a segment's color: the part that is reserved and holds nothing yet.
QColor unusedVeil(const ThemeColors& colors) {
  QColor veil = colors.window;
  veil.setAlphaF(0.6F);
  return veil;
}

}  // namespace

/// A painted bar: its segments with their places, and where the forecast stands.
struct MemoryStrip::Bar {
  QRectF rect;
  std::vector<std::pair<MemorySegment, QRectF>> segments;  // those with bytes
  double forecastX = -1;                                   // below 0: none
  QString label;
};

MemoryStrip::MemoryStrip(const Theme& theme, QWidget* parent) : QWidget(parent), theme_(theme) {
  setObjectName(QStringLiteral("memoryStrip"));
  setAccessibleName(tr("Memory"));
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  setAccessibleDescription(textEquivalent());
}

void MemoryStrip::setTheme(const Theme& theme) {
  theme_ = theme;
  updateGeometry();
  update();
}

void MemoryStrip::setData(const MemoryStripData& data) {
  const int height = sizeHint().height();
  data_ = data;
  segments_ = memorySegments(data);
  setAccessibleDescription(textEquivalent());
  shownRows_ = legendRows();
  if (sizeHint().height() != height) updateGeometry();
  update();
}

bool MemoryStrip::isZoomed() const {
  const std::uint64_t own = ownMemoryBytes(segments_);
  return own > 0 && static_cast<double>(own) < kZoomShare * static_cast<double>(data_.totalBytes);
}

QString MemoryStrip::textEquivalent() const {
  if (segments_.empty()) return tr("Memory: not known.");
  QStringList parts;
  for (const MemorySegment& segment : segments_) {
    parts.append(QStringLiteral("%1 %2").arg(memorySegmentName(segment.kind),
                                             formatBytes(segment.bytes - segment.unusedBytes)));
  }
  if (const std::uint64_t unused = unusedMemoryBytes(segments_); unused > 0) {
    parts.append(tr("reserved for the cache %1").arg(formatBytes(unused)));
  }
  const QString device = data_.deviceName.isEmpty() ? tr("Memory") : data_.deviceName;
  QString text = tr("%1, %2 in all: %3.")
                     .arg(device, formatBytes(data_.totalBytes), parts.join(QStringLiteral(", ")));
  if (data_.forecast) {
    text += tr(" Forecast for %1: %2 for the model, its cache and its workspace; what is "
               "unattributed comes on top.")
                .arg(data_.forecastLabel.isEmpty() ? tr("the full context") : data_.forecastLabel,
                     formatBytes(data_.forecast->total()));
    if (data_.forecast->total() > data_.totalBytes) text += tr(" This does not fit the device.");
  }
  return text;
}

QSize MemoryStrip::sizeHint() const {
  const int line = QFontMetrics(theme_.smallFont).height();
  const int bars = isZoomed() ? 2 * kBarHeight + kBarGap : kBarHeight;
  const int rows = legendRows();
  return {640, 2 * kMarginY + bars + kLegendGap + rows * line + (rows - 1) * 2};
}

QSize MemoryStrip::minimumSizeHint() const { return {240, sizeHint().height()}; }

namespace {

/// Widths of segments in proportion, but none below kMinSegment; the widest pay for it.
std::vector<double> segmentWidths(const std::vector<MemorySegment>& segments, double total,
                                  double width) {
  std::vector<double> widths;
  double missing = 0;
  double rich = 0;
  for (const MemorySegment& segment : segments) {
    double w = segment.bytes == 0 ? 0 : width * static_cast<double>(segment.bytes) / total;
    if (segment.bytes > 0 && w < kMinSegment) {
      missing += kMinSegment - w;
      w = kMinSegment;
    } else if (w > 4 * kMinSegment) {
      rich += w;
    }
    widths.push_back(w);
  }
  if (rich <= 0) return widths;
  for (double& w : widths) {
    if (w > 4 * kMinSegment) w -= missing * w / rich;
  }
  return widths;
}

}  // namespace

std::vector<MemoryStrip::Bar> MemoryStrip::bars() const {
  std::vector<Bar> result;
  if (segments_.empty()) return result;
  const auto makeBar = [&](const std::vector<MemorySegment>& segments, double total, double left,
                           double top) {
    Bar bar;
    bar.rect = QRectF(left, top, std::max(10.0, width() - kMarginX - left), kBarHeight);
    const std::vector<double> widths = segmentWidths(segments, total, bar.rect.width());
    double x = bar.rect.left();
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (segments[i].bytes == 0) continue;
      bar.segments.emplace_back(segments[i], QRectF(x, top, widths[i], kBarHeight));
      x += widths[i];
    }
    if (data_.forecast && total > 0) {
      // What is unattributed today stays beside the forecast's categories.
      const double forecast = static_cast<double>(
          data_.forecast->total() + memoryBytesOf(segments_, MemorySegmentKind::kUnattributed));
      bar.forecastX = bar.rect.left() + bar.rect.width() * std::min(1.0, forecast / total);
    }
    return bar;
  };
  const double total = static_cast<double>(data_.totalBytes);
  const QFontMetricsF metrics(theme_.smallFont);
  const QString deviceLabel = data_.deviceName.isEmpty() ? tr("Memory") : data_.deviceName;
  const QString ownLabel = tr("Longhand");
  double left = kMarginX;
  if (isZoomed()) {
    const double labels = std::max(std::min(metrics.horizontalAdvance(deviceLabel), 160.0),
                                   metrics.horizontalAdvance(ownLabel));
    left += std::ceil(labels) + 10;
  }
  result.push_back(makeBar(segments_, total, left, kMarginY));
  if (!isZoomed()) return result;
  result.back().label = deviceLabel;
  // Longhand's part, or its forecast where that is larger, fills the second bar.
  std::vector<MemorySegment> own;
  for (const MemorySegment& segment : segments_) {
    if (isOwnMemory(segment.kind)) own.push_back(segment);
  }
  const double ownNow = static_cast<double>(ownMemoryBytes(segments_));
  double scale = ownNow;
  if (data_.forecast) {
    const std::uint64_t forecast =
        data_.forecast->total() + memoryBytesOf(segments_, MemorySegmentKind::kUnattributed);
    scale = std::clamp(static_cast<double>(forecast), ownNow, ownNow * kMaxForecastShare);
  }
  result.front().forecastX = -1;
  result.push_back(makeBar(own, scale, left, kMarginY + kBarHeight + kBarGap));
  result.back().label = ownLabel;
  return result;
}

std::optional<MemorySegment> MemoryStrip::segmentAt(const QPoint& point) const {
  for (const Bar& bar : bars()) {
    for (const auto& [segment, rect] : bar.segments) {
      if (rect.adjusted(0, -3, 0, 3).contains(point)) return segment;
    }
  }
  return std::nullopt;
}

QRectF MemoryStrip::segmentRect(MemorySegmentKind kind) const {
  const std::vector<Bar> all = bars();
  for (auto bar = all.rbegin(); bar != all.rend(); ++bar) {
    for (const auto& [segment, rect] : bar->segments) {
      if (segment.kind == kind) return rect;
    }
  }
  return {};
}

bool MemoryStrip::event(QEvent* event) {
  if (event->type() == QEvent::ToolTip) {
    const auto* help = static_cast<QHelpEvent*>(event);
    if (const auto segment = segmentAt(help->pos())) {
      QToolTip::showText(help->globalPos(),
                         QStringLiteral("%1: %2%3\n%4")
                             .arg(memorySegmentName(segment->kind),
                                  formatBytes(segment->bytes - segment->unusedBytes),
                                  segment->unusedBytes == 0
                                      ? QString()
                                      : tr(" of %1 reserved").arg(formatBytes(segment->bytes)),
                                  memorySegmentHelp(segment->kind)),
                         this);
    } else {
      QToolTip::showText(help->globalPos(), textEquivalent(), this);
    }
    return true;
  }
  return QWidget::event(event);
}

void MemoryStrip::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  const ThemeColors& c = theme_.colors;
  painter.fillRect(rect(), c.window);
  painter.fillRect(QRect(0, 0, width(), 1), c.separator);
  painter.setFont(theme_.smallFont);
  const QFontMetricsF metrics(theme_.smallFont);
  if (segments_.empty()) {
    painter.setPen(c.textMuted);
    painter.drawText(rect().adjusted(kMarginX, 0, -kMarginX, 0), Qt::AlignVCenter,
                     tr("Memory: shown when a model is loaded"));
    return;
  }
  double bottom = 0;
  for (const Bar& bar : bars()) {
    painter.save();
    QPainterPath round;
    round.addRoundedRect(bar.rect, 4, 4);
    painter.setClipPath(round);
    painter.fillRect(bar.rect, c.memoryFree);
    for (const auto& [segment, place] : bar.segments) {
      painter.fillRect(place, memorySegmentColor(segment.kind, c));
      if (segment.unusedBytes > 0) {
        QRectF unused = place;
        unused.setLeft(place.right() - place.width() * static_cast<double>(segment.unusedBytes) /
                                           static_cast<double>(segment.bytes));
        painter.fillRect(unused, unusedVeil(c));
      }
      painter.fillRect(QRectF(place.right() - 1, place.top(), 1, place.height()), c.window);
    }
    painter.restore();
    if (bar.forecastX >= 0) {
      painter.setPen(QPen(c.text, 1.6, Qt::DashLine));
      painter.drawLine(QPointF(bar.forecastX, bar.rect.top() - 4),
                       QPointF(bar.forecastX, bar.rect.bottom() + 4));
    }
    if (!bar.label.isEmpty()) {
      painter.setPen(c.textMuted);
      const QRectF label(kMarginX, bar.rect.top() - 6, bar.rect.left() - kMarginX - 8,
                         kBarHeight + 12);
      painter.drawText(label, Qt::AlignVCenter | Qt::AlignLeft,
                       metrics.elidedText(bar.label, Qt::ElideRight, label.width()));
    }
    bottom = bar.rect.bottom();
  }

  paintLegend(painter, bottom + kLegendGap);
}

// --- Legend -------------------------------------------------------------------------------------

/// `kind` is empty for the forecast and for what is reserved.
struct MemoryStrip::LegendEntry {
  std::optional<MemorySegmentKind> kind;
  QString name;
  QString bytes;
  bool isReserved = false;
  double x = 0;
  int row = 0;
};

std::vector<MemoryStrip::LegendEntry> MemoryStrip::legend() const {
  std::vector<LegendEntry> entries;
  const std::uint64_t unused = unusedMemoryBytes(segments_);
  for (const MemorySegment& segment : segments_) {
    if (segment.bytes > 0) {
      entries.push_back({segment.kind, memorySegmentName(segment.kind),
                         formatBytes(segment.bytes - segment.unusedBytes)});
    }
    // What the cache has reserved stands behind its last part.
    if (segment.kind == MemorySegmentKind::kKvExact && unused > 0) {
      entries.push_back({std::nullopt, tr("KV reserved"), formatBytes(unused), true});
    }
  }
  if (data_.forecast && !segments_.empty()) {
    const std::uint64_t bytes = data_.forecast->total();
    entries.push_back({std::nullopt, tr("Forecast"),
                       bytes > data_.totalBytes ? tr("%1: does not fit").arg(formatBytes(bytes))
                                                : formatBytes(bytes),
                       false});
  }
  const QFontMetricsF metrics(theme_.smallFont);
  double x = kMarginX;
  int row = 0;
  for (LegendEntry& entry : entries) {
    const double entryWidth = kSwatch + 5 + metrics.horizontalAdvance(entry.name) + 4 +
                              metrics.horizontalAdvance(entry.bytes);
    if (x > kMarginX && x + entryWidth > width() - kMarginX) {
      x = kMarginX;
      ++row;
    }
    entry.x = x;
    entry.row = row;
    x += entryWidth + 16;
  }
  return entries;
}

int MemoryStrip::legendRows() const {
  const std::vector<LegendEntry> entries = legend();
  return entries.empty() ? 1 : entries.back().row + 1;
}

void MemoryStrip::paintLegend(QPainter& painter, double top) const {
  const ThemeColors& c = theme_.colors;
  const QFontMetricsF metrics(theme_.smallFont);
  const double line = metrics.height();
  const bool tooBig = data_.forecast && data_.forecast->total() > data_.totalBytes;
  for (const LegendEntry& entry : legend()) {
    const double y = top + entry.row * (line + 2);
    QColor bytesColor = c.text;
    const QRectF swatch(entry.x, y + (line - kSwatch) / 2, kSwatch, kSwatch);
    if (entry.isReserved) {
      painter.setPen(Qt::NoPen);
      for (const QColor& color : {c.memoryKvCodes, unusedVeil(c)}) {
        painter.setBrush(color);
        painter.drawRoundedRect(swatch, 2, 2);
      }
    } else if (entry.kind) {
      const bool pale = *entry.kind == MemorySegmentKind::kFree;
      painter.setPen(pale ? QPen(c.border, 1) : QPen(Qt::NoPen));
      painter.setBrush(memorySegmentColor(*entry.kind, c));
      painter.drawRoundedRect(swatch, 2, 2);
    } else {
      if (tooBig) bytesColor = c.error;
      painter.setPen(QPen(bytesColor, 1.6, Qt::DashLine));
      painter.drawLine(QPointF(entry.x + kSwatch / 2.0, y + 1),
                       QPointF(entry.x + kSwatch / 2.0, y + line - 1));
    }
    const double nameX = entry.x + kSwatch + 5;
    painter.setPen(c.textMuted);
    painter.drawText(QPointF(nameX, y + metrics.ascent()), entry.name);
    painter.setPen(bytesColor);
    painter.drawText(
        QPointF(nameX + metrics.horizontalAdvance(entry.name) + 4, y + metrics.ascent()),
        entry.bytes);
  }
}

void MemoryStrip::resizeEvent(QResizeEvent*) {
  if (legendRows() != shownRows_) updateGeometry();
  shownRows_ = legendRows();
}

}  // namespace longhand::ui
