#include "engine/cache/kv_cache_config.h"

#include "engine/base/error.h"
#include "engine/cache/cache_fields.h"

namespace longhand::engine {
namespace {

std::string bitsText(int keyNbits, int valueNbits) {
  return "K" + std::to_string(keyNbits) + " V" + std::to_string(valueNbits);
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
  for (const CacheField& field : cacheFields()) {
    const std::string fault = field.faultOf(field.get(*this));
    if (fault.empty()) continue;
    throw Error(ErrorCode::kInvalidArgument, "The " + std::string(field.words) + " " + fault + ".");
  }
  if (exactType != kernels::DataType::kF16 && exactType != kernels::DataType::kF32) {
    throw Error(ErrorCode::kInvalidArgument, "Exact tokens must be F16 or F32.");
  }
}

std::string cacheSummary(const KvCacheConfig& config) {
  const bool isExact = config.keyNbits == 16 && config.valueNbits == 16 && config.firstLayers == 0;
  std::string text = isExact ? "16 bits, exact"
                             : bitsText(config.keyNbits, config.valueNbits) + ", groups of " +
                                   std::to_string(config.groupSize) + ", residual " +
                                   std::to_string(config.residualLength);
  if (config.firstLayers > 0) {
    text += ", first " + std::to_string(config.firstLayers) + " layers " +
            bitsText(config.firstLayersKeyNbits, config.firstLayersValueNbits);
  }
  if (config.slidingWindow > 0) {
    text += ", window of " + std::to_string(config.slidingWindow) + " tokens";
  }
  return text;
}

}  // namespace longhand::engine
