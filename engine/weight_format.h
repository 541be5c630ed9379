#pragma once
// The formats that weights have in memory: sizes, choices, names.

#include <cstddef>
#include <cstdint>

#include "engine/model.h"
#include "engine/weight_specs.h"
#include "kernels/types.h"

namespace longhand::engine {

/// Format of one weight. `doubleQuantization` counts for kNf4 only.
struct WeightTarget {
  kernels::DataType type = kernels::DataType::kF16;
  bool doubleQuantization = false;

  bool operator==(const WeightTarget&) const = default;
};

/// Format of a view; of an NF4 view by whether it has absmaxCodes.
WeightTarget targetOf(const kernels::WeightView& view);
/// The name of a format that is the same for all linear weights. Not for kAuto.
WeightFormat formatOf(const WeightTarget& target);

/// What a weight becomes. `format` is not kAuto, except that kAuto keeps `source` as it is.
/// Embedding and head stay at 16 bits (F32 only where F32 is asked for); norms become F32.
WeightTarget chooseTarget(WeightFormat format, WeightRole role, const WeightTarget& source);

/// kAuto's rule for plain weights: as they are when all weights together stay under 1 GiB in 16
/// bits, else NF4.
bool autoQuantizes(const ModelConfig& config);

/// One weight in one run of bytes: parts in this order, each at a multiple of 64 bytes.
struct WeightLayout {
  std::size_t dataBytes = 0;     // numbers or codes, at 0
  std::size_t absmaxOffset = 0;  // F32 or, with double quantization, codes; NF4 only
  std::size_t nestedOffset = 0;  // nested absmax; double quantization only
  std::size_t totalBytes = 0;
  std::int64_t nBlocks = 0;
  std::int64_t nNestedBlocks = 0;
};
WeightLayout weightLayout(const WeightTarget& target, std::int64_t rows, std::int64_t cols);

/// The view of a weight that lies at `memory` in that layout. Codebooks and offset of NF4 are left
/// to the caller.
kernels::WeightView viewOf(const WeightTarget& target, std::int64_t rows, std::int64_t cols,
                           const std::byte* memory);

}  // namespace longhand::engine
