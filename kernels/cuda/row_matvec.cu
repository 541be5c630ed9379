#include <cstdint>

#include "kernels/cuda/code_tiles.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/portability.h"
#include "kernels/cuda/warp.h"

// Products of F16, BF16 and int8 weights with 1 to 8 tokens, at the speed of memory: a warp makes 4
// outputs, so that each number of the inputs is read once for 4 weights, and every lane has 4 loads
// of 16 bytes in flight. Sums are float.

namespace longhand::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 4;  // a warp

struct MatvecJob {
  MatrixView input;
  WeightView weight;
  MatrixView output;
  bool accumulate;
  bool hasAlignedInput;  // rows can be read as float4
};

/// 16 bytes of weights as floats.
template <DataType kType>
struct Numbers;
template <>
struct Numbers<DataType::kF16> {
  static constexpr int kCount = 8;
  __device__ static void expand(const uint4& bytes, float (&x)[kCount]) {
    const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(halvesOf(words[i]));
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }
};
template <>
struct Numbers<DataType::kBF16> {
  static constexpr int kCount = 8;
  __device__ static void expand(const uint4& bytes, float (&x)[kCount]) {
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
  __device__ static void expand(const uint4& bytes, float (&x)[kCount]) {
    const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        x[4 * i + j] = static_cast<float>(static_cast<std::int8_t>(words[i] >> (8 * j)));
      }
    }
  }
};

template <DataType kType, int kTokens>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    rowMatvecKernel(const __grid_constant__ MatvecJob job) {
  using Unpacked = Numbers<kType>;
  constexpr int kCount = Unpacked::kCount;
  constexpr int kBytes = 16 / kCount;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t firstRow =
      (static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize) * kRows;
  const int cols = static_cast<int>(job.weight.cols);
  const int nTokens = static_cast<int>(job.input.rows);
  if (firstRow >= job.weight.rows) return;  // whole warps: no barrier follows
  float sums[kRows][kTokens] = {};
#pragma unroll 1
  for (int col = lane * kCount; col < cols; col += kWarpSize * kCount) {
    uint4 loaded[kRows];
    float scale[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      // Rows beyond the last repeat it: their sums are not stored.
      const std::int64_t row = min(firstRow + r, job.weight.rows - 1);
      const std::int64_t index = row * cols + col;
      loaded[r] = __ldg(reinterpret_cast<const uint4*>(job.weight.data + index * kBytes));
      scale[r] = kType == DataType::kInt8 ? job.weight.scales[index / kInt8BlockSize] : 1.0F;
    }
#pragma unroll
    for (int part = 0; part < kCount; part += 8) {
      float x[kTokens][8];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float* const row =
            job.input.data + min(t, nTokens - 1) * job.input.stride + col + part;
        if (job.hasAlignedInput) {
          const float4 low = __ldg(reinterpret_cast<const float4*>(row));
          const float4 high = __ldg(reinterpret_cast<const float4*>(row) + 1);
          const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
          for (int i = 0; i < 8; ++i) x[t][i] = all[i];
        } else {
#pragma unroll
          for (int i = 0; i < 8; ++i) x[t][i] = __ldg(row + i);
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float w[kCount];
        Unpacked::expand(loaded[r], w);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          float sum = 0.0F;
#pragma unroll
          for (int i = 0; i < 8; ++i) sum += w[part + i] * x[t][i];
          sums[r][t] += sum * scale[r];
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float sum = warpSum(sums[r][t]);
      if (lane != 0 || t >= nTokens || firstRow + r >= job.weight.rows) continue;
      float& y = job.output.data[t * job.output.stride + firstRow + r];
      y = job.accumulate ? y + sum : sum;
    }
  }
}

template <DataType kType>
void launchAs(const MatvecJob& job, const LaunchQueue& queue) {
  const auto blocks =
      static_cast<unsigned>(ceilDivide<std::int64_t>(job.weight.rows, kWarps * kRows));
  constexpr int kThreads = kWarps * kWarpSize;
  if (job.input.rows == 1) {
    launch(rowMatvecKernel<kType, 1>, blocks, kThreads, 0, queue, job);
  } else if (job.input.rows <= 4) {
    launch(rowMatvecKernel<kType, 4>, blocks, kThreads, 0, queue, job);
  } else {
    launch(rowMatvecKernel<kType, 8>, blocks, kThreads, 0, queue, job);
  }
}

}  // namespace

bool canRowMatvec(const MatrixView& input, const WeightView& weight) {
  const bool isKnown = weight.type == DataType::kF16 || weight.type == DataType::kBF16 ||
                       weight.type == DataType::kInt8;
  // Whole vectors in a row, and whole scales: 16 numbers never straddle a block of 64.
  const std::int64_t count = weight.type == DataType::kInt8 ? 16 : 8;
  return isKnown && input.rows <= 8 && weight.cols % count == 0 &&
         reinterpret_cast<std::uintptr_t>(weight.data) % 16 == 0;
}

void launchRowMatvec(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                     bool accumulate, const LaunchQueue& queue) {
  if (input.rows == 0) return;
  const bool hasAlignedInput =
      reinterpret_cast<std::uintptr_t>(input.data) % 16 == 0 && input.stride % 4 == 0;
  const MatvecJob job{input, weight, output, accumulate, hasAlignedInput};
  switch (weight.type) {
    case DataType::kF16:
      return launchAs<DataType::kF16>(job, queue);
    case DataType::kBF16:
      return launchAs<DataType::kBF16>(job, queue);
    default:
      return launchAs<DataType::kInt8>(job, queue);
  }
}

}  // namespace longhand::kernels::cuda
