#pragma once
// A made-up layer of a KV cache for attention tests: pages of any formats, exact spans, a chunk.
// All memory that an operation may not read is poisoned with NaN: rows beyond the valid tokens,
// scales of tokens beyond the valid ones, the ends of capacities.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "kernels/kv_types.h"
#include "kernels/types.h"

namespace longhand::tests {

kernels::PageFormat pageFormat(int keyNbits, int valueNbits, int groupSize,
                               kernels::QuantScheme scheme = kernels::QuantScheme::kAsymmetric,
                               kernels::DataType exactType = kernels::DataType::kF16);

bool sameBytes(const std::byte* a, const std::byte* b, std::size_t bytes);

/// Largest |output - expected| over `tolerance`, of rows [nRows, stride] with `cols` numbers each;
/// HUGE_VAL for a NaN among them, and for anything but NaN behind a row.
double largestErrorRatio(const std::vector<float>& output, const std::vector<float>& expected,
                         std::int64_t nRows, std::int64_t cols, std::int64_t stride,
                         double tolerance);

class KvScene {
 public:
  KvScene(const kernels::AttentionShape& shape, unsigned seed);

  /// A page packed from random tokens, of which the first `nTokens` are valid.
  void addPage(const kernels::PageFormat& format, int nTokens);
  void addSpan(kernels::DataType type, std::int64_t nTokens, std::int64_t capacity);
  void setChunk(kernels::DataType type, std::int64_t nTokens, std::int64_t capacity);

  const kernels::AttentionShape& shape() const { return shape_; }
  kernels::KvView history() const;
  const kernels::ExactSpan& chunk() const { return chunk_; }

  /// Normally distributed numbers times `size`; rows are longer than cols, the rest is NaN.
  std::vector<float> randomRows(std::int64_t rows, std::int64_t cols, std::int64_t stride,
                                float size);
  float largestValue() const { return largestValue_; }  // of |v|
  double keyRms() const;                                // root of the mean of k^2

  /// A span full of random tokens (keys with outlier channels, values unlike them), NaN elsewhere.
  kernels::ExactSpan randomSpan(kernels::DataType type, std::int64_t nTokens,
                                std::int64_t capacity);
  /// A span of NaN.
  kernels::ExactSpan poisonedSpan(kernels::DataType type, std::int64_t capacity);
  /// Page memory of the format, all bits set.
  kernels::PageRef poisonedPage(const kernels::PageFormat& format);

 private:
  std::byte* poisoned(std::size_t bytes);

  kernels::AttentionShape shape_;
  std::mt19937 random_;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::deque<std::vector<Line>> memory_;
  std::vector<kernels::PageRef> pages_;
  std::vector<kernels::ExactSpan> spans_;
  kernels::ExactSpan chunk_;
  std::int64_t nPagedTokens_ = 0;
  float largestValue_ = 0.0F;
  double keySquares_ = 0.0;
  std::int64_t nKeys_ = 0;
};

}  // namespace longhand::tests
