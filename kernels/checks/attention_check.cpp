#include "kernels/checks/attention_check.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/checks/device_copies.h"
#include "kernels/checks/kv_integer_error.h"
#include "kernels/cpu/kv/kv_kernels.h"
#include "kernels/reference/reference_kv.h"

namespace longhand::kernels::checks {
namespace {

/// kMostDecodeQueries of kernels/cuda/attention/attention.h, which needs CUDA's headers.
constexpr std::int64_t kMostDecodeQueriesOnDevice = 32;

std::byte* bytesAt(float* numbers) { return static_cast<std::byte*>(static_cast<void*>(numbers)); }
float* floatsAt(std::byte* bytes) { return static_cast<float*>(static_cast<void*>(bytes)); }

}  // namespace

AttentionRounding attentionRounding(const Backend& backend, const AttentionShape& shape,
                                    std::int64_t nRows, DataType chunkType) {
  const std::string path = backend.description();
  const auto has = [&path](const char* word) { return path.find(word) != std::string::npos; };
  const std::int64_t nQueries = nRows * (shape.nHeads / shape.nKvHeads);
  AttentionRounding rounding;
  if (has("CUDA")) {
    const std::int64_t d = shape.headDim;
    rounding.hasHalfProducts =
        (d == 64 || d == 80 || d == 96 || d == 128) && nQueries > kMostDecodeQueriesOnDevice;
    return rounding;
  }
  rounding.hasIntegers = (has("VNNI") || has("BF16")) && nQueries <= kMaxDirectQueries;
  rounding.hasBf16Products =
      has("BF16") && chunkType == DataType::kF16 && nQueries > kMaxDirectQueries;
  return rounding;
}

double attentionTolerance(const KvScene& scene, const AttentionRounding& rounding, float scoreScale,
                          const MatrixView& queries) {
  const double keyNorm = std::sqrt(static_cast<double>(scene.shape().headDim)) * scene.keyRms();
  const auto largest = static_cast<double>(scene.largestValue());
  double relative = 0x1p-24 * (2.0 * keyNorm + 8.0);
  if (rounding.hasHalfProducts) {
    relative = 0x1p-11 * (3.0 * std::sqrt(1.0 / 3.0) * scene.keyRms() + 2.0);
  }
  if (rounding.hasBf16Products) relative = 0x1p-12 * 2.0 * keyNorm + 0x1p-8;
  double tolerance = relative * largest;
  if (rounding.hasIntegers || rounding.hasBf16Products) {
    tolerance +=
        integerError(scene.shape(), scoreScale, queries, scene.history()).tolerance(largest);
  }
  return tolerance;
}

CheckResult checkAttention(KvScene& scene, const AttentionRounding& rounding, std::int64_t nRows,
                           std::int64_t chunkOffset, const Attend& attend) {
  const AttentionShape& shape = scene.shape();
  const std::int64_t cols = shape.nHeads * shape.headDim;
  const std::int64_t stride = cols + 3;
  std::vector<float> queries = scene.randomRows(nRows, cols, stride, 1.0F);
  std::vector<float> expected(static_cast<std::size_t>(nRows * stride),
                              std::numeric_limits<float>::quiet_NaN());
  std::vector<float> output = expected;
  const float scoreScale = 1.0F / std::sqrt(static_cast<float>(shape.headDim));
  const MatrixView queryView{queries.data(), nRows, cols, stride};
  attendReference(shape, scoreScale, queryView, scene.history(), scene.chunk(), chunkOffset,
                  {expected.data(), nRows, cols, stride});
  attend(scoreScale, queryView, scene.history(), scene.chunk(), chunkOffset,
         {output.data(), nRows, cols, stride});
  CheckResult result;
  result.worst = largestErrorRatio(output, expected, nRows, cols, stride,
                                   attentionTolerance(scene, rounding, scoreScale, queryView));
  if (!(result.worst <= 1.0)) {
    result.problem = std::to_string(shape.nHeads) + "/" + std::to_string(shape.nKvHeads) +
                     " heads of " + std::to_string(shape.headDim) + ", " + std::to_string(nRows) +
                     " rows: error of " + std::to_string(result.worst) + " tolerances";
  }
  return result;
}

CheckResult checkAttention(KvScene& scene, Backend& backend, std::int64_t nRows,
                           std::int64_t chunkOffset) {
  const AttentionShape& shape = scene.shape();
  const AttentionRounding rounding = attentionRounding(backend, shape, nRows, scene.chunk().type);
  return checkAttention(
      scene, rounding, nRows, chunkOffset,
      [&](float scoreScale, const MatrixView& queries, const KvView& /*history*/,
          const ExactSpan& /*chunk*/, std::int64_t offset, const MatrixView& output) {
        DeviceCopies copies(backend);
        const DeviceScene device(copies, scene);
        const auto bytes = static_cast<std::size_t>(nRows * queries.stride) * sizeof(float);
        MatrixView queriesThere = queries;
        queriesThere.data = floatsAt(copies.copy(bytesAt(queries.data), bytes));
        MatrixView outputThere = output;
        outputThere.data = floatsAt(copies.copy(bytesAt(output.data), bytes));
        backend.attend(shape, scoreScale, queriesThere, device.history(), device.chunk(), offset,
                       outputThere);
        copies.fetch(bytesAt(output.data));
      });
}

}  // namespace longhand::kernels::checks
