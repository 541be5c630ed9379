#pragma once
// A stand-in for a GPU in tests.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "kernels/backend.h"

namespace longhand::engine {

/// A backend like a device: views into host memory are not allowed, contents come by upload().
class DeviceLikeBackend : public kernels::Backend {
 public:
  explicit DeviceLikeBackend(kernels::Backend& inner) : inner_(inner) {}
  std::string description() const override { return "test device"; }
  bool usesHostMemory() const override { return false; }
  kernels::DeviceMemoryInfo memoryInfo() const override {
    return reportedMemory.value_or(inner_.memoryInfo());
  }
  std::byte* allocate(std::size_t bytes) override {
    ownBytes_ += bytes;
    return inner_.allocate(bytes);
  }
  void release(std::byte* memory, std::size_t bytes) noexcept override {
    ownBytes_ -= bytes;
    inner_.release(memory, bytes);
  }
  void upload(std::byte* to, const std::byte* from, std::size_t bytes) override {
    inner_.upload(to, from, bytes);
  }
  void download(std::byte* to, const std::byte* from, std::size_t bytes) override {
    inner_.download(to, from, bytes);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    inner_.copy(to, from, bytes);
  }
  std::string synchronize() override { return fault; }
  void embed(const kernels::WeightView& table, std::span<const std::int32_t> ids,
             const kernels::MatrixView& output) override {
    inner_.embed(table, ids, output);
  }
  void rmsNorm(const kernels::MatrixView& input, const float* weight, float epsilon,
               const kernels::MatrixView& output) override {
    inner_.rmsNorm(input, weight, epsilon, output);
  }
  void matmul(const kernels::MatrixView& input, const kernels::WeightView& weight,
              const kernels::MatrixView& output, bool accumulate) override {
    inner_.matmul(input, weight, output, accumulate);
  }
  void rope(const kernels::MatrixView& heads, std::int64_t headDim, const float* cosSin) override {
    inner_.rope(heads, headDim, cosSin);
  }
  void siluMultiply(const kernels::MatrixView& gate, const kernels::MatrixView& up) override {
    inner_.siluMultiply(gate, up);
  }
  std::int32_t argmax(const float* logits, std::int64_t count) override {
    return inner_.argmax(logits, count);
  }
  void storeExact(const kernels::AttentionShape& shape, const kernels::MatrixView& keys,
                  const kernels::MatrixView& values, const kernels::ExactSpan& span,
                  std::int64_t firstToken) override {
    inner_.storeExact(shape, keys, values, span, firstToken);
  }
  void copyExact(const kernels::AttentionShape& shape, const kernels::ExactSpan& source,
                 std::int64_t sourceFirst, const kernels::ExactSpan& destination,
                 std::int64_t destinationFirst, std::int64_t count) override {
    inner_.copyExact(shape, source, sourceFirst, destination, destinationFirst, count);
  }
  void packPage(const kernels::AttentionShape& shape, std::span<const kernels::ExactSpan> source,
                const kernels::PageFormat& format, kernels::QuantSolver solver,
                std::byte* page) override {
    inner_.packPage(shape, source, format, solver, page);
  }
  void unpackPage(const kernels::AttentionShape& shape, const kernels::PageRef& page,
                  const kernels::ExactSpan& destination) override {
    inner_.unpackPage(shape, page, destination);
  }
  void attend(const kernels::AttentionShape& shape, float scoreScale,
              const kernels::MatrixView& queries, const kernels::KvView& history,
              const kernels::ExactSpan& chunk, std::int64_t chunkOffset,
              const kernels::MatrixView& output) override {
    inner_.attend(shape, scoreScale, queries, history, chunk, chunkOffset, output);
  }

  std::uint64_t ownBytes() const { return ownBytes_; }
  std::string fault;
  std::optional<kernels::DeviceMemoryInfo> reportedMemory;

 private:
  kernels::Backend& inner_;
  std::uint64_t ownBytes_ = 0;
};

}  // namespace longhand::engine
