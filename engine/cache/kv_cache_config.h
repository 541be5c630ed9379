#pragma once
// What the user chooses about the KV cache: bits, group, residual, sinks. And the limits of it.

#include <array>
#include <cstdint>
#include <string>

#include "kernels/kv_types.h"

namespace longhand::engine {

inline constexpr std::int64_t kMaxContextLength = std::int64_t{1} << 30U;  // keeps bytes in 64 bits
inline constexpr std::int64_t kMaxExactTokens = 4096;  // of the residual, and of the sink
inline constexpr int kMaxFirstLayers = 1024;
inline constexpr std::array<int, 4> kCodeNbits = {16, 8, 4, 2};
inline constexpr std::array<int, 3> kGroupSizes = {32, 64, 128};

/// A new field needs a line in cache_fields.cpp, which does not compile without it; from there it
/// reaches files, databases and options. Session files have a place for it in SessionFileHeader.
struct KvCacheConfig {
  int keyNbits = 4;                   // one of kCodeNbits
  int valueNbits = 4;                 // likewise
  int groupSize = 64;                 // one of kGroupSizes
  std::int64_t residualLength = 256;  // newest tokens kept exactly, 0 to kMaxExactTokens
  std::int64_t sinkLength = 4;        // first tokens kept exactly, 0 to kMaxExactTokens
  std::int64_t slidingWindow = 0;     // newest tokens that are still read, besides the sink; 0: all
  int firstLayers = 0;                // the first layers that use the two bits below instead
  int firstLayersKeyNbits = 4;
  int firstLayersValueNbits = 4;
  kernels::QuantScheme scheme = kernels::QuantScheme::kAsymmetric;
  kernels::QuantSolver solver = kernels::QuantSolver::kMinMax;
  kernels::DataType exactType = kernels::DataType::kF16;  // of exact tokens: kF16, or kF32 (tests)

  bool operator==(const KvCacheConfig&) const = default;

  /// Format of the pages of one layer.
  kernels::PageFormat pageFormat(std::int64_t layer) const;
  /// Throws Error kInvalidArgument naming the first value out of range.
  void validate() const;
};

/// "K4 V2, groups of 64, residual 128": for people.
std::string cacheSummary(const KvCacheConfig& config);

}  // namespace longhand::engine
