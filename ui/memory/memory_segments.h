#pragma once
// What the memory strip shows, as numbers: the ledger's categories and the rest of the device's
// memory, in order and without gaps.

#include <cstdint>
#include <optional>
#include <vector>

#include <QString>

#include "engine/engine.h"

class QColor;

namespace longhand::ui {

struct ThemeColors;

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
/// One sentence: what the bytes are for.
QString memorySegmentHelp(MemorySegmentKind kind);
QColor memorySegmentColor(MemorySegmentKind kind, const ThemeColors& colors);
/// Longhand's own, not other processes' and not free.
bool isOwnMemory(MemorySegmentKind kind);

// Of the segments: bytes of a kind, of all of Longhand's own, and those reserved without use.
std::uint64_t memoryBytesOf(const std::vector<MemorySegment>& segments, MemorySegmentKind kind);
std::uint64_t ownMemoryBytes(const std::vector<MemorySegment>& segments);
std::uint64_t unusedMemoryBytes(const std::vector<MemorySegment>& segments);

}  // namespace longhand::ui
