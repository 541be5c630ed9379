#pragma once
// The slow twins of the Backend's KV operations: plain loops, double sums, two-pass softmax, one
// value at a time. Parameters, shapes and results as in kernels/backend.h. Thread-safe as long as
// the memory they write is not shared.

#include <cstdint>
#include <span>

#include "kernels/kv_types.h"
#include "kernels/types.h"

namespace longhand::kernels {

void storeExactReference(const AttentionShape& shape,
                         const MatrixView& keys,    // [n, nKvHeads * headDim]
                         const MatrixView& values,  // [n, nKvHeads * headDim]
                         const ExactSpan& span, std::int64_t firstToken);

void copyExactReference(const AttentionShape& shape, const ExactSpan& source,
                        std::int64_t sourceFirst, const ExactSpan& destination,
                        std::int64_t destinationFirst, std::int64_t count);

/// Infinities that rounding to F16 makes are packed as +-65504.
void packPageReference(const AttentionShape& shape,
                       std::span<const ExactSpan> source,  // nTokens sum up to groupSize
                       const PageFormat& format, QuantSolver solver,
                       std::byte* page);  // [pageLayout().totalBytes]

void unpackPageReference(const AttentionShape& shape, const PageRef& page,
                         const ExactSpan& destination);  // room for page.nTokens

void attendReference(const AttentionShape& shape, float scoreScale,
                     const MatrixView& queries,  // [n, nHeads * headDim]
                     const KvView& history, const ExactSpan& chunk, std::int64_t chunkOffset,
                     const MatrixView& output);  // [n, nHeads * headDim]

}  // namespace longhand::kernels
