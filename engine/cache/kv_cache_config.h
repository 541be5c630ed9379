#pragma once
// What the user chooses about the KV cache: bits, group, residual, sinks.

#include <cstdint>

#include "kernels/kv_types.h"

namespace longhand::engine {

inline constexpr std::int64_t kMaxContextLength = std::int64_t{1} << 30U;  // keeps bytes in 64 bits

struct KvCacheConfig {
  int keyNbits = 4;                   // 16, 8, 4 or 2
  int valueNbits = 4;                 // 16, 8, 4 or 2
  int groupSize = 64;                 // 32, 64 or 128
  std::int64_t residualLength = 256;  // newest tokens kept exactly, 0 to 4096
  std::int64_t sinkLength = 4;        // first tokens kept exactly, 0 to 4096
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

}  // namespace longhand::engine
