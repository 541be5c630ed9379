#pragma once
// Products of a backend against the slow twin, within a tolerance that is derived.

#include <cstdint>
#include <string>

#include "kernels/backend.h"
#include "kernels/checks/check_result.h"
#include "kernels/checks/test_matrix.h"

namespace longhand::kernels::checks {

/// output [nTokens, rows] = input [nTokens, cols] * weight^T. The numbers follow from the sizes.
struct MatmulCase {
  WeightForm form = WeightForm::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t nTokens = 0;
  bool accumulate = false;
  /// Weights as the engine lays them out, and every second time rows of input likewise. Otherwise
  /// nothing is aligned, which takes the slow paths.
  bool isAligned = false;
};

/// How the factors of a product are rounded before float sums are made of them.
enum class FactorRounding {
  kNone,
  kBytes,         // integers of the CPU's paths: kernels/cpu/weights/int8_matmul.h
  kHalfCodebook,  // NF4 of up to 8 tokens on a device: kernels/cuda/weights/nf4_matvec.cu
  kHalves,        // more tokens on a device: kernels/cuda/weights/tiled_matmul.h
};
FactorRounding factorRounding(const Backend& backend, const MatmulCase& c);

/// Never throws for a wrong result; std::bad_alloc when the device has no room.
CheckResult checkMatmul(Backend& backend, const MatmulCase& c);
/// matmulEach() of weights with `rows` rows each, of the same form.
CheckResult checkMatmulEach(Backend& backend, const MatmulCase& c,
                            std::span<const std::int64_t> rowsOfEach);

/// normMatmulEach() likewise, of 1 to 3 weights.
CheckResult checkNormMatmulEach(Backend& backend, const MatmulCase& c,
                                std::span<const std::int64_t> rowsOfEach);
/// normGateUp() of two weights [rows, cols].
CheckResult checkNormGateUp(Backend& backend, const MatmulCase& c);

}  // namespace longhand::kernels::checks
