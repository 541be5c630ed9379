#pragma once
// Random numbers in a backend's memory: inputs of measured products, tokens of measured attention.

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "engine/base/memory_ledger.h"
#include "kernels/backend.h"

namespace longhand::engine::cli {

/// [rows * cols] floats between -0.5 and 0.5, the same each time. Throws Error kOutOfMemory.
class RandomFloats {
 public:
  RandomFloats(kernels::Backend& backend, MemoryLedger& ledger, std::int64_t rows,
               std::int64_t cols)
      : buffer_(backend, ledger, MemoryCategory::kWorkspace,
                static_cast<std::size_t>(rows * cols) * sizeof(float)),
        rows_(rows) {
    std::vector<float> numbers(static_cast<std::size_t>(rows * cols));
    std::minstd_rand random(1);
    for (float& number : numbers) {
      number = static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) - 0.5F;
    }
    backend.upload(buffer_.data(), std::as_bytes(std::span(numbers)).data(),
                   numbers.size() * sizeof(float));
    backend.synchronize();  // a fault shows with the next operation
  }

  kernels::MatrixView view(std::int64_t cols) const {
    return {buffer_.floats(), rows_, cols, cols};
  }
  const float* numbers() const { return buffer_.floats(); }

 private:
  BackendBuffer buffer_;
  std::int64_t rows_;
};

/// Bytes of the exact keys and values of so many tokens.
inline std::size_t exactBytes(const kernels::AttentionShape& shape, kernels::DataType type,
                              std::int64_t nTokens) {
  return 2 * kernels::bytesOf(type, shape.nKvHeads * shape.headDim * nTokens);
}

/// Chunk tokens as attention sees them. `memory` is of exactBytes(). Throws Error kOutOfMemory.
inline kernels::ExactSpan randomSpan(kernels::Backend& backend, MemoryLedger& ledger,
                                     const kernels::AttentionShape& shape, kernels::DataType type,
                                     const BackendBuffer& memory, std::int64_t nTokens) {
  const std::int64_t cols = shape.nKvHeads * shape.headDim;
  const kernels::ExactSpan span{type, memory.data(), memory.data() + memory.sizeBytes() / 2,
                                nTokens, nTokens};
  const RandomFloats rows(backend, ledger, nTokens, cols);
  backend.storeExact(shape, rows.view(cols), rows.view(cols), span, 0);
  backend.synchronize();  // before the rows go
  return span;
}

}  // namespace longhand::engine::cli
