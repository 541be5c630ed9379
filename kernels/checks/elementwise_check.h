#pragma once
// The small operations of a backend against the slow twin: embed, rmsNorm, rope, siluMultiply,
// argmax, topLogits. Rows are unaligned, but for those of an even number of tokens; NaN lies
// between them. std::bad_alloc when the device has no room.

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/checks/check_result.h"
#include "kernels/checks/test_matrix.h"

namespace longhand::kernels::checks {

/// Exactly the rows of a table [vocab, cols], for `nTokens` ids.
CheckResult checkEmbed(Backend& backend, WeightForm form, std::int64_t vocab, std::int64_t cols,
                       std::int64_t nTokens);
CheckResult checkRmsNorm(Backend& backend, std::int64_t nTokens, std::int64_t cols, bool isInPlace);
/// Three heads a row.
CheckResult checkRope(Backend& backend, std::int64_t nTokens, std::int64_t headDim);
/// `standardDeviation` of the gate.
CheckResult checkSiluMultiply(Backend& backend, std::int64_t nTokens, std::int64_t cols,
                              float standardDeviation);
/// siluMultiply() of given numbers; `gate` becomes the result.
CheckResult checkSiluMultiply(Backend& backend, TestMatrix& gate, TestMatrix& up);
/// The largest of `count` logits at several positions, also twice and with a NaN.
CheckResult checkArgmax(Backend& backend, std::int64_t count);
/// topLogits() of `count` logits, with equal ones, NaN and infinities among them.
CheckResult checkTopLogits(Backend& backend, std::int64_t count, std::int64_t nBest);
/// Bytes through upload, copy and download.
CheckResult checkMemory(Backend& backend, std::size_t bytes);

}  // namespace longhand::kernels::checks
