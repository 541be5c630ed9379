#include <cstdint>

#include "kernels/cuda/code_tiles.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/portability.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/warp.h"

// Products of NF4 weights with 1 to 8 tokens, at the speed of memory.
//
// A block makes 32 outputs; its 8 warps share the columns, 128 each of every 1024. Codes become
// halves by a table of all 256 pairs, one copy for each lane, so that no two lanes ever meet in a
// bank: a shift, an AND-OR and a load for two codes. Tensor cores multiply: 16 rows of weights with
// 8 columns of inputs, which are 4 tokens as high and low halves of floats. Each NF4 block of 64
// has its own sum, which its absmax scales, so weights are rounded only where the codebook is
// (2^-12).

namespace longhand::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kRowTiles = 2;  // of 16 rows, a block
constexpr int kRows = 16 * kRowTiles;
constexpr int kWarpCols = 128;  // two NF4 blocks: 16 bytes of each lane of four
constexpr int kBlocks = kWarpCols / static_cast<int>(kNf4BlockSize);
constexpr int kTileCols = kWarps * kWarpCols;
// Rows of halves 64 bytes apart modulo 128, so that lanes that read 16 bytes each meet no bank
// twice.
constexpr int kInputStride = kTileCols + 32;
constexpr int kTableBytes = 256 * kWarpSize * 4;

constexpr int kStaticBytes = 256 * 4;  // the nested codebook

/// Dynamic shared memory: the table, and high and low halves of a tile of each token.
constexpr int dynamicBytesFor(int nTokens) { return kTableBytes + nTokens * 2 * kInputStride * 2; }

struct MatvecJob {
  MatrixView input;
  WeightView weight;
  MatrixView output;
  bool accumulate;
};

/// table[byte][lane] = the two numbers of a byte of codes, as halves.
__device__ __forceinline__ void fillTable(unsigned* table, const float* codebook) {
  static_assert(kThreads == 256);
  const int byte = static_cast<int>(threadIdx.x);
  const unsigned pair = bitsOf(__floats2half2_rn(codebook[byte >> 4], codebook[byte & 15]));
  uint4* const row = reinterpret_cast<uint4*>(table + byte * kWarpSize);
#pragma unroll
  for (int i = 0; i < 8; ++i) row[(i + byte) % 8] = make_uint4(pair, pair, pair, pair);
}

/// The absmax of a row's NF4 block. Blocks run along rows, since cols is a multiple of 64.
__device__ __forceinline__ float absmaxOf(const WeightView& weight, const float* nestedCodebook,
                                          std::int64_t block) {
  if (weight.absmax != nullptr) return weight.absmax[block];
  return __fadd_rn(__fmul_rn(nestedCodebook[weight.absmaxCodes[block]],
                             weight.nestedAbsmax[block / kNf4NestedBlockSize]),
                   weight.nestedOffset);
}

/// What a warp reads of one tile of columns, for its rows.
struct WarpLoads {
  uint4 codes[kRowTiles][2];  // rows g and g + 8 of each tile: 32 columns of this lane
  float absmax[kBlocks];      // of row `lane` of the block's 32

  __device__ __forceinline__ void load(const WeightView& weight, const float* nestedCodebook,
                                       std::int64_t firstRow, int firstCol) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int col = firstCol + 32 * (lane % 4);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t row = firstRow + 16 * m + 8 * half + lane / 4;
        codes[m][half] = make_uint4(0, 0, 0, 0);
        if (row < weight.rows && col < weight.cols) {
          codes[m][half] =
              __ldg(reinterpret_cast<const uint4*>(weight.data + (row * weight.cols + col) / 2));
        }
      }
    }
    const std::int64_t row = firstRow + lane;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int blockCol = firstCol + b * static_cast<int>(kNf4BlockSize);
      absmax[b] = 0.0F;
      if (row < weight.rows && blockCol < weight.cols) {
        absmax[b] =
            absmaxOf(weight, nestedCodebook, (row * weight.cols + blockCol) / kNf4BlockSize);
      }
    }
  }

  /// From 32 columns in a row, which are half of one NF4 block, to 16 columns of each of two.
  __device__ __forceinline__ void exchange() {
    const bool isUpper = threadIdx.x % 4 >= 2;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint4& c = codes[m][half];
        const unsigned x = __shfl_xor_sync(kAllLanes, isUpper ? c.x : c.z, 2);
        const unsigned y = __shfl_xor_sync(kAllLanes, isUpper ? c.y : c.w, 2);
        if (isUpper) {
          c.x = x;
          c.y = y;
        } else {
          c.z = x;
          c.w = y;
        }
      }
    }
  }
};

/// Column, in a warp's 128, of the first of 16 codes that a lane has of a block after exchange().
__device__ __forceinline__ int firstColumnOf(int block, int q) {
  // Lanes 0 and 1 kept bytes 0 to 7 of block 0 and got the other half of lanes 2 and 3, and so on.
  const int source = block == 0 ? q % 2 : 2 + q % 2;
  return 32 * source + (q < 2 ? 0 : 16);
}

template <int kTokenTiles>
__global__ void __launch_bounds__(kThreads, kTokenTiles == 1 ? 2 : 1)
    nf4MatvecKernel(const __grid_constant__ MatvecJob job) {
  DYN_SHARED(unsigned char, shared);
  SHARED(nestedCodebook, float[256]);
  unsigned* const table = reinterpret_cast<unsigned*>(shared);
  __half* const inputs = reinterpret_cast<__half*>(shared + kTableBytes);  // [8 columns, stride]
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize;
  const int warp = thread / kWarpSize;
  const int g = lane / 4;
  const int q = lane % 4;
  const int nTokens = static_cast<int>(job.input.rows);
  const int cols = static_cast<int>(job.weight.cols);
  const std::int64_t firstRow = static_cast<std::int64_t>(blockIdx.x) * kRows;

  fillTable(table, job.weight.codebook);
  nestedCodebook[thread] = job.weight.absmax == nullptr ? job.weight.nestedCodebook[thread] : 0.0F;
  __syncthreads();

  float sums[kRowTiles][kTokenTiles][4] = {};
  WarpLoads next;
  next.load(job.weight, nestedCodebook, firstRow, warp * kWarpCols);
#pragma unroll 1
  for (int tile = 0; tile < cols; tile += kTileCols) {
    // Inputs of the tile as high and low halves; zeros beyond the columns.
    for (int i = thread; i < nTokens * kTileCols; i += kThreads) {
      const int token = i / kTileCols;
      const int col = i % kTileCols;
      const float x =
          tile + col < cols ? job.input.data[token * job.input.stride + tile + col] : 0.0F;
      const SplitHalf parts = splitHalf(x);
      inputs[2 * token * kInputStride + col] = parts.high;
      inputs[(2 * token + 1) * kInputStride + col] = parts.low;
    }
    WarpLoads now = next;
    now.exchange();
    __syncthreads();
    if (tile + kTileCols < cols) {
      next.load(job.weight, nestedCodebook, firstRow, tile + kTileCols + warp * kWarpCols);
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      unsigned columns[kTokenTiles][8];  // this lane's 16 columns of the block
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        // Columns without a token repeat the last: their sums are not stored.
        const int column = min(8 * n + g, 2 * nTokens - 1);
        const __half* const row = inputs + column * kInputStride + warp * kWarpCols;
        const auto* const at = reinterpret_cast<const uint4*>(row + firstColumnOf(b, q));
        const uint4 first = at[0];
        const uint4 second = at[1];
        const unsigned all[8] = {first.x,  first.y,  first.z,  first.w,
                                 second.x, second.y, second.z, second.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) columns[n][i] = all[i];
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        const uint4& upper = now.codes[m][0];
        const uint4& lower = now.codes[m][1];
        const unsigned words[2][2] = {{b == 0 ? upper.x : upper.z, b == 0 ? upper.y : upper.w},
                                      {b == 0 ? lower.x : lower.z, b == 0 ? lower.y : lower.w}};
        float block[kTokenTiles][4] = {};
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          unsigned a[4];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const unsigned word = words[half][s / 2] >> (s % 2 * 16);
            a[half] = table[(word & 0xffU) * kWarpSize + lane];
            a[half + 2] = table[(word >> 8U & 0xffU) * kWarpSize + lane];
          }
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n) {
            const unsigned pair[2] = {columns[n][2 * s], columns[n][2 * s + 1]};
            multiplyTile(block[n], a, pair);
          }
        }
        const float upperScale = __shfl_sync(kAllLanes, now.absmax[b], 16 * m + g);
        const float lowerScale = __shfl_sync(kAllLanes, now.absmax[b], 16 * m + 8 + g);
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
          sums[m][n][0] += upperScale * block[n][0];
          sums[m][n][1] += upperScale * block[n][1];
          sums[m][n][2] += lowerScale * block[n][2];
          sums[m][n][3] += lowerScale * block[n][3];
        }
      }
    }
    __syncthreads();
  }

  // [kWarps, kRows, 4 * kTokenTiles], in the place of the inputs.
  float* const parts = reinterpret_cast<float*>(inputs);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const int at = (warp * kRows + 16 * m + g) * 4 * kTokenTiles + 4 * n + q;
      parts[at] = sums[m][n][0] + sums[m][n][1];
      parts[at + 8 * 4 * kTokenTiles] = sums[m][n][2] + sums[m][n][3];
    }
  }
  __syncthreads();
  for (int i = thread; i < kRows * nTokens; i += kThreads) {
    const int token = i / kRows;
    const std::int64_t row = firstRow + i % kRows;
    if (row >= job.weight.rows) continue;
    float sum = 0.0F;
    for (int w = 0; w < kWarps; ++w)
      sum += parts[(w * kRows + i % kRows) * 4 * kTokenTiles + token];
    float& y = job.output.data[token * job.output.stride + row];
    y = job.accumulate ? y + sum : sum;
  }
}

template <int kTokenTiles>
void launchAs(const MatvecJob& job, const LaunchQueue& queue) {
  const int nTokens = static_cast<int>(job.input.rows);
  const int bytes = dynamicBytesFor(nTokens);
  // The warps' sums take the place of the inputs.
  static_assert(kWarps * kRows * 4 * 4 <= dynamicBytesFor(1) - kTableBytes);
  queue.allowShared(reinterpret_cast<const void*>(nf4MatvecKernel<kTokenTiles>), bytes);
  const auto blocks = static_cast<unsigned>(ceilDivide<std::int64_t>(job.weight.rows, kRows));
  launch(nf4MatvecKernel<kTokenTiles>, blocks, kThreads, static_cast<std::size_t>(bytes), queue,
         job);
}

}  // namespace

bool canNf4Matvec(const MatrixView& input, const WeightView& weight, std::size_t mostSharedBytes) {
  const std::int64_t nTokens = input.rows < 8 ? input.rows : 8;
  const auto wanted =
      static_cast<std::size_t>(dynamicBytesFor(static_cast<int>(nTokens)) + kStaticBytes);
  return weight.type == DataType::kNf4 && input.rows <= 8 && wanted <= mostSharedBytes &&
         weight.cols % kNf4BlockSize == 0 &&
         reinterpret_cast<std::uintptr_t>(weight.data) % 16 == 0;
}

void launchNf4Matvec(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                     bool accumulate, const LaunchQueue& queue) {
  if (input.rows == 0) return;
  const MatvecJob job{input, weight, output, accumulate};
  if (input.rows <= 4) {
    launchAs<1>(job, queue);
  } else {
    launchAs<2>(job, queue);
  }
}

}  // namespace longhand::kernels::cuda
