#include "ui/memory/memory_segments.h"

#include <algorithm>
#include <array>
#include <utility>

#include <QColor>
#include <QCoreApplication>

#include "ui/style/theme.h"

namespace longhand::ui {

namespace {

QString tr(const char* text) {
  return QCoreApplication::translate("longhand::ui::MemoryStrip", text);
}

}  // namespace

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
      return tr("Weights");
    case MemorySegmentKind::kKvCodes:
      return tr("KV codes");
    case MemorySegmentKind::kKvScales:
      return tr("KV scales");
    case MemorySegmentKind::kKvExact:
      return tr("Exact KV");
    case MemorySegmentKind::kWorkspace:
      return tr("Workspace");
    case MemorySegmentKind::kUnattributed:
      return tr("Unattributed");
    case MemorySegmentKind::kOther:
      return tr("Other processes");
    case MemorySegmentKind::kFree:
      break;
  }
  return tr("Free");
}

QString memorySegmentHelp(MemorySegmentKind kind) {
  switch (kind) {
    case MemorySegmentKind::kWeights:
      return tr("The model itself.");
    case MemorySegmentKind::kKvCodes:
      return tr("What the model remembers of the chat, as quantized numbers.");
    case MemorySegmentKind::kKvScales:
      return tr("Scale and minimum of each group of quantized numbers.");
    case MemorySegmentKind::kKvExact:
      return tr(
          "Keys and values kept exactly: the first tokens (sinks), the newest (residual), and with "
          "16 bits all of them.");
    case MemorySegmentKind::kWorkspace:
      return tr("Room for intermediate results.");
    case MemorySegmentKind::kUnattributed:
      return tr("Held by this program beyond the parts above: code, window, driver.");
    case MemorySegmentKind::kOther:
      return tr("Held by the system and other programs.");
    case MemorySegmentKind::kFree:
      break;
  }
  return tr("Free for a longer context.");
}

QColor memorySegmentColor(MemorySegmentKind kind, const ThemeColors& colors) {
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

bool isOwnMemory(MemorySegmentKind kind) { return kind <= MemorySegmentKind::kUnattributed; }

std::uint64_t memoryBytesOf(const std::vector<MemorySegment>& segments, MemorySegmentKind kind) {
  for (const MemorySegment& segment : segments) {
    if (segment.kind == kind) return segment.bytes;
  }
  return 0;
}

std::uint64_t ownMemoryBytes(const std::vector<MemorySegment>& segments) {
  std::uint64_t sum = 0;
  for (const MemorySegment& segment : segments) {
    if (isOwnMemory(segment.kind)) sum += segment.bytes;
  }
  return sum;
}

std::uint64_t unusedMemoryBytes(const std::vector<MemorySegment>& segments) {
  std::uint64_t sum = 0;
  for (const MemorySegment& segment : segments) sum += segment.unusedBytes;
  return sum;
}

}  // namespace longhand::ui
