#include "engine/cache/random_cache.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/cache/kv_schedule.h"
#include "kernels/half.h"
#include "kernels/page_layout.h"

namespace longhand::engine {
namespace {

using kernels::AttentionShape;
using kernels::DataType;
using kernels::ExactSpan;
using kernels::PageFormat;
using kernels::PageRef;

constexpr std::size_t kPatternsPerFormat = 4;

/// A ring of random exact numbers on the host.
class RandomNumbers {
 public:
  RandomNumbers(DataType type, std::int64_t count, std::uint64_t seed)
      : type_(type), bytes_(kernels::bytesOf(type, count)) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < count; ++i) {
      const float number = normal(random);
      const std::uint16_t half = kernels::floatToHalf(number);
      const void* source = type == DataType::kF32 ? static_cast<const void*>(&number) : &half;
      std::memcpy(bytes_.data() + kernels::bytesOf(type, i), source, kernels::bytesOf(type, 1));
    }
  }

  /// Writes the next `count` numbers to backend memory.
  void write(kernels::Backend& backend, std::byte* destination, std::int64_t count) {
    std::size_t left = kernels::bytesOf(type_, count);
    while (left > 0) {
      const std::size_t now = std::min(left, bytes_.size() - next_);
      backend.upload(destination, bytes_.data() + next_, now);
      next_ = (next_ + now) % bytes_.size();
      destination += now;
      left -= now;
    }
  }

 private:
  DataType type_;
  std::vector<std::byte> bytes_;
  std::size_t next_ = 0;
};

/// Packed pages of one format.
struct Patterns {
  PageFormat format;
  std::vector<BackendBuffer> pages;
};

class RandomFill {
 public:
  RandomFill(kernels::Backend& backend, const AttentionShape& shape, std::uint64_t seed)
      : backend_(backend), shape_(shape), seed_(seed) {}

  void fillLayer(const KvCache& cache, std::int64_t layer) {
    const kernels::KvView view = cache.view(layer);
    for (const ExactSpan& span : view.exact) fillExact(span);
    std::size_t number = 0;
    for (const PageRef& page : cache.pages(layer)) {
      const Patterns& patterns = patternsOf(page.format);
      const BackendBuffer& pattern = patterns.pages[number++ % kPatternsPerFormat];
      backend_.copy(page.data, pattern.data(), pattern.sizeBytes());
    }
  }

 private:
  RandomNumbers& numbersOf(DataType type) {
    const auto found = std::find_if(numbers_.begin(), numbers_.end(),
                                    [type](const auto& each) { return each.first == type; });
    if (found != numbers_.end()) return found->second;
    return numbers_.emplace_back(type, RandomNumbers(type, kRingNumbers, seed_)).second;
  }

  /// Rows of each kv head, up to the valid tokens.
  void fillExact(const ExactSpan& span) {
    const std::int64_t rowNumbers = span.nTokens * shape_.headDim;
    RandomNumbers& source = numbersOf(span.type);
    for (std::int64_t head = 0; head < shape_.nKvHeads; ++head) {
      const std::size_t offset =
          kernels::bytesOf(span.type, head * span.tokenCapacity * shape_.headDim);
      source.write(backend_, span.keys + offset, rowNumbers);
      source.write(backend_, span.values + offset, rowNumbers);
    }
  }

  const Patterns& patternsOf(const PageFormat& format) {
    const auto found = std::find_if(patterns_.begin(), patterns_.end(),
                                    [&](const Patterns& each) { return each.format == format; });
    if (found != patterns_.end()) return *found;
    Patterns patterns{format, {}};
    for (std::size_t i = 0; i < kPatternsPerFormat; ++i) {
      patterns.pages.push_back(packedPage(format, seed_ + i));
    }
    return patterns_.emplace_back(std::move(patterns));
  }

  BackendBuffer packedPage(const PageFormat& format, std::uint64_t seed) {
    const std::int64_t count = format.groupSize * shape_.nKvHeads * shape_.headDim;
    const std::size_t partBytes = kernels::bytesOf(format.exactType, count);
    const std::size_t pageBytes =
        kernels::pageLayout(format, shape_.nKvHeads, shape_.headDim).totalBytes;
    BackendBuffer memory(backend_, unseen_, MemoryCategory::kWorkspace, 2 * partBytes);
    BackendBuffer page(backend_, unseen_, MemoryCategory::kWorkspace, pageBytes);
    RandomNumbers source(format.exactType, 2 * count, seed);
    const ExactSpan span{format.exactType, memory.data(), memory.data() + partBytes,
                         format.groupSize, format.groupSize};
    source.write(backend_, span.keys, count);
    source.write(backend_, span.values, count);
    backend_.packPage(shape_, {&span, 1}, format, kernels::QuantSolver::kMinMax, page.data());
    backend_.synchronize();  // before the source goes; a fault shows with the next operation
    return page;
  }

  static constexpr std::int64_t kRingNumbers = 32'749;

  kernels::Backend& backend_;
  const AttentionShape shape_;
  const std::uint64_t seed_;
  std::vector<std::pair<DataType, RandomNumbers>> numbers_;
  MemoryLedger unseen_;  // some pages for a moment
  std::vector<Patterns> patterns_;
};

/// How a cache of this config divides `nTokens` tokens that came one by one.
KvCacheCounts countsOf(const KvCacheConfig& config, std::int64_t nTokens) {
  KvCacheCounts counts;
  counts.sinkTokens = std::min(nTokens, config.sinkLength);
  const std::int64_t behindSink = nTokens - counts.sinkTokens;
  const std::int64_t packed = duePages(config, behindSink) * config.groupSize;
  if (config.slidingWindow > 0) {
    const std::int64_t unheld = behindSink - heldTokens(config);
    const std::int64_t forgettable = std::max<std::int64_t>(0, unheld) / config.groupSize;
    counts.forgottenTokens = std::min(forgettable * config.groupSize, packed);
  }
  counts.packedTokens = packed - counts.forgottenTokens;
  counts.nPages = counts.packedTokens / config.groupSize;
  counts.ringTokens = behindSink - packed;
  counts.ringFirst = packed % (config.residualLength + config.groupSize);
  return counts;
}

}  // namespace

void fillRandomly(KvCache& cache, kernels::Backend& backend, const AttentionShape& shape,
                  std::int64_t nLayers, std::int64_t nTokens, std::uint64_t seed,
                  const std::stop_token& stop) {
  cache.clear();  // its memory is needed
  const KvCacheCounts counts = countsOf(cache.config(), nTokens);
  std::vector<std::vector<PageRef>> tables;
  for (std::int64_t layer = 0; layer < nLayers; ++layer) {
    PageRef page;
    page.format = cache.config().pageFormat(layer);
    page.nTokens = page.format.groupSize;
    tables.emplace_back(static_cast<std::size_t>(counts.nPages), page);
  }
  RandomFill fill(backend, shape, seed);
  cache.replace(counts, tables, [&](const KvCache& fresh) {
    for (std::int64_t layer = 0; layer < nLayers; ++layer) {
      if (stop.stop_requested()) {
        throw Error(ErrorCode::kCancelled, "Stopped before the cache was filled.");
      }
      fill.fillLayer(fresh, layer);
    }
  });
}

}  // namespace longhand::engine
