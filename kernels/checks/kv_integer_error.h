#pragma once
// How far attention by integer dot products (kernels/cpu/kv/kv_decode_vnni_inl.h, which derives
// the formulas, and kv_byte_group_inl.h) may stray from exact arithmetic on the same pages.

#include "kernels/kv_types.h"
#include "kernels/types.h"

namespace longhand::kernels::checks {

/// Standard deviations, the largest over pages, kv heads and queries.
struct IntegerError {
  double score = 0.0;  // of a score, natural logarithms
  double value = 0.0;  // of an output, from rounding probability times scale

  /// Five deviations of both. A score's error e moves an output by up to 2 e largestValue; the
  /// power of two with its 4e-6 likewise.
  double tolerance(double largestValue) const {
    return 2.0 * (5.0 * score + 4e-6) * largestValue + 5.0 * value;
  }
};

/// Reads the pages' scales. `pages` lie in host memory.
IntegerError integerError(const AttentionShape& shape, float scoreScale,
                          const MatrixView& queries,  // [n, nHeads * headDim]
                          const KvView& history);

}  // namespace longhand::kernels::checks
