#include "kernels/reference/reference_backend.h"

#include <cassert>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/host_backend.h"
#include "kernels/nf4.h"
#include "kernels/reference/reference_kv.h"

namespace longhand::kernels {
namespace {

class ReferenceBackend final : public HostBackend {
 public:
  std::string description() const override { return "CPU, reference"; }

  // New memory is all NaN (0xff bytes, in every float format): what reads before it writes shows.
  std::byte* allocate(std::size_t bytes) override {
    std::byte* const memory = HostBackend::allocate(bytes);
    if (memory != nullptr) std::memset(memory, 0xff, bytes);
    return memory;
  }

  void embed(const WeightView& table, std::span<const std::int32_t> ids,
             const MatrixView& output) override;
  void rmsNorm(const MatrixView& input, const float* weight, float epsilon,
               const MatrixView& output) override;
  void matmul(const MatrixView& input, const WeightView& weight, const MatrixView& output,
              bool accumulate) override;
  void rope(const MatrixView& heads, std::int64_t headDim, const float* cosSin) override;
  void siluMultiply(const MatrixView& gate, const MatrixView& up) override;
  std::int32_t argmax(const float* logits, std::int64_t count) override;

  void storeExact(const AttentionShape& shape, const MatrixView& keys, const MatrixView& values,
                  const ExactSpan& span, std::int64_t firstToken) override {
    storeExactReference(shape, keys, values, span, firstToken);
  }
  void copyExact(const AttentionShape& shape, const ExactSpan& source, std::int64_t sourceFirst,
                 const ExactSpan& destination, std::int64_t destinationFirst,
                 std::int64_t count) override {
    copyExactReference(shape, source, sourceFirst, destination, destinationFirst, count);
  }
  void packPage(const AttentionShape& shape, std::span<const ExactSpan> source,
                const PageFormat& format, QuantSolver solver, std::byte* page) override {
    packPageReference(shape, source, format, solver, page);
  }
  void unpackPage(const AttentionShape& shape, const PageRef& page,
                  const ExactSpan& destination) override {
    unpackPageReference(shape, page, destination);
  }
  void attend(const AttentionShape& shape, float scoreScale, const MatrixView& queries,
              const KvView& history, const ExactSpan& chunk, std::int64_t chunkOffset,
              const MatrixView& output) override {
    attendReference(shape, scoreScale, queries, history, chunk, chunkOffset, output);
  }
};

void ReferenceBackend::embed(const WeightView& table, std::span<const std::int32_t> ids,
                             const MatrixView& output) {
  assert(table.cols == output.cols);
  assert(std::ssize(ids) == output.rows);
  for (std::int64_t row = 0; row < output.rows; ++row) {
    const std::int32_t id = ids[static_cast<std::size_t>(row)];
    assert(id >= 0 && id < table.rows);
    dequantizeRow(table, id, output.data + row * output.stride);
  }
}

void ReferenceBackend::rmsNorm(const MatrixView& input, const float* weight, float epsilon,
                               const MatrixView& output) {
  assert(input.rows == output.rows && input.cols == output.cols);
  for (std::int64_t row = 0; row < input.rows; ++row) {
    const float* const x = input.data + row * input.stride;
    float* const y = output.data + row * output.stride;
    double sumOfSquares = 0;
    for (std::int64_t i = 0; i < input.cols; ++i) {
      sumOfSquares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    const double meanOfSquares = sumOfSquares / static_cast<double>(input.cols);
    const double factor = 1.0 / std::sqrt(meanOfSquares + static_cast<double>(epsilon));
    for (std::int64_t i = 0; i < input.cols; ++i) {
      y[i] =
          static_cast<float>(static_cast<double>(x[i]) * factor * static_cast<double>(weight[i]));
    }
  }
}

void ReferenceBackend::matmul(const MatrixView& input, const WeightView& weight,
                              const MatrixView& output, bool accumulate) {
  assert(input.rows == output.rows && input.cols == weight.cols && output.cols == weight.rows);
  std::vector<float> weightRow(static_cast<std::size_t>(weight.cols));  // [inputs]
  for (std::int64_t column = 0; column < weight.rows; ++column) {
    dequantizeRow(weight, column, weightRow.data());
    for (std::int64_t row = 0; row < input.rows; ++row) {
      const float* const x = input.data + row * input.stride;
      double sum = 0;
      for (std::int64_t i = 0; i < weight.cols; ++i) {
        sum +=
            static_cast<double>(x[i]) * static_cast<double>(weightRow[static_cast<std::size_t>(i)]);
      }
      float& y = output.data[row * output.stride + column];
      y = static_cast<float>(accumulate ? static_cast<double>(y) + sum : sum);
    }
  }
}

void ReferenceBackend::rope(const MatrixView& heads, std::int64_t headDim, const float* cosSin) {
  assert(headDim > 0 && headDim % 2 == 0 && heads.cols % headDim == 0);
  const std::int64_t half = headDim / 2;
  for (std::int64_t row = 0; row < heads.rows; ++row) {
    const float* const cosines = cosSin + row * headDim;  // [half]
    const float* const sines = cosines + half;            // [half]
    for (std::int64_t first = 0; first < heads.cols; first += headDim) {
      float* const head = heads.data + row * heads.stride + first;
      for (std::int64_t i = 0; i < half; ++i) {
        const double x = static_cast<double>(head[i]);
        const double y = static_cast<double>(head[i + half]);
        const double c = static_cast<double>(cosines[i]);
        const double s = static_cast<double>(sines[i]);
        head[i] = static_cast<float>(x * c - y * s);
        head[i + half] = static_cast<float>(y * c + x * s);
      }
    }
  }
}

void ReferenceBackend::siluMultiply(const MatrixView& gate, const MatrixView& up) {
  assert(gate.rows == up.rows && gate.cols == up.cols);
  for (std::int64_t row = 0; row < gate.rows; ++row) {
    for (std::int64_t i = 0; i < gate.cols; ++i) {
      float& g = gate.data[row * gate.stride + i];
      const double x = static_cast<double>(g);
      const double silu = x / (1.0 + std::exp(-x));
      g = static_cast<float>(silu * static_cast<double>(up.data[row * up.stride + i]));
    }
  }
}

std::int32_t ReferenceBackend::argmax(const float* logits, std::int64_t count) {
  assert(count > 0);
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isnan(logits[i])) return -1;
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<std::int32_t>(best);
}

}  // namespace

std::unique_ptr<Backend> createReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace longhand::kernels
