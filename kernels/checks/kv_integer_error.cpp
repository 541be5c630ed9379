#include "kernels/checks/kv_integer_error.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/half.h"
#include "kernels/page_layout.h"

namespace longhand::kernels::checks {

namespace {

double half(const std::byte* part, std::int64_t index) {
  return static_cast<double>(halfToFloat(reinterpret_cast<const std::uint16_t*>(part)[index]));
}

/// Pages of one format share the step of their probabilities up to that many tokens: 128 where few
/// queries are attended, 256 where many are.
constexpr std::int64_t kTokensOfAStep = 256;

/// Deviation of sum_i step/2 u_i (code_i - middle), u uniform in [-1, 1].
double deviation(double step, std::int64_t count, int nbits) {
  return step * std::sqrt(static_cast<double>(count) * (std::pow(4.0, nbits) - 1.0) / 144.0);
}

double largestScaledQuery(const AttentionShape& shape, const float* query,
                          const std::byte* scales) {
  double largest = 0.0;
  for (std::int64_t c = 0; c < shape.headDim; ++c) {
    largest = std::max(largest, std::fabs(static_cast<double>(query[c]) * half(scales, c)));
  }
  return largest;
}

}  // namespace

IntegerError integerError(const AttentionShape& shape, float scoreScale, const MatrixView& queries,
                          const KvView& history) {
  IntegerError error;
  for (std::int64_t i = 0; i < history.nPages; ++i) {
    const PageRef& page = history.pages[i];
    const PageLayout layout = pageLayout(page.format, shape.nKvHeads, shape.headDim);
    const int keyNbits = page.format.keyNbits;
    const int valueNbits = page.format.valueNbits;
    for (std::int64_t head = 0; keyNbits != 16 && head < shape.nHeads; ++head) {
      const std::int64_t kvHead = head / (shape.nHeads / shape.nKvHeads);
      for (std::int64_t row = 0; row < queries.rows; ++row) {
        const double largest =
            largestScaledQuery(shape, queries.data + row * queries.stride + head * shape.headDim,
                               page.data + layout.keyScales + kvHead * shape.headDim * 2);
        const double step =
            largest * static_cast<double>(scoreScale) / (keyNbits == 8 ? 32639.0 : 127.0);
        error.score = std::max(error.score, deviation(step, shape.headDim, keyNbits));
      }
    }
    const std::int64_t nGroups = shape.nKvHeads * layout.nValueGroups;
    for (std::int64_t group = 0; valueNbits != 16 && group < nGroups; ++group) {
      for (std::int64_t t = 0; t < page.nTokens; ++t) {  // a probability is at most 1
        const double step =
            half(page.data + layout.valueScales, group * page.format.groupSize + t) /
            (valueNbits == 8 ? 32639.0 : 255.0);
        error.value = std::max(error.value, deviation(step, kTokensOfAStep, valueNbits));
      }
    }
  }
  return error;
}

}  // namespace longhand::kernels::checks
