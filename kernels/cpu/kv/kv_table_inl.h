#pragma once
// The table of a set's KV kernels: what all sets fill in alike. Included last by kv_<set>.cpp; it
// is evaluated by the compiler, so no code of it remains.

#include "kernels/cpu/kv/kv_kernels.h"

namespace longhand::kernels {
namespace {

/// `attendDirect` is the one function that sets choose: by floats or by integers.
constexpr KvKernels kvKernelTable(const char* name, decltype(KvKernels::attendDirect) attendDirect,
                                  bool attendsByIntegers = false) {
  return {
      .name = name,
      .attendsByIntegers = attendsByIntegers,
      .attendDirect = attendDirect,
      .attendExpanded = attendExpanded,
      .arrangeQueries = arrangeQueries,
      .floatKernels = nullptr,
      .expandedQueries = 256,
      .mergeRuns = mergeRuns,
      .expandKeys = expandKeys,
      .expandValues = expandValues,
      .roundToHalves = roundToHalves,
      .quantizeKeys = quantizeKeys,
      .quantizeValues = quantizeValues,
      .floatsToHalves = floatsToHalves,
      .halvesToFloats = halvesToFloats,
      .exp2InPlace = exp2InPlace,
  };
}

}  // namespace
}  // namespace longhand::kernels
