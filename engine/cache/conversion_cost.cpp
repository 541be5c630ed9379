#include "engine/cache/conversion_cost.h"

#include <algorithm>

#include "engine/cache/kv_arena.h"
#include "engine/cache/kv_bytes.h"
#include "engine/cache/kv_schedule.h"
#include "engine/model/model_config.h"

namespace longhand::engine {

using kernels::PageFormat;

PageFormat convertedFormat(const PageFormat& page, const PageFormat& wanted) {
  PageFormat result = page;
  result.keyNbits = std::min(page.keyNbits, wanted.keyNbits);
  result.valueNbits = std::min(page.valueNbits, wanted.valueNbits);
  const bool keysKeepCodes = result.keyNbits == page.keyNbits && page.keyNbits < 16;
  const bool valuesKeepCodes = result.valueNbits == page.valueNbits && page.valueNbits < 16;
  const bool changes = result.keyNbits != page.keyNbits || result.valueNbits != page.valueNbits;
  if (changes && !keysKeepCodes && !valuesKeepCodes) result.scheme = wanted.scheme;
  return result;
}

ConvertCost convertCost(const CacheContents& contents, const kernels::AttentionShape& shape,
                        std::int64_t nLayers, const KvCacheConfig& wanted,
                        std::int64_t contextLength) {
  ConvertCost cost;
  const auto exact = [&](const KvCacheConfig& config) {
    return contents.tokens == 0
               ? 0
               : exactLayerBytes(config, shape) * static_cast<std::uint64_t>(nLayers);
  };
  cost.bytesBefore = exact(contents.config);
  cost.bytesAfter = exact(wanted);
  for (const CacheContents::Pages& pages : contents.pages) {
    const PageFormat format = wanted.pageFormat(pages.layer);
    const PageFormat after = convertedFormat(pages.format, format);
    const auto count = static_cast<std::uint64_t>(pages.nPages);
    cost.bytesBefore += pageUse(pages.format, shape).total() * count;
    cost.bytesAfter += pageUse(after, shape).total() * count;
    if (after != pages.format) cost.pagesToConvert += pages.nPages;
    const bool isBelow =
        pages.format.keyNbits < format.keyNbits || pages.format.valueNbits < format.valueNbits;
    if (isBelow) cost.tokensBelowBits = std::max(cost.tokensBelowBits, pages.nTokens);
  }
  const std::int64_t nDue = duePages(wanted, contents.residualTokens);
  for (const PageDemand& demand : pageDemands(wanted, nLayers, nDue)) {
    cost.bytesAfter +=
        pageUse(demand.format, shape).total() * static_cast<std::uint64_t>(demand.nPages);
  }
  if (wanted.exactType != contents.config.exactType || contents.tokens > contextLength) {
    cost.isInPlace = false;
    cost.tokensToRead = contents.tokens;
    cost.tokensBelowBits = 0;
    cost.pagesToConvert = 0;
    MemoryUse fresh = kvCacheUse(wanted, shape, nLayers, std::min(contents.tokens, contextLength));
    fresh[MemoryCategory::kWorkspace] = 0;
    cost.bytesAfter = contents.tokens == 0 ? 0 : fresh.total();
  }
  return cost;
}

ConvertCost convertCost(const CacheContents& contents, const ModelConfig& model,
                        const KvCacheConfig& wanted, std::int64_t contextLength) {
  return convertCost(contents, attentionShape(model), model.nLayers, wanted, contextLength);
}

}  // namespace longhand::engine
