#include "engine/cache/kv_cache_config.h"

#include <string>

#include "engine/base/error.h"

namespace longhand::engine {
namespace {

constexpr std::int64_t kMaxExactTokens = 4096;
constexpr std::int64_t kMaxSlidingWindow = std::int64_t{1} << 30U;  // as the longest context

void requireNbits(int nbits, const char* name) {
  if (nbits == 16 || nbits == 8 || nbits == 4 || nbits == 2) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(name) + " must be 16, 8, 4 or 2, not " + std::to_string(nbits) + ".");
}

void requireRange(std::int64_t value, std::int64_t high, const char* name) {
  if (value >= 0 && value <= high) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(name) + " must be between 0 and " +
                                               std::to_string(high) + ", not " +
                                               std::to_string(value) + ".");
}

}  // namespace

kernels::PageFormat KvCacheConfig::pageFormat(std::int64_t layer) const {
  const bool isFirst = layer < firstLayers;
  kernels::PageFormat format;
  format.keyNbits = static_cast<std::uint8_t>(isFirst ? firstLayersKeyNbits : keyNbits);
  format.valueNbits = static_cast<std::uint8_t>(isFirst ? firstLayersValueNbits : valueNbits);
  format.groupSize = static_cast<std::uint8_t>(groupSize);
  format.scheme = scheme;
  format.exactType = exactType;
  return format;
}

void KvCacheConfig::validate() const {
  requireNbits(keyNbits, "The bits of keys");
  requireNbits(valueNbits, "The bits of values");
  if (groupSize != 32 && groupSize != 64 && groupSize != 128) {
    throw Error(ErrorCode::kInvalidArgument,
                "The group size must be 32, 64 or 128, not " + std::to_string(groupSize) + ".");
  }
  requireRange(residualLength, kMaxExactTokens, "The residual length");
  requireRange(sinkLength, kMaxExactTokens, "The sink length");
  requireRange(slidingWindow, kMaxSlidingWindow, "The sliding window");
  requireRange(firstLayers, 1024, "The number of first layers with bits of their own");
  requireNbits(firstLayersKeyNbits, "The bits of keys in the first layers");
  requireNbits(firstLayersValueNbits, "The bits of values in the first layers");
  if (exactType != kernels::DataType::kF16 && exactType != kernels::DataType::kF32) {
    throw Error(ErrorCode::kInvalidArgument, "Exact tokens must be F16 or F32.");
  }
}

}  // namespace longhand::engine
