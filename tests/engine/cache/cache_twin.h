#pragma once
// The slow twin of a layer of the KV cache: policy `page` told token by token, as plainly as
// DESIGN.md 2.1 tells it, and attention as its formula says. Shares no code with engine/kv_cache
// and the backends except the quantizer of one group.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/kv_cache_config.h"
#include "kernels/kv_types.h"

namespace longhand::tests {

class CacheTwin {
 public:
  CacheTwin(const kernels::AttentionShape& shape, const engine::KvCacheConfig& config);

  std::int64_t length() const { return static_cast<std::int64_t>(isPacked_.size()); }
  std::int64_t packedTokens() const;

  /// One token; keys and values [nKvHeads * headDim], not yet rounded.
  void add(std::span<const float> keys, std::span<const float> values);
  void truncate(std::int64_t n);

  /// What attention reads of a token, [nKvHeads * headDim]: exact, or the values of its codes.
  std::span<const float> keys(std::int64_t token) const { return row(keys_, token); }
  std::span<const float> values(std::int64_t token) const { return row(values_, token); }
  bool isPacked(std::int64_t token) const { return isPacked_[static_cast<std::size_t>(token)]; }

  /// Attention of one query [nHeads * headDim] to all tokens and to `nChunk` exact ones behind
  /// them, rows of keys and values [nChunk, nKvHeads * headDim], not yet rounded.
  std::vector<double> attend(std::span<const float> query, std::span<const float> chunkKeys,
                             std::span<const float> chunkValues, std::int64_t nChunk) const;

 private:
  std::span<const float> row(const std::vector<float>& rows, std::int64_t token) const {
    return std::span(rows).subspan(static_cast<std::size_t>(token * width_),
                                   static_cast<std::size_t>(width_));
  }
  float rounded(float value) const;
  void packOldest();

  kernels::AttentionShape shape_;
  engine::KvCacheConfig config_;
  std::int64_t width_;
  std::vector<float> keys_;    // [tokens, nKvHeads * headDim]
  std::vector<float> values_;  // likewise
  std::vector<bool> isPacked_;
};

}  // namespace longhand::tests
