#include "kernels/int8_weights.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "kernels/types.h"

namespace longhand::kernels {

void quantizeInt8(std::span<const float> values, std::span<std::int8_t> codes,
                  std::span<float> scales) {
  constexpr auto kBlock = static_cast<std::size_t>(kInt8BlockSize);
  constexpr float kLargestCode = 127.0F;
  assert(codes.size() == values.size() && scales.size() == (values.size() + kBlock - 1) / kBlock);
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const std::size_t first = block * kBlock;
    const std::size_t end = std::min(first + kBlock, values.size());
    float absmax = 0.0F;
    for (std::size_t i = first; i < end; ++i) absmax = std::max(absmax, std::abs(values[i]));
    const float scale = absmax / kLargestCode;
    scales[block] = scale;
    for (std::size_t i = first; i < end; ++i) {
      // A scale that underflows to 0 belongs to values that are nothing beside any other weight.
      const float code = scale > 0.0F ? std::nearbyint(values[i] / scale) : 0.0F;
      codes[i] = static_cast<std::int8_t>(std::clamp(code, -kLargestCode, kLargestCode));
    }
  }
}

}  // namespace longhand::kernels
