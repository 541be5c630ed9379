#pragma once
// The formats that weights have in memory: sizes, choices, names.

#include <cstddef>
#include <cstdint>

#include "engine/model/model.h"
#include "engine/model/weight_specs.h"
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

/// Values of a head (rows * cols) from which on it is worth quantizing: a vocabulary of 32,000 has
/// them from a hidden size of 524 on.
inline constexpr std::int64_t kLargeHeadValues = std::int64_t{16} << 20U;

/// What a weight becomes. `format` is not kAuto, except that kAuto keeps `source` as it is.
/// The embedding stays at 16 bits (F32 only where F32 is asked for); norms become F32. Beside NF4
/// and int8 weights a head of kLargeHeadValues or more becomes int8, since every token reads all of
/// it (a quarter of the bytes of a 1.1B model); a smaller one stays at 16 bits.
WeightTarget chooseTarget(WeightFormat format, const WeightSpec& spec, const WeightTarget& source);
/// kAuto's exception: the head of a file with quantized linear weights is treated as under kNf4.
WeightFormat formatOfSpec(WeightFormat format, const WeightSpec& spec, bool hasQuantizedLinear);

/// kAuto's rule for plain weights: as they are when all weights together stay under 1 GiB in 16
/// bits, else NF4.
bool autoQuantizes(const ModelConfig& config);

/// One weight in one run of bytes: parts in this order, each at a multiple of 64 bytes.
struct WeightLayout {
  std::size_t dataBytes = 0;     // numbers or codes, at 0
  std::size_t absmaxOffset = 0;  // F32 or, with double quantization, codes; int8: the scales
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
