#include "kernels/quantizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/half.h"

namespace longhand::kernels {
namespace {

constexpr float kLargestHalf = 65504.0F;
constexpr std::size_t kLargestGroup = 256;

// Half-quadratic solver, values of the HQQ report: first weight and its growth, steps.
// The norm, 0.7, is in shrink().
constexpr float kHqqFirstBeta = 10.0F;
constexpr float kHqqBetaGrowth = 1.01F;
constexpr int kHqqSteps = 20;

float roundToHalf(float value) { return halfToFloat(floatToHalf(value)); }

float largestCode(int nbits) { return static_cast<float>((1 << nbits) - 1); }

float codeOffset(int nbits) { return static_cast<float>(1 << (nbits - 1)); }

/// NaN becomes code 0, so that no input can make the conversion undefined.
std::uint8_t clipCode(float position, int nbits) {
  const float largest = largestCode(nbits);
  if (position >= largest) return static_cast<std::uint8_t>(largest);
  return position > 0.0F ? static_cast<std::uint8_t>(position) : std::uint8_t{0};
}

void encode(std::span<const float> values, int nbits, QuantScheme scheme,
            const GroupParameters& group, std::span<std::uint8_t> codes) {
  if (!(group.scale > 0.0F)) {
    std::ranges::fill(codes, std::uint8_t{0});
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float position = scheme == QuantScheme::kAsymmetric
                               ? std::rint((values[i] - group.min) / group.scale)
                               : std::rint(values[i] / group.scale) + codeOffset(nbits);
    codes[i] = clipCode(position, nbits);
  }
}

double squaredError(std::span<const float> values, int nbits, QuantScheme scheme,
                    const GroupParameters& group, std::span<const std::uint8_t> codes) {
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = static_cast<double>(values[i]) -
                         static_cast<double>(dequantize(codes[i], nbits, scheme, group));
    sum += error * error;
  }
  return sum;
}

/// x^(-3/10) for x >= kLeastKept, within 2^-21 of it. The last places of powf() differ from library
/// to library and on a GPU, and pages must not; this is the same sums and products everywhere:
/// Newton's steps to the tenth root of 1 / x, from a tenth of the exponent.
float rootPower(float x) {
  constexpr std::uint32_t kStart = 0x45d341e8U;  // 1.1 * (127 - 0.045) exponents: 2 % off at most
  constexpr int kNewtonSteps = 4;
  float y = std::bit_cast<float>(kStart - std::bit_cast<std::uint32_t>(x) / 10U);
  for (int step = 0; step < kNewtonSteps; ++step) {
    const float square = y * y;
    const float fourth = square * square;
    const float tenth = fourth * fourth * square;
    y = y + y * ((1.0F - x * tenth) * 0.1F);
  }
  return y * y * y;
}

/// Proximal operator of |x|^0.7: small errors are taken as quantization, large ones as outliers.
float shrink(float error, float beta) {
  // Nothing is kept below beta^(-1 / 1.3), which is 0.145 for the last beta, 10 * 1.01^20.
  constexpr float kLeastKept = 0.125F;
  const float magnitude = std::fabs(error);
  if (!(magnitude >= kLeastKept)) return 0.0F;
  const float kept = magnitude - rootPower(magnitude) / beta;
  return kept > 0.0F ? std::copysign(kept, error) : 0.0F;
}

/// One half-quadratic step: the error is split into an outlier part (shrink) and a rest, and the
/// free parameter is set to the least-squares answer for the rest. Errors are measured in units of
/// the scale, so that the result does not depend on the units of the values.
GroupParameters hqqStep(std::span<const float> values, int nbits, QuantScheme scheme,
                        const GroupParameters& group, std::span<const std::uint8_t> codes,
                        float beta) {
  double sum = 0.0;
  double weight = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float error = values[i] - dequantize(codes[i], nbits, scheme, group);
    const float target = values[i] - shrink(error / group.scale, beta) * group.scale;
    if (scheme == QuantScheme::kAsymmetric) {
      sum += static_cast<double>(target - group.scale * static_cast<float>(codes[i]));
      weight += 1.0;
    } else {
      const float level = static_cast<float>(codes[i]) - codeOffset(nbits);
      sum += static_cast<double>(target * level);
      weight += static_cast<double>(level * level);
    }
  }
  if (weight == 0.0) return group;
  const float solved =
      roundToHalf(std::clamp(static_cast<float>(sum / weight), -kLargestHalf, kLargestHalf));
  if (scheme == QuantScheme::kAsymmetric) return {group.scale, solved};
  return {solved, 0.0F};
}

/// Keeps the best parameters met on the way, min-max included: never worse than min-max.
GroupParameters refineHqq(std::span<const float> values, int nbits, QuantScheme scheme,
                          const GroupParameters& start, std::span<std::uint8_t> codes) {
  std::array<std::uint8_t, kLargestGroup> trialMemory;
  const std::span<std::uint8_t> trialCodes = std::span(trialMemory).first(values.size());
  std::ranges::copy(codes, trialCodes.begin());
  GroupParameters best = start;
  double bestError = squaredError(values, nbits, scheme, start, codes);
  GroupParameters trial = start;
  float beta = kHqqFirstBeta;
  for (int step = 0; step < kHqqSteps; ++step) {
    const GroupParameters next = hqqStep(values, nbits, scheme, trial, trialCodes, beta);
    if (!(next.scale > 0.0F) || (next.scale == trial.scale && next.min == trial.min)) break;
    trial = next;
    encode(values, nbits, scheme, trial, trialCodes);
    const double error = squaredError(values, nbits, scheme, trial, trialCodes);
    if (error < bestError) {
      best = trial;
      bestError = error;
      std::ranges::copy(trialCodes, codes.begin());
    }
    beta *= kHqqBetaGrowth;
  }
  return best;
}

float largestMagnitude(std::span<const float> values) {
  float largest = 0.0F;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

}  // namespace

GroupParameters quantizeGroup(std::span<const float> values, int nbits, QuantScheme scheme,
                              QuantSolver solver, std::span<std::uint8_t> codes) {
  assert(!values.empty() && values.size() == codes.size() && values.size() <= kLargestGroup);
  GroupParameters group;
  if (scheme == QuantScheme::kAsymmetric) {
    const auto [lowest, highest] = std::ranges::minmax(values);
    group = {roundToHalf((highest - lowest) / largestCode(nbits)), lowest + 0.0F};  // -0 becomes 0
  } else {
    group = {roundToHalf(largestMagnitude(values) / (codeOffset(nbits) - 1.0F)), 0.0F};
  }
  encode(values, nbits, scheme, group, codes);
  if (solver == QuantSolver::kHqq && group.scale > 0.0F) {
    return refineHqq(values, nbits, scheme, group, codes);
  }
  return group;
}

GroupParameters quantizeGroupF32(std::span<const float> values, int nbits,
                                 std::span<std::uint8_t> codes) {
  assert(!values.empty() && values.size() == codes.size());
  const auto [lowest, highest] = std::ranges::minmax(values);
  const GroupParameters group{(highest - lowest) / largestCode(nbits), lowest};
  encode(values, nbits, QuantScheme::kAsymmetric, group, codes);
  return group;
}

float dequantize(std::uint8_t code, int nbits, QuantScheme scheme, const GroupParameters& group) {
  const float level = static_cast<float>(code);
  if (scheme == QuantScheme::kAsymmetric) return level * group.scale + group.min;
  return (level - codeOffset(nbits)) * group.scale;
}

}  // namespace longhand::kernels
