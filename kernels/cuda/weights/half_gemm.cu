// Our own product of matrices of halves on tensor cores, for where cuBLAS is not installed. A block
// makes 128 x 128 outputs; while it multiplies one stage of 32 columns the next one comes.

#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/ptx.cuh"
#include "kernels/cuda/warp/warp.cuh"
#include "kernels/cuda/weights/half_gemm.h"

namespace longhand::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBlockTokens = 128;  // outputs of a block
constexpr int kBlockRows = 128;
constexpr int kWarpTokens = 64;  // outputs of a warp: 2 x 4 warps
constexpr int kWarpRows = 32;
constexpr int kWarpsOfRows = kBlockRows / kWarpRows;
constexpr int kDepth = 32;  // of a stage
constexpr int kStages = 2;  // one is computed while the next one comes
/// Rows of 80 bytes: the 8 rows that ldmatrix reads at once lie in different banks.
constexpr int kStride = kDepth + 8;
constexpr int kTokenTiles = kWarpTokens / 16;
constexpr int kRowTiles = kWarpRows / 8;

using Stage = __half[kBlockTokens][kStride];

/// Rows [first, first + 128) of a matrix of halves, columns [k, k + kDepth), in the background.
/// Rows beyond `nRows` are zeros.
__device__ __forceinline__ void copyStage(Stage& stage, const __half* matrix, std::int64_t first,
                                          std::int64_t nRows, std::int64_t depth, std::int64_t k) {
  constexpr int kPieces = kDepth / 8;  // of 16 bytes in a row
#pragma unroll
  for (int i = 0; i < kBlockTokens * kPieces / kThreads; ++i) {
    const int piece = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = piece / kPieces;
    const int column = piece % kPieces * 8;
    const bool isInside = first + row < nRows;
    const std::int64_t source = isInside ? (first + row) * depth + k + column : 0;
    copyAsync16(&stage[row][column], matrix + source, isInside ? 16U : 0U);
  }
}

/// The warp's 64 x 32 outputs of one stage.
__device__ __forceinline__ void multiplyStage(const Stage& input, const Stage& weight,
                                              int firstToken, int firstRow,
                                              float (&sums)[kTokenTiles][kRowTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int matrix = lane / 8;  // whose row this lane passes to ldmatrix
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    unsigned b[kRowTiles / 2][4];
#pragma unroll
    for (int n = 0; n < kRowTiles / 2; ++n) {
      loadTiles<false>(b[n],
                       &weight[firstRow + n * 16 + matrix / 2 * 8 + lane % 8][k + matrix % 2 * 8]);
    }
#pragma unroll
    for (int m = 0; m < kTokenTiles; ++m) {
      unsigned a[4];
      loadTiles<false>(a,
                       &input[firstToken + m * 16 + matrix % 2 * 8 + lane % 8][k + matrix / 2 * 8]);
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        const unsigned pair[2] = {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]};
        multiplyTile(sums[m][n], a, pair);
      }
    }
  }
}

/// sm_75, which copies at once, has shared memory for one block; so that has registers for two.
constexpr int kBlocksAtOnce = kCopiesAsync ? 2 : 1;

/// x: rows of the weight in groups of kBlockRows, y: tokens in groups of kBlockTokens.
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    halfGemmKernel(const __half* __restrict__ input, const __half* __restrict__ weight,
                   HalfProduct product) {
  SHARED(inputs, Stage[kStages]);
  SHARED(weights, Stage[kStages]);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t blockToken = static_cast<std::int64_t>(blockIdx.y) * kBlockTokens;
  const std::int64_t blockRow = static_cast<std::int64_t>(blockIdx.x) * kBlockRows;
  const int warpToken = warp / kWarpsOfRows * kWarpTokens;
  const int warpRow = warp % kWarpsOfRows * kWarpRows;
  const bool hasOutputs =
      blockToken + warpToken < product.nTokens && blockRow + warpRow < product.nRows;

  const auto copy = [&](std::int64_t k) {
    const int stage = static_cast<int>(k / kDepth % kStages);
    copyStage(inputs[stage], input, blockToken, product.nTokens, product.depth, k);
    copyStage(weights[stage], weight, blockRow, product.nRows, product.depth, k);
    commitCopies();
  };
  float sums[kTokenTiles][kRowTiles][4] = {};
  copy(0);
#pragma unroll 1
  for (std::int64_t k = 0; k < product.depth; k += kDepth) {
    waitCopies<0>();
    __syncthreads();  // the stage is here, and the other one has been computed
    if (k + kDepth < product.depth) copy(k + kDepth);
    const int stage = static_cast<int>(k / kDepth % kStages);
    if (hasOutputs) multiplyStage(inputs[stage], weights[stage], warpToken, warpRow, sums);
  }
#pragma unroll
  for (int m = 0; m < kTokenTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int64_t token = blockToken + warpToken + m * 16 + i / 2 * 8 + lane / 4;
        const std::int64_t row = blockRow + warpRow + n * 8 + lane % 4 * 2 + i % 2;
        if (token >= product.nTokens || row >= product.nRows) continue;
        float& y = product.output[token * product.outputStride + row];
        y = product.accumulate ? y + sums[m][n][i] : sums[m][n][i];
      }
    }
  }
}

}  // namespace

void launchHalfGemm(const HalfProduct& product, const LaunchQueue& queue) {
  if (product.nTokens == 0 || product.nRows == 0) return;
  const dim3 grid(static_cast<unsigned>(ceilDivide<std::int64_t>(product.nRows, kBlockRows)),
                  static_cast<unsigned>(ceilDivide<std::int64_t>(product.nTokens, kBlockTokens)));
  launch(halfGemmKernel, grid, kThreads, 0, queue, static_cast<const __half*>(product.input),
         static_cast<const __half*>(product.weight), product);
}

}  // namespace longhand::kernels::cuda
