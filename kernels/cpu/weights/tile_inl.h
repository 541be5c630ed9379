#pragma once
// A panel of expanded weights times many tokens: kTileTokens x 4 sums stay in registers, so that
// each number that is loaded is used 4 or kTileTokens times.
// Included after simd_<set>.h and simd_partial.h: see cpu_kernels.h.

#include "kernels/cpu/weights/cpu_kernels.h"

namespace longhand::kernels {
namespace {

template <int kTokens>
void multiplyGroup(const TileJob& job, std::int64_t token, std::int64_t row) {
  static_assert(kTileRowGroup == 4);
  const float* const weights = job.tile + row * job.tileStride;     // [4, tileStride]
  const float* const inputs = job.input + token * job.inputStride;  // [kTokens, inputStride]
  Simd::Float sums[kTokens][4];
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < 4; ++r) sums[t][r] = Simd::zero();
  }
  std::int64_t i = 0;
  for (; i + Simd::kLanes <= job.cols; i += Simd::kLanes) {
    Simd::Float w[4];
    for (int r = 0; r < 4; ++r) w[r] = Simd::load(weights + r * job.tileStride + i);
    for (int t = 0; t < kTokens; ++t) {
      const Simd::Float x = Simd::load(inputs + t * job.inputStride + i);
      for (int r = 0; r < 4; ++r) sums[t][r] = Simd::multiplyAdd(w[r], x, sums[t][r]);
    }
  }
  if (i < job.cols) {
    for (int t = 0; t < kTokens; ++t) {
      const Simd::Float x = loadFirst(inputs + t * job.inputStride + i, job.cols - i);
      for (int r = 0; r < 4; ++r) {
        const Simd::Float w = Simd::load(weights + r * job.tileStride + i);
        sums[t][r] = Simd::multiplyAdd(w, x, sums[t][r]);
      }
    }
  }
  const std::int64_t nRows = job.nRows - row < 4 ? job.nRows - row : 4;
  for (int t = 0; t < kTokens; ++t) {
    float totals[4];
    Simd::sum4(sums[t][0], sums[t][1], sums[t][2], sums[t][3], totals);
    float* const output = job.output + (token + t) * job.outputStride + row;
    for (std::int64_t r = 0; r < nRows; ++r) {
      output[r] = job.accumulate ? output[r] + totals[r] : totals[r];
    }
  }
}

template <int kTokens>
void multiplyTokens(const TileJob& job, std::int64_t token) {
  for (std::int64_t row = 0; row < job.nRows; row += 4) multiplyGroup<kTokens>(job, token, row);
}

inline void multiplyTile(const TileJob& job) {
  static_assert(Simd::kTileTokens == 3 || Simd::kTileTokens == 6);
  std::int64_t token = 0;
  for (; token + Simd::kTileTokens <= job.nTokens; token += Simd::kTileTokens) {
    multiplyTokens<Simd::kTileTokens>(job, token);
  }
  switch (job.nTokens - token) {
    case 1:
      return multiplyTokens<1>(job, token);
    case 2:
      return multiplyTokens<2>(job, token);
    case 3:
      return multiplyTokens<3>(job, token);
    case 4:
      return multiplyTokens<4>(job, token);
    case 5:
      return multiplyTokens<5>(job, token);
    default:
      return;
  }
}

}  // namespace
}  // namespace longhand::kernels
