#pragma once
// Storing, copying, packing and unpacking of a backend against the slow twin, byte for byte.
// std::bad_alloc when the device has no room.

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/checks/check_result.h"
#include "kernels/kv_types.h"

namespace longhand::kernels::checks {

/// `nTokens` rows with subnormal and infinite halves among them.
CheckResult checkStoreExact(Backend& backend, std::int64_t headDim, DataType type,
                            std::int64_t nTokens);
/// ropeAndStore(); aligned rows where the number of tokens is even.
CheckResult checkRopeAndStore(Backend& backend, const AttentionShape& shape, DataType type,
                              std::int64_t nTokens);
CheckResult checkCopyExact(Backend& backend, std::int64_t headDim, DataType type,
                           std::int64_t nTokens);
/// A page whose tokens lie in three spans of different types, as in a ring.
CheckResult checkPackPage(Backend& backend, std::int64_t headDim, const PageFormat& format,
                          QuantSolver solver);
/// A page that is not full.
CheckResult checkUnpackPage(Backend& backend, std::int64_t headDim, const PageFormat& format,
                            DataType type);

}  // namespace longhand::kernels::checks
