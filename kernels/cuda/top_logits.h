#pragma once
// The largest of a vocabulary's logits, so that only these go to the host; semantics as
// Backend::topLogits.

#include <cstdint>

#include "kernels/cuda/device/own_memory.h"
#include "kernels/cuda/warp/launch_queue.h"
#include "kernels/types.h"

namespace longhand::kernels::cuda {

/// Device memory, made once by the backend.
struct TopWorkspace {
  std::uint64_t* partials = nullptr;  // [kMostTopBlocks, kMostTopLogits]
  unsigned* finished = nullptr;       // one counter, 0 between launches
  ScoredToken* best = nullptr;        // [kMostTopLogits]
};

/// One launch. workspace.best[0 .. nBest) = the best of `count` > 0 logits, in order; an id of -1
/// where there are fewer. nBest is 1 to kMostTopLogits.
void launchTopLogits(const float* logits, std::int64_t count, int nBest,
                     const TopWorkspace& workspace, const LaunchQueue& queue);

}  // namespace longhand::kernels::cuda
