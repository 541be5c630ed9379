#pragma once
// Turns a weight as its file holds it into the format it has in memory, on several threads.

#include <cstddef>

#include "engine/model/model_reader.h"
#include "engine/model/parallel_load.h"
#include "engine/model/weight_format.h"

namespace longhand::engine {

/// Writes `source` in the target format to `destination` (host memory of
/// weightLayout(target, ...).totalBytes) and returns the view of it, whose codebooks are those the
/// codes were made with, on the host.
///
/// NF4 is quantized straight from the source's own numbers; an NF4 source keeps its codes, and its
/// absmax is quantized or expanded where the target's double quantization differs.
/// A number that is not finite, or too large for F16, is refused: Error kFileDamaged and
/// kUnsupportedModel that name the tensor. (Clamping would change the model in silence, and no
/// Llama has such weights.) Throws kCancelled from the runner.
kernels::WeightView convertWeight(const SourceTensor& source, const WeightTarget& target,
                                  std::byte* destination, ChunkRunner& runner);

}  // namespace longhand::engine
