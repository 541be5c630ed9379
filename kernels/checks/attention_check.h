#pragma once
// Attention of a backend against the slow twin, within a tolerance that is derived.

#include <cstdint>
#include <functional>

#include "kernels/backend.h"
#include "kernels/checks/check_result.h"
#include "kernels/checks/kv_scene.h"

namespace longhand::kernels::checks {

/// What attend() rounds beside the float sums that every path makes.
struct AttentionRounding {
  bool hasHalfProducts = false;  // tensor cores: kernels/cuda/attention/attention_prefill.cu
  bool hasBf16Products = false;  // kernels/cpu/kv/kv_attend.cpp, with exact tokens in F16
  bool hasIntegers = false;      // where queries meet codes: kernels/cpu/kv/kv_decode_vnni_inl.h
};
AttentionRounding attentionRounding(const Backend& backend, const AttentionShape& shape,
                                    std::int64_t nRows, DataType chunkType);

/// Largest error of an output that rounding explains.
///
/// A score is a float sum of headDim products, or of two such sums where codes are read in place
/// (codes, and mins). Rounding errors of random sign add up to about e = 2^-24 |q| |k| scoreScale,
/// with |q| = sqrt(headDim) and scoreScale = 1 / sqrt(headDim): e = 2^-24 |k|. An error of a score
/// moves its probability by that factor, hence the output by up to 2 e max|v|. Probabilities,
/// their sum and exp add a few 2^-24 max|v| themselves. Where codes meet integers, what that rounds
/// comes on top (kv_integer_error.h).
///
/// Half products round queries, keys, probabilities and values: each moves a product by at most
/// 2^-11 of it, at random, so by a deviation of 2^-11 / sqrt(3). A score's error then has the
/// deviation e = 2^-11 sqrt(2/3) scoreScale sqrt(sum q^2 k^2), about 2^-11 sqrt(2/3) keyRms. It
/// moves an output most where two tokens share the probability: by 1/4 sqrt(2) 2 max|v| e, of which
/// three deviations are allowed; and 2^-11 max|v| each for probabilities and values.
///
/// BF16 products round the numbers of a query and a key to 2^-15 of its length, or of the longest
/// key its page could hold (under four times as long): errors of random sign add up to about
/// 2^-16 |q| |k| scoreScale times at most four, the largest of many to four times that: 2^-12 |k|.
/// Probabilities and values are rounded by up to 2^-9 of themselves, and one token may have all the
/// weight. Codes of up to 4 bits meet integers there, too.
double attentionTolerance(const KvScene& scene, const AttentionRounding& rounding, float scoreScale,
                          const MatrixView& queries);

/// attend() of whatever is checked; all addresses are of host memory.
using Attend =
    std::function<void(float scoreScale, const MatrixView& queries, const KvView&,
                       const ExactSpan& chunk, std::int64_t chunkOffset, const MatrixView& output)>;
/// `nRows` random queries, the first of them chunk token `chunkOffset`.
CheckResult checkAttention(KvScene& scene, const AttentionRounding& rounding, std::int64_t nRows,
                           std::int64_t chunkOffset, const Attend& attend);
/// The same by a backend, in its own memory. std::bad_alloc when it has no room.
CheckResult checkAttention(KvScene& scene, Backend& backend, std::int64_t nRows,
                           std::int64_t chunkOffset);

}  // namespace longhand::kernels::checks
