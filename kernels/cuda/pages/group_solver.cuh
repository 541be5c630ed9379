#pragma once
// The group quantizer of kernels/quantizer.h for one device thread: the same formulas in the same
// order, so that a page has the same bytes whichever processor packed it. Operations that nvcc
// would fuse are written as intrinsics that round.

#include "kernels/cuda/pages/kv_device.cuh"
#include "kernels/cuda/warp/portability.cuh"

namespace longhand::kernels::cuda {

// Constants of the half-quadratic solver, as in kernels/quantizer.cpp.
inline constexpr float kHqqFirstBeta = 10.0F;
inline constexpr float kHqqBetaGrowth = 1.01F;
inline constexpr int kHqqSteps = 20;

__device__ __forceinline__ float roundToHalf(float value) {
  return __half2float(__float2half_rn(value));
}

__device__ __forceinline__ int codeOf(float x, int nbits, QuantScheme scheme, GroupScale group) {
  if (!(group.scale > 0.0F)) return 0;
  const float largest = static_cast<float>((1 << nbits) - 1);
  const float position =
      scheme == QuantScheme::kAsymmetric
          ? rintf(__fdiv_rn(__fsub_rn(x, group.min), group.scale))
          : rintf(__fdiv_rn(x, group.scale)) + static_cast<float>(1 << (nbits - 1));
  if (position >= largest) return static_cast<int>(largest);
  return position > 0.0F ? static_cast<int>(position) : 0;
}

template <class Values>
__device__ double squaredError(const Values& values, int nbits, QuantScheme scheme,
                               GroupScale group) {
  const bool isAsymmetric = scheme == QuantScheme::kAsymmetric;
  double sum = 0.0;
  for (int i = 0; i < values.size(); ++i) {
    const float x = values[i];
    const float value = valueOfCode(codeOf(x, nbits, scheme, group), nbits, isAsymmetric, group);
    const double error = static_cast<double>(x) - static_cast<double>(value);
    sum = __dadd_rn(sum, __dmul_rn(error, error));
  }
  return sum;
}

/// x^(-3/10), as kernels/quantizer.cpp says.
__device__ __forceinline__ float rootPower(float x) {
  constexpr unsigned kStart = 0x45d341e8U;
  constexpr int kNewtonSteps = 4;
  float y = __uint_as_float(kStart - __float_as_uint(x) / 10U);
  for (int step = 0; step < kNewtonSteps; ++step) {
    const float square = __fmul_rn(y, y);
    const float fourth = __fmul_rn(square, square);
    const float tenth = __fmul_rn(__fmul_rn(fourth, fourth), square);
    y = __fadd_rn(y, __fmul_rn(y, __fmul_rn(__fsub_rn(1.0F, __fmul_rn(x, tenth)), 0.1F)));
  }
  return __fmul_rn(__fmul_rn(y, y), y);
}

/// Proximal operator of |x|^0.7.
__device__ __forceinline__ float shrink(float error, float beta) {
  constexpr float kLeastKept = 0.125F;
  const float magnitude = fabsf(error);
  if (!(magnitude >= kLeastKept)) return 0.0F;
  const float kept = __fsub_rn(magnitude, __fdiv_rn(rootPower(magnitude), beta));
  return kept > 0.0F ? copysignf(kept, error) : 0.0F;
}

template <class Values>
__device__ GroupScale hqqStep(const Values& values, int nbits, QuantScheme scheme, GroupScale group,
                              float beta) {
  constexpr float kLargestHalf = 65504.0F;
  const bool isAsymmetric = scheme == QuantScheme::kAsymmetric;
  double sum = 0.0;
  double weight = 0.0;
  for (int i = 0; i < values.size(); ++i) {
    const float x = values[i];
    const int code = codeOf(x, nbits, scheme, group);
    const float error = __fsub_rn(x, valueOfCode(code, nbits, isAsymmetric, group));
    const float target =
        __fsub_rn(x, __fmul_rn(shrink(__fdiv_rn(error, group.scale), beta), group.scale));
    if (isAsymmetric) {
      sum = __dadd_rn(sum, static_cast<double>(__fsub_rn(
                               target, __fmul_rn(group.scale, static_cast<float>(code)))));
      weight += 1.0;
    } else {
      const float level = static_cast<float>(code - (1 << (nbits - 1)));
      sum = __dadd_rn(sum, static_cast<double>(__fmul_rn(target, level)));
      weight = __dadd_rn(weight, static_cast<double>(__fmul_rn(level, level)));
    }
  }
  if (weight == 0.0) return group;
  const float quotient = static_cast<float>(sum / weight);
  const float solved = roundToHalf(fminf(fmaxf(quotient, -kLargestHalf), kLargestHalf));
  if (isAsymmetric) return {group.scale, solved};
  return {solved, 0.0F};
}

template <class Values>
__device__ GroupScale minMaxScale(const Values& values, int nbits, QuantScheme scheme) {
  float lowest = values[0];
  float highest = lowest;
  for (int i = 1; i < values.size(); ++i) {
    const float x = values[i];
    lowest = x < lowest ? x : lowest;
    highest = x > highest ? x : highest;
  }
  if (scheme == QuantScheme::kAsymmetric) {
    const float range = __fsub_rn(highest, lowest);
    return {roundToHalf(__fdiv_rn(range, static_cast<float>((1 << nbits) - 1))), lowest + 0.0F};
  }
  const float magnitude = fmaxf(fabsf(lowest), fabsf(highest));
  return {roundToHalf(__fdiv_rn(magnitude, static_cast<float>((1 << (nbits - 1)) - 1))), 0.0F};
}

/// scale and min of a group: `values` has size() and operator[], representable in F16.
template <class Values>
__device__ GroupScale solveGroup(const Values& values, int nbits, QuantScheme scheme,
                                 QuantSolver solver) {
  GroupScale best = minMaxScale(values, nbits, scheme);
  if (solver != QuantSolver::kHqq || !(best.scale > 0.0F)) return best;
  double bestError = squaredError(values, nbits, scheme, best);
  GroupScale trial = best;
  float beta = kHqqFirstBeta;
  for (int step = 0; step < kHqqSteps; ++step) {
    const GroupScale next = hqqStep(values, nbits, scheme, trial, beta);
    if (!(next.scale > 0.0F) || (next.scale == trial.scale && next.min == trial.min)) break;
    trial = next;
    const double error = squaredError(values, nbits, scheme, trial);
    if (error < bestError) {
      best = trial;
      bestError = error;
    }
    beta = __fmul_rn(beta, kHqqBetaGrowth);
  }
  return best;
}

}  // namespace longhand::kernels::cuda
