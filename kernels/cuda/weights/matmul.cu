// Products with weights of any type, shape and alignment, one warp an output: the slow path that
// nf4_matvec.cu, row_matvec.cu and tiled_matmul.cpp leave over.

#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/warp.cuh"
#include "kernels/cuda/weights/matmul.h"
#include "kernels/cuda/weights/weight_reader.cuh"

namespace longhand::kernels::cuda {
namespace {

constexpr int kWarps = 4;   // of a block; each makes one output of kTokens tokens
constexpr int kTokens = 8;  // that share a read of the weight

__global__ void __launch_bounds__(kWarps* kWarpSize)
    plainMatmulKernel(MatrixView input, WeightView weight, MatrixView output, bool accumulate) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (row >= weight.rows) return;  // whole warps: no barrier follows
  for (std::int64_t first = std::int64_t{blockIdx.y} * kTokens; first < input.rows;
       first += std::int64_t{gridDim.y} * kTokens) {
    const int nTokens = static_cast<int>(min(std::int64_t{kTokens}, input.rows - first));
    float sums[kTokens] = {};
    for (std::int64_t col = lane; col < weight.cols; col += kWarpSize) {
      const float w = readWeight(weight, row * weight.cols + col);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        if (t < nTokens) sums[t] += w * input.data[(first + t) * input.stride + col];
      }
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (t >= nTokens) break;
      const float sum = warpSum(sums[t]);
      float& y = output.data[(first + t) * output.stride + row];
      if (lane == 0) y = accumulate ? y + sum : sum;
    }
  }
}

}  // namespace

void launchPlainMatmul(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                       bool accumulate, const LaunchQueue& queue) {
  if (input.rows == 0) return;
  constexpr std::int64_t kMostBlocks = 65535;
  const std::int64_t tokenBlocks = ceilDivide<std::int64_t>(input.rows, kTokens);
  const dim3 grid(static_cast<unsigned>(ceilDivide<std::int64_t>(weight.rows, kWarps)),
                  static_cast<unsigned>(tokenBlocks < kMostBlocks ? tokenBlocks : kMostBlocks));
  launch(plainMatmulKernel, grid, kWarps * kWarpSize, 0, queue, input, weight, output, accumulate);
}

}  // namespace longhand::kernels::cuda
