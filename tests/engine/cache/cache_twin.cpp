#include "tests/engine/cache/cache_twin.h"

#include <algorithm>
#include <cmath>

#include "kernels/half.h"
#include "kernels/quantizer.h"

namespace longhand::tests {
namespace {

using kernels::DataType;

float roundedToHalf(float value) { return kernels::halfToFloat(kernels::floatToHalf(value)); }

/// Quantizes numbers that lie `step` apart, and puts the values of their codes in their place.
void throughCodes(float* first, std::int64_t count, std::int64_t step, int nbits,
                  const engine::KvCacheConfig& config) {
  if (nbits == 16) return;
  std::vector<float> group(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < group.size(); ++i) {
    group[i] = roundedToHalf(first[static_cast<std::int64_t>(i) * step]);
  }
  std::vector<std::uint8_t> codes(group.size());
  const kernels::GroupParameters parameters =
      kernels::quantizeGroup(group, nbits, config.scheme, config.solver, codes);
  for (std::size_t i = 0; i < group.size(); ++i) {
    first[static_cast<std::int64_t>(i) * step] =
        kernels::dequantize(codes[i], nbits, config.scheme, parameters);
  }
}

}  // namespace

CacheTwin::CacheTwin(const kernels::AttentionShape& shape, const engine::KvCacheConfig& config)
    : shape_(shape), config_(config), width_(shape.nKvHeads * shape.headDim) {}

std::int64_t CacheTwin::packedTokens() const {
  return std::count(isPacked_.begin(), isPacked_.end(), true);
}

float CacheTwin::rounded(float value) const {
  return config_.exactType == DataType::kF16 ? roundedToHalf(value) : value;
}

void CacheTwin::add(std::span<const float> keys, std::span<const float> values) {
  for (const float key : keys) keys_.push_back(rounded(key));
  for (const float value : values) values_.push_back(rounded(value));
  isPacked_.push_back(false);
  const std::int64_t behindSink = std::max<std::int64_t>(0, length() - config_.sinkLength);
  if (behindSink - packedTokens() == config_.residualLength + config_.groupSize) packOldest();
}

/// Tokens behind the sink are packed from the oldest on, so the oldest exact ones stand together.
void CacheTwin::packOldest() {
  const std::int64_t first = config_.sinkLength + packedTokens();
  const std::int64_t group = config_.groupSize;
  const std::int64_t valueGroup = std::min(group, shape_.headDim);
  for (std::int64_t column = 0; column < width_; ++column) {
    throughCodes(keys_.data() + first * width_ + column, group, width_, config_.keyNbits, config_);
  }
  for (std::int64_t token = first; token < first + group; ++token) {
    for (std::int64_t head = 0; head < shape_.nKvHeads; ++head) {
      float* values = values_.data() + token * width_ + head * shape_.headDim;
      for (std::int64_t channel = 0; channel < shape_.headDim; channel += valueGroup) {
        throughCodes(values + channel, std::min(valueGroup, shape_.headDim - channel), 1,
                     config_.valueNbits, config_);
      }
    }
    isPacked_[static_cast<std::size_t>(token)] = true;
  }
}

void CacheTwin::truncate(std::int64_t n) {
  keys_.resize(static_cast<std::size_t>(n * width_));
  values_.resize(static_cast<std::size_t>(n * width_));
  isPacked_.resize(static_cast<std::size_t>(n));
}

std::vector<double> CacheTwin::attend(std::span<const float> query,
                                      std::span<const float> chunkKeys,
                                      std::span<const float> chunkValues,
                                      std::int64_t nChunk) const {
  const std::int64_t headDim = shape_.headDim;
  const std::int64_t nTokens = length() + nChunk;
  const double scale = 1.0 / std::sqrt(static_cast<double>(headDim));
  // Exact tokens of the chunk are rounded where the cache would round them.
  std::vector<float> ownKeys(chunkKeys.begin(), chunkKeys.begin() + nChunk * width_);
  std::vector<float> ownValues(chunkValues.begin(), chunkValues.begin() + nChunk * width_);
  for (float& key : ownKeys) key = rounded(key);
  for (float& value : ownValues) value = rounded(value);
  const auto rowOf = [&](const std::vector<float>& old, const std::vector<float>& own,
                         std::int64_t token) {
    return token < length() ? old.data() + token * width_
                            : own.data() + (token - length()) * width_;
  };

  std::vector<double> output(query.size(), 0.0);
  std::vector<double> weights(static_cast<std::size_t>(nTokens));
  for (std::int64_t head = 0; head < shape_.nHeads; ++head) {
    const std::int64_t kvOffset = head / (shape_.nHeads / shape_.nKvHeads) * headDim;
    const float* q = query.data() + head * headDim;
    double largest = -HUGE_VAL;
    for (std::int64_t token = 0; token < nTokens; ++token) {
      const float* k = rowOf(keys_, ownKeys, token) + kvOffset;
      double score = 0.0;
      for (std::int64_t c = 0; c < headDim; ++c) {
        score += static_cast<double>(q[c]) * static_cast<double>(k[c]);
      }
      weights[static_cast<std::size_t>(token)] = score * scale;
      largest = std::max(largest, score * scale);
    }
    double sum = 0.0;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    double* out = output.data() + head * headDim;
    for (std::int64_t token = 0; token < nTokens; ++token) {
      const float* v = rowOf(values_, ownValues, token) + kvOffset;
      const double weight = weights[static_cast<std::size_t>(token)] / sum;
      for (std::int64_t c = 0; c < headDim; ++c) out[c] += weight * static_cast<double>(v[c]);
    }
  }
  return output;
}

}  // namespace longhand::tests
