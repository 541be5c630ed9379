#pragma once
// Exact spans as a kernel's argument.

#include "kernels/kv_types.h"

namespace longhand::kernels::cuda {

/// Exact spans a kernel takes at once. A cache has four: sink, two parts of the residual's ring,
/// chunk.
inline constexpr int kMostSpans = 8;

/// Several exact spans, in the order of their tokens, by value.
struct SpanList {
  ExactSpan spans[kMostSpans];
  int nSpans = 0;
};

}  // namespace longhand::kernels::cuda
