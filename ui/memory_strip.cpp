#include "ui/memory_strip.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <QHelpEvent>
#include <QLocale>
#include <QPainter>
#include <QPainterPath>
#include <QToolTip>

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

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;

constexpr std::array kOwn = {MemorySegmentKind::kWeights,   MemorySegmentKind::kKvCodes,
                             MemorySegmentKind::kKvScales,  MemorySegmentKind::kKvExact,
                             MemorySegmentKind::kWorkspace, MemorySegmentKind::kUnattributed};

bool isOwn(MemorySegmentKind kind) { return kind <= MemorySegmentKind::kUnattributed; }

QColor segmentColor(MemorySegmentKind kind, const ThemeColors& colors) {
  switch (kind) {
    case MemorySegmentKind::kWeights:
      return colors.memoryWeights;
    case MemorySegmentKind::kKvCodes:
      return colors.memoryKvCodes;
    case MemorySegmentKind::kKvScales:
      return colors.memoryKvScales;
    case MemorySegmentKind::kKvExact:
      return colors.memoryKvExact;
    case MemorySegmentKind::kWorkspace:
      return colors.memoryWorkspace;
    case MemorySegmentKind::kUnattributed:
      return colors.memoryUnattributed;
    case MemorySegmentKind::kOther:
      return colors.memoryOther;
    case MemorySegmentKind::kFree:
      break;
  }
  return colors.memoryFree;
}

/// Over a segment's color: the part that is reserved and holds nothing yet.
QColor unusedVeil(const ThemeColors& colors) {
  QColor veil = colors.window;
  veil.setAlphaF(0.6F);
  return veil;
}

QString segmentHelp(MemorySegmentKind kind) {
  switch (kind) {
    case MemorySegmentKind::kWeights:
      return MemoryStrip::tr("The model itself.");
    case MemorySegmentKind::kKvCodes:
      return MemoryStrip::tr("What the model remembers of the chat, as quantized numbers.");
    case MemorySegmentKind::kKvScales:
      return MemoryStrip::tr("Scale and minimum of each group of quantized numbers.");
    case MemorySegmentKind::kKvExact:
      return MemoryStrip::tr(
          "Keys and values kept exactly: the first tokens (sinks), the newest (residual), and with "
          "16 bits all of them.");
    case MemorySegmentKind::kWorkspace:
      return MemoryStrip::tr("Room for intermediate results.");
    case MemorySegmentKind::kUnattributed:
      return MemoryStrip::tr("Held by this program beyond the parts above: code, window, driver.");
    case MemorySegmentKind::kOther:
      return MemoryStrip::tr("Held by the system and other programs.");
    case MemorySegmentKind::kFree:
      break;
  }
  return MemoryStrip::tr("Free for a longer context.");
}

std::uint64_t bytesOf(const std::vector<MemorySegment>& segments, MemorySegmentKind kind) {
  for (const MemorySegment& segment : segments) {
    if (segment.kind == kind) return segment.bytes;
  }
  return 0;
}

std::uint64_t unusedBytes(const std::vector<MemorySegment>& segments) {
  std::uint64_t sum = 0;
  for (const MemorySegment& segment : segments) sum += segment.unusedBytes;
  return sum;
}

std::uint64_t ownBytes(const std::vector<MemorySegment>& segments) {
  std::uint64_t sum = 0;
  for (const MemorySegmentKind kind : kOwn) sum += bytesOf(segments, kind);
  return sum;
}

}  // namespace

/// A painted bar: its segments with their places, and where the forecast stands.
struct MemoryStrip::Bar {
  QRectF rect;
  std::vector<std::pair<MemorySegment, QRectF>> segments;  // those with bytes
  double forecastX = -1;                                   // below 0: none
  QString label;
};

// --- Numbers ------------------------------------------------------------------------------------

MemoryStripData memoryStripData(const engine::MemoryReport& report) {
  MemoryStripData data;
  data.use = report.use;
  data.unused = report.unused;
  data.totalBytes = report.device.totalBytes;
  data.freeBytes = report.device.freeBytes;
  data.processBytes = report.device.processBytes;
  return data;
}

std::vector<MemorySegment> memorySegments(const MemoryStripData& data) {
  if (data.totalBytes == 0) return {};
  using engine::MemoryCategory;
  const std::array ledger = {
      std::pair{MemorySegmentKind::kWeights, data.use[MemoryCategory::kWeights]},
      std::pair{MemorySegmentKind::kKvCodes, data.use[MemoryCategory::kKvCodes]},
      std::pair{MemorySegmentKind::kKvScales, data.use[MemoryCategory::kKvScales]},
      std::pair{MemorySegmentKind::kKvExact, data.use[MemoryCategory::kKvExact]},
      std::pair{MemorySegmentKind::kWorkspace, data.use[MemoryCategory::kWorkspace]},
  };
  std::vector<MemorySegment> segments;
  std::uint64_t left = data.totalBytes;
  const auto take = [&](MemorySegmentKind kind, std::uint64_t bytes) {
    segments.push_back({kind, std::min(bytes, left)});
    left -= segments.back().bytes;
  };
  std::uint64_t counted = 0;
  for (const auto& [kind, bytes] : ledger) {
    take(kind, bytes);
    counted += bytes;
  }
  for (const auto& [index, category] :
       {std::pair{1U, MemoryCategory::kKvCodes}, std::pair{2U, MemoryCategory::kKvScales},
        std::pair{3U, MemoryCategory::kKvExact}}) {
    segments[index].unusedBytes = std::min(data.unused[category], segments[index].bytes);
  }
  take(MemorySegmentKind::kUnattributed,
       data.processBytes > counted ? data.processBytes - counted : 0);
  const std::uint64_t free = std::min(left, data.freeBytes);
  take(MemorySegmentKind::kOther, left - free);
  take(MemorySegmentKind::kFree, free);
  return segments;
}

QString memorySegmentName(MemorySegmentKind kind) {
  switch (kind) {
    case MemorySegmentKind::kWeights:
      return MemoryStrip::tr("Weights");
    case MemorySegmentKind::kKvCodes:
      return MemoryStrip::tr("KV codes");
    case MemorySegmentKind::kKvScales:
      return MemoryStrip::tr("KV scales");
    case MemorySegmentKind::kKvExact:
      return MemoryStrip::tr("Exact KV");
    case MemorySegmentKind::kWorkspace:
      return MemoryStrip::tr("Workspace");
    case MemorySegmentKind::kUnattributed:
      return MemoryStrip::tr("Unattributed");
    case MemorySegmentKind::kOther:
      return MemoryStrip::tr("Other processes");
    case MemorySegmentKind::kFree:
      break;
  }
  return MemoryStrip::tr("Free");
}

QString formatBytes(std::uint64_t bytes) {
  const auto scaled = [bytes](std::uint64_t unit, const char* name) {
    const double value = static_cast<double>(bytes) / static_cast<double>(unit);
    const int digits = unit == kGiB ? 2 : value < 100 ? 1 : 0;
    return QStringLiteral("%1 %2").arg(
        QLocale(QLocale::English, QLocale::UnitedStates).toString(value, 'f', digits),
        QLatin1String(name));
  };
  if (bytes >= kGiB) return scaled(kGiB, "GiB");
  if (bytes >= kMiB) return scaled(kMiB, "MiB");
  if (bytes >= kKiB) return scaled(kKiB, "KiB");
  return QStringLiteral("%1 B").arg(bytes);
}

// --- The widget ---------------------------------------------------------------------------------

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
  const std::uint64_t own = ownBytes(segments_);
  return own > 0 && static_cast<double>(own) < kZoomShare * static_cast<double>(data_.totalBytes);
}

QString MemoryStrip::textEquivalent() const {
  if (segments_.empty()) return tr("Memory: not known.");
  QStringList parts;
  for (const MemorySegment& segment : segments_) {
    parts.append(QStringLiteral("%1 %2").arg(memorySegmentName(segment.kind),
                                             formatBytes(segment.bytes - segment.unusedBytes)));
  }
  if (const std::uint64_t unused = unusedBytes(segments_); unused > 0) {
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
          data_.forecast->total() + bytesOf(segments_, MemorySegmentKind::kUnattributed));
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
    if (isOwn(segment.kind)) own.push_back(segment);
  }
  const double ownNow = static_cast<double>(ownBytes(segments_));
  double scale = ownNow;
  if (data_.forecast) {
    const std::uint64_t forecast =
        data_.forecast->total() + bytesOf(segments_, MemorySegmentKind::kUnattributed);
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
                                  segmentHelp(segment->kind)),
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
      painter.fillRect(place, segmentColor(segment.kind, c));
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
  const std::uint64_t unused = unusedBytes(segments_);
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
      painter.setBrush(segmentColor(*entry.kind, c));
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
