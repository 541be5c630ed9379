#pragma once
// Random numbers in a backend's memory, as inputs of measured products.

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "engine/memory_ledger.h"
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

}  // namespace longhand::engine::cli
