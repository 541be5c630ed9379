#pragma once
// A backend with one wrong operation, for proving that wrong results are noticed.

#include <span>
#include <string>
#include <utility>

#include "tests/engine/device_like_backend.h"

namespace longhand::tests {

/// Does everything as `right` does, which uses host memory and must outlive it, except the
/// operation named: "matmul", "rope", "storeExact", "packPage", "attend", "argmax", or none of
/// them.
class WrongBackend final : public engine::DeviceLikeBackend {
 public:
  WrongBackend(kernels::Backend& right, std::string wrong)
      : DeviceLikeBackend(right), wrong_(std::move(wrong)) {}

  bool usesHostMemory() const override { return true; }

  void matmul(const kernels::MatrixView& input, const kernels::WeightView& weight,
              const kernels::MatrixView& output, bool accumulate) override {
    DeviceLikeBackend::matmul(input, weight, output, accumulate);
    // One number, by a hundredth, and only where there are several tokens.
    if (wrong_ == "matmul" && output.rows > 2) output.data[output.stride] *= 1.01F;
  }
  void rope(const kernels::MatrixView& heads, std::int64_t headDim, const float* cosSin) override {
    DeviceLikeBackend::rope(heads, headDim, cosSin);
    if (wrong_ == "rope" && headDim == 80) heads.data[heads.cols - 1] += 1e-5F;
  }
  std::int32_t argmax(const float* logits, std::int64_t count) override {
    const std::int32_t best = DeviceLikeBackend::argmax(logits, count);
    return wrong_ == "argmax" && best > 0 && count == 1000 ? best - 1 : best;
  }

  void storeExact(const kernels::AttentionShape& shape, const kernels::MatrixView& keys,
                  const kernels::MatrixView& values, const kernels::ExactSpan& span,
                  std::int64_t firstToken) override {
    DeviceLikeBackend::storeExact(shape, keys, values, span, firstToken);
    if (wrong_ == "storeExact") span.values[0] ^= std::byte{1};  // beside the tokens
  }
  void packPage(const kernels::AttentionShape& shape, std::span<const kernels::ExactSpan> source,
                const kernels::PageFormat& format, kernels::QuantSolver solver,
                std::byte* page) override {
    DeviceLikeBackend::packPage(shape, source, format, solver, page);
    if (wrong_ == "packPage" && format.keyNbits == 2) page[3] ^= std::byte{4};  // one code
  }
  void attend(const kernels::AttentionShape& shape, float scoreScale,
              const kernels::MatrixView& queries, const kernels::KvView& history,
              const kernels::ExactSpan& chunk, std::int64_t chunkOffset,
              const kernels::MatrixView& output) override {
    DeviceLikeBackend::attend(shape, scoreScale, queries, history, chunk, chunkOffset, output);
    // As if another token took a thousandth of the weight, in decode behind pages.
    const bool isWrong = wrong_ == "attend" && queries.rows == 1 && history.nPagedTokens > 0;
    for (std::int64_t i = 0; isWrong && i < output.cols; ++i) output.data[i] *= 0.99F;
  }

 private:
  std::string wrong_;
};

}  // namespace longhand::tests
