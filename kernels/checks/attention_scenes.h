#pragma once
// Attention over made-up layers that every backend is asked for, in the tests and in the self-test:
// the scenes stand here once, and who runs them says how he attends.

#include <cstdint>
#include <functional>

#include "kernels/backend.h"
#include "kernels/checks/check_result.h"
#include "kernels/checks/kv_scene.h"

namespace longhand::kernels::checks {

/// Attention to a scene of `nRows` queries, the first of them chunk token `chunkOffset`, against
/// the slow twin: checkAttention() of whatever is checked.
using SceneCheck =
    std::function<CheckResult(KvScene& scene, std::int64_t nRows, std::int64_t chunkOffset)>;

/// The same by a backend, which must outlive it.
SceneCheck sceneCheck(Backend& backend);

/// How finely a sweep goes through its sizes: all below some bound in steps of `small`.
struct SweepSteps {
  int small = 1;
  int large = 1;
};

/// The worst of each sweep; its problem names the first size that is wrong.
/// head_dim 8 to 256 (steps of `large` from 72 on), few and many rows.
CheckResult checkHeadDims(const SceneCheck& check, SweepSteps steps);
/// 1 to 140 rows (`large` from 20 on) of 1 to 8 queries a kv head, with offsets.
CheckResult checkQueryCounts(const SceneCheck& check, SweepSteps steps);
/// Pages of 1 to 128 valid tokens (`large` from 70 on) and spans of as many.
CheckResult checkValidTokenCounts(const SceneCheck& check, SweepSteps steps);

/// A long history of pages of all kinds, as after several changes of the preset.
struct MixedHistory {
  std::int64_t headDim = 80;
  int nPages = 40;
  DataType chunkType = DataType::kF16;
  std::int64_t nRows = 1;
};
CheckResult checkMixedHistory(const SceneCheck& check, const MixedHistory& history);

}  // namespace longhand::kernels::checks
