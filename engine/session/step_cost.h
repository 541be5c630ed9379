#pragma once
// What a step must do at least: the bytes that decoding one token reads, the multiply-adds that a
// prefill computes. Divided by what the machine can do (kernels/machine_rates.h) these are the
// floors that `longhand-cli bench` compares with.

#include <cstdint>

#include "engine/cache/kv_cache.h"
#include "engine/model/model.h"
#include "engine/model/weight_format.h"

namespace longhand::engine {

/// Bytes that one decode step reads from memory, each once.
struct DecodeBytes {
  std::uint64_t weights = 0;       // numbers or codes of all matrices, norms, one row of embedding
  std::uint64_t weightScales = 0;  // of NF4 (with what they are quantized by) and int8
  std::uint64_t kvCodes = 0;
  std::uint64_t kvScales = 0;  // with mins
  std::uint64_t kvExact = 0;   // sink, residual, pages of 16 bits

  std::uint64_t total() const { return weights + weightScales + kvCodes + kvScales + kvExact; }
};

/// Of the token that would come next.
DecodeBytes decodeBytes(const Model& model, const KvCache& cache);
/// The part of the weights alone, and of one matrix: its codes or numbers, its scales.
DecodeBytes weightBytesRead(const Model& model);
DecodeBytes weightBytesRead(const kernels::WeightView& weight);
/// The same before there is a model.
DecodeBytes weightBytesRead(const WeightTarget& target, std::int64_t rows, std::int64_t cols);
DecodeBytes weightBytesRead(const ModelConfig& config, WeightFormat format);
/// The part of the cache alone.
DecodeBytes cacheBytesRead(const KvCache& cache, const kernels::AttentionShape& shape,
                           std::int64_t nLayers);

/// Where `nTokens` tokens stand in a cache that forgets none: the schedule of
/// engine/cache/kv_cache.h.
struct CacheTokens {
  std::int64_t pages = 0;  // full ones
  std::int64_t exact = 0;  // tokens of sink and residual
};
CacheTokens cacheTokens(const KvCacheConfig& config, std::int64_t nTokens);
/// The part of a cache that does not exist yet, behind which the next token would come.
DecodeBytes cacheBytesRead(const KvCacheConfig& config, const kernels::AttentionShape& shape,
                           std::int64_t nLayers, std::int64_t nTokens);

/// Multiply-adds of `nTokens` tokens behind `depth` others, of which a sliding window forgets none:
/// all matrices for each token, the head for the last one alone, and attention.
double prefillMultiplyAdds(const ModelConfig& config, std::int64_t depth, std::int64_t nTokens);

}  // namespace longhand::engine
