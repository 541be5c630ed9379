#pragma once
// Stored weights to floats. Included after simd_<set>.h and simd_partial.h: see cpu_kernels.h.

#include "kernels/cpu/weights/cpu_kernels.h"

namespace longhand::kernels {
namespace {

template <typename Numbers>
void expandPlain(const typename Numbers::Stored* input, std::int64_t count, float* output) {
  std::int64_t i = 0;
  for (; i + Simd::kLanes <= count; i += Simd::kLanes) {
    Simd::store(output + i, Numbers::load(input + i));
  }
  if (i < count) {
    storeFirst(output + i, loadFirstNumbers<Numbers>(input + i, count - i), count - i);
  }
}

inline void expandNf4(const float* codebook, const std::uint8_t* codes, const float* absmax,
                      std::int64_t nBlocks, float* output) {
  const Simd::Codebook numbers = Simd::loadCodebook(codebook);
  for (std::int64_t block = 0; block < nBlocks; ++block) {
    const Simd::Float scale = Simd::broadcast(absmax[block]);
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < kNf4BlockSize; i += Simd::kLanes) {
      Simd::store(output + i, Simd::multiply(Simd::lookUpInOrder(numbers, codes + i / 2), scale));
    }
    codes += kNf4BlockSize / 2;
    output += kNf4BlockSize;
  }
}

inline void expandInt8(const std::int8_t* codes, const float* scales, std::int64_t nBlocks,
                       float* output) {
  for (std::int64_t block = 0; block < nBlocks; ++block) {
    for (std::int64_t i = 0; i < kInt8BlockSize; ++i) {
      output[i] = static_cast<float>(codes[i]) * scales[block];
    }
    codes += kInt8BlockSize;
    output += kInt8BlockSize;
  }
}

}  // namespace
}  // namespace longhand::kernels
