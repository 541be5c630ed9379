#pragma once
// A backend with one wrong operation, for proving that wrong results are noticed.

#include <span>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace longhand::tests {

/// Does everything as `right` does, which uses host memory and must outlive it, except the
/// operation named: "matmul", "rope", "storeExact", "packPage", "attend", "argmax", or none of
/// them.
class WrongBackend final : public kernels::Backend {
 public:
  WrongBackend(kernels::Backend& right, std::string wrong)
      : right_(right), wrong_(std::move(wrong)) {}

  std::string description() const override { return right_.description(); }
  bool usesHostMemory() const override { return right_.usesHostMemory(); }
  kernels::DeviceMemoryInfo memoryInfo() const override { return right_.memoryInfo(); }

  std::byte* allocate(std::size_t bytes) override { return right_.allocate(bytes); }
  void release(std::byte* memory, std::size_t bytes) noexcept override {
    right_.release(memory, bytes);
  }
  void upload(std::byte* destination, const std::byte* source, std::size_t bytes) override {
    right_.upload(destination, source, bytes);
  }
  void download(std::byte* destination, const std::byte* source, std::size_t bytes) override {
    right_.download(destination, source, bytes);
  }
  void copy(std::byte* destination, const std::byte* source, std::size_t bytes) override {
    right_.copy(destination, source, bytes);
  }
  std::string synchronize() override { return right_.synchronize(); }

  void embed(const kernels::WeightView& table, std::span<const std::int32_t> ids,
             const kernels::MatrixView& output) override {
    right_.embed(table, ids, output);
  }
  void rmsNorm(const kernels::MatrixView& input, const float* weight, float epsilon,
               const kernels::MatrixView& output) override {
    right_.rmsNorm(input, weight, epsilon, output);
  }
  void matmul(const kernels::MatrixView& input, const kernels::WeightView& weight,
              const kernels::MatrixView& output, bool accumulate) override {
    right_.matmul(input, weight, output, accumulate);
    // One number, by a hundredth, and only where there are several tokens.
    if (wrong_ == "matmul" && output.rows > 2) output.data[output.stride] *= 1.01F;
  }
  void rope(const kernels::MatrixView& heads, std::int64_t headDim, const float* cosSin) override {
    right_.rope(heads, headDim, cosSin);
    if (wrong_ == "rope" && headDim == 80) heads.data[heads.cols - 1] += 1e-5F;
  }
  void siluMultiply(const kernels::MatrixView& gate, const kernels::MatrixView& up) override {
    right_.siluMultiply(gate, up);
  }
  std::int32_t argmax(const float* logits, std::int64_t count) override {
    const std::int32_t best = right_.argmax(logits, count);
    return wrong_ == "argmax" && best > 0 && count == 1000 ? best - 1 : best;
  }

  void storeExact(const kernels::AttentionShape& shape, const kernels::MatrixView& keys,
                  const kernels::MatrixView& values, const kernels::ExactSpan& span,
                  std::int64_t firstToken) override {
    right_.storeExact(shape, keys, values, span, firstToken);
    if (wrong_ == "storeExact") span.values[0] ^= std::byte{1};  // beside the tokens
  }
  void copyExact(const kernels::AttentionShape& shape, const kernels::ExactSpan& source,
                 std::int64_t sourceFirst, const kernels::ExactSpan& destination,
                 std::int64_t destinationFirst, std::int64_t count) override {
    right_.copyExact(shape, source, sourceFirst, destination, destinationFirst, count);
  }
  void packPage(const kernels::AttentionShape& shape, std::span<const kernels::ExactSpan> source,
                const kernels::PageFormat& format, kernels::QuantSolver solver,
                std::byte* page) override {
    right_.packPage(shape, source, format, solver, page);
    if (wrong_ == "packPage" && format.keyNbits == 2) page[3] ^= std::byte{4};  // one code
  }
  void unpackPage(const kernels::AttentionShape& shape, const kernels::PageRef& page,
                  const kernels::ExactSpan& destination) override {
    right_.unpackPage(shape, page, destination);
  }
  void attend(const kernels::AttentionShape& shape, float scoreScale,
              const kernels::MatrixView& queries, const kernels::KvView& history,
              const kernels::ExactSpan& chunk, std::int64_t chunkOffset,
              const kernels::MatrixView& output) override {
    right_.attend(shape, scoreScale, queries, history, chunk, chunkOffset, output);
    // As if another token took a thousandth of the weight, in decode behind pages.
    const bool isWrong = wrong_ == "attend" && queries.rows == 1 && history.nPagedTokens > 0;
    for (std::int64_t i = 0; isWrong && i < output.cols; ++i) output.data[i] *= 0.99F;
  }

 private:
  kernels::Backend& right_;
  std::string wrong_;
};

}  // namespace longhand::tests
