#pragma once
// Which pages a cache has at which time: the schedule of packing, and the sliding window that
// forgets. Pure arithmetic, shared by the forecast and by the cache itself.

#include <cstdint>
#include <vector>

#include "engine/cache/kv_cache_config.h"

namespace longhand::engine {

/// Pages that become due when the residual has gathered `tokens` tokens.
std::int64_t duePages(const KvCacheConfig& config, std::int64_t tokens);

/// A page is forgotten when none of its tokens is among the newest so many. More than the window's
/// promise by a quarter (at least a page), so that taking back an answer, to regenerate it or to
/// edit its question, seldom means reading everything again. The window must be on.
std::int64_t heldTokens(const KvCacheConfig& config);

/// The pages of one layer, and what stands around them.
struct PageSchedule {
  struct Held {
    std::int64_t end = 0;       // position behind its last token
    bool isRecyclable = false;  // a new page can take its place
  };
  std::int64_t length = 0;      // tokens so far, the forgotten ones too
  std::int64_t sinkRoom = 0;    // tokens that will still go to the sink
  std::int64_t ringTokens = 0;  // in the residual
  std::vector<Held> held;       // oldest first; only looked at when the window is on
};

/// Free pages that the layer needs so that `tokens` more tokens, which come in chunks of
/// `chunkTokens`, always find one. A chunk's new pages are taken before the old ones are forgotten,
/// since the chunk may be rolled back.
std::int64_t freePagesNeeded(const KvCacheConfig& config, PageSchedule schedule,
                             std::int64_t tokens, std::int64_t chunkTokens);

}  // namespace longhand::engine
