#include "kernels/cpu/weights/byte_codebook.h"

#include <algorithm>
#include <cmath>

namespace longhand::kernels {
namespace {

constexpr double kLargestByte = 255.0;

struct Candidate {
  double step = 1.0;
  double zero = 0.0;
  double error = 0.0;  // sum of squares
};

std::uint8_t nearestByte(double value, double step, double zero) {
  return static_cast<std::uint8_t>(
      std::clamp(std::nearbyint(value / step + zero), 0.0, kLargestByte));
}

double errorOf(std::span<const float, 16> codebook, double step, double zero) {
  double error = 0.0;
  for (const float value : codebook) {
    const double wanted = static_cast<double>(value);
    const double byte = nearestByte(wanted, step, zero);
    error += std::pow((byte - zero) * step - wanted, 2);
  }
  return error;
}

}  // namespace

ByteCodebook roundToBytes(std::span<const float, 16> codebook) {
  const auto [least, largest] = std::ranges::minmax(codebook);
  const double low = static_cast<double>(least);
  const double high = static_cast<double>(largest);
  // The finest step: the numbers fill the bytes from end to end.
  double finest = (high - low) / kLargestByte;
  if (!(finest > 0.0)) finest = 1.0;  // all numbers are equal

  Candidate best;
  best.error = HUGE_VAL;
  constexpr int kSteps = 128;
  constexpr int kZeros = 64;
  for (int s = 0; s < kSteps; ++s) {
    const double step = finest * (1.0 + 0.25 * s / kSteps);
    const double lowestZero = -low / step;                  // the least number becomes byte 0
    const double highestZero = kLargestByte - high / step;  // the largest becomes 255
    for (int z = 0; z <= kZeros; ++z) {
      const double zero = lowestZero + (highestZero - lowestZero) * z / kZeros;
      const double error = errorOf(codebook, step, zero);
      if (error < best.error) best = {step, zero, error};
    }
  }
  ByteCodebook bytes;
  bytes.step = static_cast<float>(best.step);
  bytes.zero = static_cast<float>(best.zero);
  for (std::size_t code = 0; code < codebook.size(); ++code) {
    bytes.bytes[code] = nearestByte(static_cast<double>(codebook[code]), best.step, best.zero);
  }
  return bytes;
}

}  // namespace longhand::kernels
