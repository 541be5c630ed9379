// Products of F16, BF16 and int8 weights with 1 to 8 tokens, at the speed of memory: a warp makes 4
// outputs (2 for more than 4 tokens), so that each number of the inputs is read once for 4 weights,
// and every lane has 4 loads of 16 bytes in flight. Sums are float.
//
// The factor of a norm is the same for a whole row of input, so a warp multiplies its sums by it at
// the end: it has met every number by then, and its square. Gated, two of its outputs are the
// gate's and two the same of the other weight.

#include <cstdint>

#include "kernels/cuda/warp/half_pairs.cuh"
#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/warp.cuh"
#include "kernels/cuda/weights/matvec_job.cuh"

namespace longhand::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMostTokens = 8;
/// Outputs of a warp: fewer where the inputs of many tokens take the registers.
constexpr int rowsFor(int nTokens) { return nTokens > 4 ? 2 : 4; }

/// 8 of the numbers in 16 bytes of weights, from number `first` on, as floats.
template <DataType kType>
struct Numbers;
template <>
struct Numbers<DataType::kF16> {
  static constexpr int kCount = 8;
  __device__ static void expand(const uint4& bytes, int /*first*/, float (&x)[8]) {
    const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(halvesOfWord(words[i]));
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }
};
template <>
struct Numbers<DataType::kBF16> {
  static constexpr int kCount = 8;
  __device__ static void expand(const uint4& bytes, int /*first*/, float (&x)[8]) {
    const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = __uint_as_float(words[i] << 16U);
      x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
    }
  }
};
template <>
struct Numbers<DataType::kInt8> {
  static constexpr int kCount = 16;
  __device__ static void expand(const uint4& bytes, int first, float (&x)[8]) {
    const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const unsigned word = words[(first + i) / 4];
      x[i] = static_cast<float>(static_cast<std::int8_t>(word >> (8 * (i % 4))));
    }
  }
};

/// Columns [col, col + 8) of a row.
__device__ __forceinline__ void loadEight(const float* row, int col, bool isAligned,
                                          float (&x)[8]) {
  const float4 low = loadFour(row, col, isAligned);
  const float4 high = loadFour(row, col + 4, isAligned);
  const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = all[i];
}

/// Columns [col, col + 8) of each token, times the norm's weights; their squares are added up.
template <bool kHasNorm, int kTokens>
__device__ __forceinline__ void stageInput(const MatvecJob& job, int col, int nTokens,
                                           bool isAligned, float (&squares)[kTokens],
                                           float (&x)[kTokens][8]) {
  float norm[8];
  if constexpr (kHasNorm) loadEight(job.normWeight, col, isAligned, norm);
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const float* const row = job.input.data + min(t, nTokens - 1) * job.input.stride;
    loadEight(row, col, isAligned, x[t]);
    if constexpr (kHasNorm) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        squares[t] += x[t][i] * x[t][i];
        x[t][i] *= norm[i];
      }
    }
  }
}

/// Adds the products of 8 numbers of each row, from number `part` of those loaded on.
template <DataType kType, int kRows, int kTokens>
__device__ __forceinline__ void multiplyPart(const uint4 (&loaded)[kRows],
                                             const float (&scale)[kRows], int part,
                                             const float (&x)[kTokens][8],
                                             float (&sums)[kRows][kTokens]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float w[8];
    Numbers<kType>::expand(loaded[r], part, w);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += w[i] * x[t][i];
      sums[r][t] += sum * scale[r];
    }
  }
}

/// The sums of all lanes, and what becomes of them.
template <bool kHasNorm, bool kIsGated, int kRows, int kTokens>
__device__ __forceinline__ void writeOutputs(const MatvecJob& job, const Projection& projection,
                                             int firstRow, int lane, int cols, int nTokens,
                                             const float (&sums)[kRows][kTokens],
                                             const float (&squares)[kTokens]) {
  constexpr int kOutputs = kIsGated ? kRows / 2 : kRows;
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    float factor = 1.0F;
    if constexpr (kHasNorm) {
      const float mean = warpSum(squares[t]) / static_cast<float>(cols);
      factor = 1.0F / sqrtf(mean + job.normEpsilon);
    }
    float products[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) products[r] = warpSum(sums[r][t]) * factor;
    if (lane != 0 || t >= nTokens) continue;
#pragma unroll
    for (int r = 0; r < kOutputs; ++r) {
      if (firstRow + r >= projection.weight.rows) continue;
      float& y = projection.output.data[t * projection.output.stride + firstRow + r];
      if constexpr (kIsGated) {
        y = siluProduct(products[r], products[kOutputs + r]);
      } else {
        y = job.accumulate != 0 ? y + products[r] : products[r];
      }
    }
  }
}

template <DataType kType, int kTokens, bool kHasNorm, bool kIsGated>
__global__ void __launch_bounds__(kWarps* kWarpSize, kTokens == 1 ? 6 : 3)
    rowMatvecKernel(const __grid_constant__ MatvecJob job) {
  using Unpacked = Numbers<kType>;
  constexpr int kCount = Unpacked::kCount;
  constexpr int kBytes = 16 / kCount;
  constexpr int kRows = rowsFor(kTokens);
  constexpr int kOutputs = kIsGated ? kRows / 2 : kRows;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int index = kIsGated ? 0 : projectionOf(job, static_cast<int>(blockIdx.x));
  const int block = static_cast<int>(blockIdx.x) - job.firstBlocks[index];
  const int firstRow = (block * kWarps + static_cast<int>(threadIdx.x) / kWarpSize) * kOutputs;
  const int cols = static_cast<int>(job.input.cols);
  const int nTokens = static_cast<int>(job.input.rows);
  const bool isAligned = job.isAligned != 0;
  const Projection& projection = job.projections[index];
  if (firstRow >= projection.weight.rows) return;  // whole warps: no barrier follows
  float sums[kRows][kTokens] = {};
  float squares[kTokens] = {};
#pragma unroll 1
  for (int col = lane * kCount; col < cols; col += kWarpSize * kCount) {
    uint4 loaded[kRows];
    float scale[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const WeightView& weight = job.projections[kIsGated ? r / kOutputs : index].weight;
      // Rows beyond the last repeat it: their sums are not stored.
      const std::int64_t row = min(std::int64_t{firstRow + r % kOutputs}, weight.rows - 1);
      const std::int64_t number = row * cols + col;
      loaded[r] = __ldg(reinterpret_cast<const uint4*>(weight.data + number * kBytes));
      scale[r] = kType == DataType::kInt8 ? weight.scales[number / kInt8BlockSize] : 1.0F;
    }
#pragma unroll
    for (int part = 0; part < kCount; part += 8) {
      float x[kTokens][8];
      stageInput<kHasNorm>(job, col + part, nTokens, isAligned, squares, x);
      multiplyPart<kType>(loaded, scale, part, x, sums);
    }
  }
  writeOutputs<kHasNorm, kIsGated>(job, projection, firstRow, lane, cols, nTokens, sums, squares);
}

template <DataType kType, int kTokens, bool kHasNorm, bool kIsGated>
void launchAs(const MatvecCall& call, const LaunchQueue& queue) {
  constexpr int kRows = rowsFor(kTokens);
  const MatvecJob job = matvecJob(call, kWarps * (kIsGated ? kRows / 2 : kRows));
  launch(rowMatvecKernel<kType, kTokens, kHasNorm, kIsGated>, static_cast<unsigned>(job.nBlocks),
         kWarps * kWarpSize, 0, queue, job);
}

template <DataType kType, int kTokens>
void launchFused(const MatvecCall& call, const LaunchQueue& queue) {
  if (call.normWeight == nullptr) {
    if (call.isGated) {
      launchAs<kType, kTokens, false, true>(call, queue);
    } else {
      launchAs<kType, kTokens, false, false>(call, queue);
    }
  } else if (call.isGated) {
    launchAs<kType, kTokens, true, true>(call, queue);
  } else {
    launchAs<kType, kTokens, true, false>(call, queue);
  }
}

template <DataType kType>
void launchType(const MatvecCall& call, const LaunchQueue& queue) {
  if (call.input.rows == 1) {
    launchFused<kType, 1>(call, queue);
  } else if (call.input.rows <= 4) {
    launchFused<kType, 4>(call, queue);
  } else {
    launchFused<kType, kMostTokens>(call, queue);
  }
}

}  // namespace

bool canRowMatvec(const MatvecCall& call) {
  if (call.input.rows > kMostTokens || !areAlike(call)) return false;
  for (const Projection& projection : call.projections) {
    const WeightView& weight = projection.weight;
    const bool isKnown = weight.type == DataType::kF16 || weight.type == DataType::kBF16 ||
                         weight.type == DataType::kInt8;
    // Whole vectors in a row, and whole scales: 16 numbers never straddle a block of 64.
    const std::int64_t count = weight.type == DataType::kInt8 ? 16 : 8;
    if (!isKnown || weight.cols % count != 0 || !isAlignedTo16(weight.data)) return false;
  }
  return true;
}

void launchRowMatvec(const MatvecCall& call, const LaunchQueue& queue) {
  if (call.input.rows == 0) return;
  switch (call.projections.front().weight.type) {
    case DataType::kF16:
      return launchType<DataType::kF16>(call, queue);
    case DataType::kBF16:
      return launchType<DataType::kBF16>(call, queue);
    default:
      return launchType<DataType::kInt8>(call, queue);
  }
}

}  // namespace longhand::kernels::cuda
