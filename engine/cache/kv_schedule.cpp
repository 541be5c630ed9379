#include "engine/cache/kv_schedule.h"

#include <algorithm>
#include <cassert>

namespace longhand::engine {

std::int64_t duePages(const KvCacheConfig& config, std::int64_t tokens) {
  return std::max<std::int64_t>(0, tokens - config.residualLength) / config.groupSize;
}

std::int64_t heldTokens(const KvCacheConfig& config) {
  assert(config.slidingWindow > 0);
  return config.slidingWindow + std::max<std::int64_t>(config.slidingWindow / 4, config.groupSize);
}

std::int64_t freePagesNeeded(const KvCacheConfig& config, PageSchedule schedule,
                             std::int64_t tokens, std::int64_t chunkTokens) {
  assert(chunkTokens > 0);
  if (config.slidingWindow == 0) {
    return duePages(config,
                    schedule.ringTokens + std::max<std::int64_t>(0, tokens - schedule.sinkRoom));
  }
  const std::int64_t kept = heldTokens(config);
  const std::int64_t flush = config.residualLength + config.groupSize;
  // Until then every page of today is forgotten, and chunks have ended at every place in a page:
  // after it the same things happen again and again.
  const std::int64_t steadyLength =
      schedule.length + schedule.sinkRoom + kept + 2 * flush + (config.groupSize + 2) * chunkTokens;

  std::int64_t used = 0;
  std::int64_t most = 0;
  std::size_t oldest = 0;
  const auto forgetAt = [&](std::int64_t length) {
    for (; oldest < schedule.held.size() && schedule.held[oldest].end + kept <= length; ++oldest) {
      if (schedule.held[oldest].isRecyclable) --used;
    }
  };
  while (tokens > 0 && schedule.length < steadyLength) {
    // Chunks that complete no page are passed over at once.
    const std::int64_t gap =
        schedule.sinkRoom + std::max<std::int64_t>(1, flush - schedule.ringTokens);
    const std::int64_t count =
        std::min(tokens, (gap + chunkTokens - 1) / chunkTokens * chunkTokens);
    schedule.length += count;
    tokens -= count;
    const std::int64_t toSink = std::min(count, schedule.sinkRoom);
    schedule.sinkRoom -= toSink;
    schedule.ringTokens += count - toSink;
    forgetAt(schedule.length - std::min(count, chunkTokens));
    for (std::int64_t due = duePages(config, schedule.ringTokens); due > 0; --due) {
      const std::int64_t end = schedule.length - schedule.ringTokens + config.groupSize;
      schedule.ringTokens -= config.groupSize;
      if (end + kept <= schedule.length) continue;  // never packed
      schedule.held.push_back({end, true});
      ++used;
    }
    most = std::max(most, used);
    forgetAt(schedule.length);
  }
  return most;
}

}  // namespace longhand::engine
