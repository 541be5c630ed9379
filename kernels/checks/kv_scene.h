#pragma once
// A made-up layer of a KV cache to check attention on: pages of any formats, exact spans, a chunk.
// All memory that an operation may not read is poisoned with NaN: rows beyond the valid tokens,
// scales of tokens beyond the valid ones, the ends of capacities.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "kernels/kv_types.h"
#include "kernels/types.h"

namespace longhand::kernels::checks {

PageFormat pageFormat(int keyNbits, int valueNbits, int groupSize,
                      QuantScheme scheme = QuantScheme::kAsymmetric,
                      DataType exactType = DataType::kF16);

bool sameBytes(const std::byte* a, const std::byte* b, std::size_t bytes);

/// Largest |output - expected| over `tolerance`, of rows [nRows, stride] with `cols` numbers each;
/// HUGE_VAL for a NaN among them, and for anything but NaN behind a row.
double largestErrorRatio(const std::vector<float>& output, const std::vector<float>& expected,
                         std::int64_t nRows, std::int64_t cols, std::int64_t stride,
                         double tolerance);

class KvScene {
 public:
  KvScene(const AttentionShape& shape, unsigned seed);

  /// A page packed from random tokens, of which the first `nTokens` are valid.
  void addPage(const PageFormat& format, int nTokens);
  void addSpan(DataType type, std::int64_t nTokens, std::int64_t capacity);
  void setChunk(DataType type, std::int64_t nTokens, std::int64_t capacity);

  const AttentionShape& shape() const { return shape_; }
  KvView history() const;
  const ExactSpan& chunk() const { return chunk_; }

  /// Normally distributed numbers times `size`; rows are longer than cols, the rest is NaN.
  std::vector<float> randomRows(std::int64_t rows, std::int64_t cols, std::int64_t stride,
                                float size);
  float largestValue() const { return largestValue_; }  // of |v|
  double keyRms() const;                                // root of the mean of k^2

  /// A span full of random tokens (keys with outlier channels, values unlike them), NaN elsewhere.
  ExactSpan randomSpan(DataType type, std::int64_t nTokens, std::int64_t capacity);
  /// A span of NaN.
  ExactSpan poisonedSpan(DataType type, std::int64_t capacity);
  /// Page memory of the format, all bits set.
  PageRef poisonedPage(const PageFormat& format);

 private:
  std::byte* poisoned(std::size_t bytes);

  AttentionShape shape_;
  std::mt19937 random_;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::deque<std::vector<Line>> memory_;
  std::vector<PageRef> pages_;
  std::vector<ExactSpan> spans_;
  ExactSpan chunk_;
  std::int64_t nPagedTokens_ = 0;
  float largestValue_ = 0.0F;
  double keySquares_ = 0.0;
  std::int64_t nKeys_ = 0;
};

}  // namespace longhand::kernels::checks
