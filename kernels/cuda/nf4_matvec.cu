#include <cstdint>

#include "kernels/cuda/code_tiles.h"
#include "kernels/cuda/matvec_job.h"
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
//
// With a norm, a block sums up the squares of its input while its first weights are on their way:
// 16 KB from L2 for 4096 columns, and a kernel less. Gated, half of a block's rows are the gate's
// and half the same rows of the other weight.

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

constexpr int kMostTokens = 8;
constexpr int kCodebook = 256;  // numbers of a nested codebook
/// Two nested codebooks, and what the norm needs.
constexpr int kStaticBytes = (2 * kCodebook + (kWarps + 1) * kMostTokens) * 4;

/// Dynamic shared memory: the table, and high and low halves of a tile of each token.
constexpr int dynamicBytesFor(int nTokens) { return kTableBytes + nTokens * 2 * kInputStride * 2; }

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
template <bool kIsGated>
struct WarpLoads {
  uint4 codes[kRowTiles][2];  // rows g and g + 8 of each tile: 32 columns of this lane
  float absmax[kBlocks];      // of row `lane` of the block's 32

  /// Tile m is of projection `index`; gated, of projection m. Row tiles start at `firstRow`.
  __device__ __forceinline__ void load(const MatvecJob& job, int index,
                                       const float* nestedCodebooks, int firstRow, int firstCol) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int col = firstCol + 32 * (lane % 4);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const WeightView& weight = job.projections[kIsGated ? m : index].weight;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t row = firstRow + (kIsGated ? 0 : 16 * m) + 8 * half + lane / 4;
        codes[m][half] = make_uint4(0, 0, 0, 0);
        if (row < weight.rows && col < weight.cols) {
          codes[m][half] =
              __ldg(reinterpret_cast<const uint4*>(weight.data + (row * weight.cols + col) / 2));
        }
      }
    }
    const int own = kIsGated ? lane / 16 : index;
    const WeightView& weight = job.projections[own].weight;
    const std::int64_t row = firstRow + (kIsGated ? lane % 16 : lane);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int blockCol = firstCol + b * static_cast<int>(kNf4BlockSize);
      absmax[b] = 0.0F;
      if (row < weight.rows && blockCol < weight.cols) {
        absmax[b] = absmaxOf(weight, nestedCodebooks + (kIsGated ? own * kCodebook : 0),
                             (row * weight.cols + blockCol) / kNf4BlockSize);
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

/// partials[warp][token] = this warp's share of the squares of each row of input.
__device__ __forceinline__ void sumSquares(const MatvecJob& job,
                                           float (&partials)[kWarps][kMostTokens]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int cols = static_cast<int>(job.input.cols);
#pragma unroll 1
  for (int token = 0; token < static_cast<int>(job.input.rows); ++token) {
    const float* const row = job.input.data + token * job.input.stride;
    float sum = 0.0F;
#pragma unroll 4
    for (int col = 4 * thread; col < cols; col += 4 * kThreads) {
      const float4 x = loadFour(row, col, job.isAligned != 0);
      sum += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
    }
    sum = warpSum(sum);
    if (thread % kWarpSize == 0) partials[thread / kWarpSize][token] = sum;
  }
}

/// A tile of the input as high and low halves, zeros beyond the columns. A thread has 4 columns.
__device__ __forceinline__ void stageInput(const MatvecJob& job, const float* factors, int tile,
                                           __half* inputs) {
  static_assert(kTileCols == 4 * kThreads);
  const int col = 4 * static_cast<int>(threadIdx.x);
  const bool isInside = tile + col < static_cast<int>(job.input.cols);  // cols % 64 == 0
  const bool isAligned = job.isAligned != 0;
  for (int token = 0; token < static_cast<int>(job.input.rows); ++token) {
    float4 x = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    if (isInside) {
      x = loadFour(job.input.data + token * job.input.stride, tile + col, isAligned);
      if (job.normWeight != nullptr) {
        const float4 w = loadFour(job.normWeight, tile + col, isAligned);
        const float factor = factors[token];
        x = make_float4(x.x * factor * w.x, x.y * factor * w.y, x.z * factor * w.z,
                        x.w * factor * w.w);
      }
    }
    const SplitHalf a = splitHalf(x.x);
    const SplitHalf b = splitHalf(x.y);
    const SplitHalf c = splitHalf(x.z);
    const SplitHalf d = splitHalf(x.w);
    __half* const row = inputs + 2 * token * kInputStride + col;
    *reinterpret_cast<uint2*>(row) =
        make_uint2(bitsOf(__halves2half2(a.high, b.high)), bitsOf(__halves2half2(c.high, d.high)));
    *reinterpret_cast<uint2*>(row + kInputStride) =
        make_uint2(bitsOf(__halves2half2(a.low, b.low)), bitsOf(__halves2half2(c.low, d.low)));
  }
}

template <int kTokenTiles, bool kIsGated>
__global__ void __launch_bounds__(kThreads, kTokenTiles == 1 ? 2 : 1)
    nf4MatvecKernel(const __grid_constant__ MatvecJob job) {
  DYN_SHARED(unsigned char, shared);
  SHARED(nestedCodebooks, float[2 * kCodebook]);
  SHARED(partials, float[kWarps][kMostTokens]);
  SHARED(factors, float[kMostTokens]);
  unsigned* const table = reinterpret_cast<unsigned*>(shared);
  __half* const inputs = reinterpret_cast<__half*>(shared + kTableBytes);  // [8 columns, stride]
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize;
  const int warp = thread / kWarpSize;
  const int g = lane / 4;
  const int q = lane % 4;
  const int nTokens = static_cast<int>(job.input.rows);
  const int cols = static_cast<int>(job.input.cols);
  const int index = kIsGated ? 0 : projectionOfBlock(job);
  const int firstRow =
      (static_cast<int>(blockIdx.x) - job.firstBlocks[index]) * (kIsGated ? kRows / 2 : kRows);

  fillTable(table, job.projections[index].weight.codebook);
#pragma unroll
  for (int i = 0; i < (kIsGated ? 2 : 1); ++i) {
    const WeightView& weight = job.projections[index + i].weight;
    nestedCodebooks[i * kCodebook + thread] =
        weight.absmax == nullptr ? weight.nestedCodebook[thread] : 0.0F;
  }
  __syncthreads();

  float sums[kRowTiles][kTokenTiles][4] = {};
  WarpLoads<kIsGated> next;
  next.load(job, index, nestedCodebooks, firstRow, warp * kWarpCols);
  if (job.normWeight != nullptr) {
    sumSquares(job, partials);
    __syncthreads();
    if (thread < nTokens) {
      float sum = 0.0F;
      for (int w = 0; w < kWarps; ++w) sum += partials[w][thread];
      factors[thread] = 1.0F / sqrtf(sum / static_cast<float>(cols) + job.normEpsilon);
    }
    __syncthreads();
  }
#pragma unroll 1
  for (int tile = 0; tile < cols; tile += kTileCols) {
    stageInput(job, factors, tile, inputs);
    WarpLoads<kIsGated> now = next;
    now.exchange();
    __syncthreads();
    if (tile + kTileCols < cols) {
      next.load(job, index, nestedCodebooks, firstRow, tile + kTileCols + warp * kWarpCols);
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
  constexpr int kOutputs = kIsGated ? kRows / 2 : kRows;
  const auto sumOf = [&](int row, int token) {
    float sum = 0.0F;
    for (int w = 0; w < kWarps; ++w) sum += parts[(w * kRows + row) * 4 * kTokenTiles + token];
    return sum;
  };
  const Projection& projection = job.projections[index];
  for (int i = thread; i < kOutputs * nTokens; i += kThreads) {
    const int token = i / kOutputs;
    const int row = i % kOutputs;
    if (firstRow + row >= projection.weight.rows) continue;
    float& y = projection.output.data[token * projection.output.stride + firstRow + row];
    const float sum = sumOf(row, token);
    if constexpr (kIsGated) {
      y = siluProduct(sum, sumOf(kOutputs + row, token));
    } else {
      y = job.accumulate != 0 ? y + sum : sum;
    }
  }
}

template <int kTokenTiles, bool kIsGated>
void launchAs(const MatvecCall& call, const LaunchQueue& queue) {
  const int bytes = dynamicBytesFor(static_cast<int>(call.input.rows));
  // The warps' sums take the place of the inputs.
  static_assert(kWarps * kRows * 4 * 4 <= dynamicBytesFor(1) - kTableBytes);
  const auto kernel = nf4MatvecKernel<kTokenTiles, kIsGated>;
  const MatvecJob job = matvecJob(call, kIsGated ? kRows / 2 : kRows);
  queue.allowShared(reinterpret_cast<const void*>(kernel), bytes);
  launch(kernel, static_cast<unsigned>(job.nBlocks), kThreads, static_cast<std::size_t>(bytes),
         queue, job);
}

template <int kTokenTiles>
void launchTiles(const MatvecCall& call, const LaunchQueue& queue) {
  if (call.isGated) {
    launchAs<kTokenTiles, true>(call, queue);
  } else {
    launchAs<kTokenTiles, false>(call, queue);
  }
}

}  // namespace

bool canNf4Matvec(const MatvecCall& call, std::size_t mostSharedBytes) {
  if (call.input.rows > kMostTokens || !areAlike(call)) return false;
  const auto wanted =
      static_cast<std::size_t>(dynamicBytesFor(static_cast<int>(call.input.rows)) + kStaticBytes);
  if (wanted > mostSharedBytes) return false;
  for (const Projection& projection : call.projections) {
    const WeightView& weight = projection.weight;
    if (weight.type != DataType::kNf4 || weight.cols % kNf4BlockSize != 0 ||
        !isAlignedTo16(weight.data)) {
      return false;
    }
  }
  return true;
}

void launchNf4Matvec(const MatvecCall& call, const LaunchQueue& queue) {
  if (call.input.rows == 0) return;
  if (call.input.rows <= 4) {
    launchTiles<1>(call, queue);
  } else {
    launchTiles<2>(call, queue);
  }
}

}  // namespace longhand::kernels::cuda
