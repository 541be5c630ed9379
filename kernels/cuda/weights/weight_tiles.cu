// Rows of floats and of weights become halves, 8 numbers a thread: what tiled_matmul.cpp
// multiplies.

#include <cassert>

#include "kernels/cuda/warp/half_pairs.cuh"
#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/weights/weight_reader.cuh"
#include "kernels/cuda/weights/weight_tiles.h"

namespace longhand::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 8;  // numbers of a thread, stored as 16 bytes
constexpr int kCodePairs = 256;

/// Stores a thread's run.
__device__ __forceinline__ void storeRun(__half* output, const float (&numbers)[kRun]) {
  const uint4 packed =
      make_uint4(packHalves(numbers[0], numbers[1]), packHalves(numbers[2], numbers[3]),
                 packHalves(numbers[4], numbers[5]), packHalves(numbers[6], numbers[7]));
  *reinterpret_cast<uint4*>(output) = packed;
}

/// First of the 8 numbers of this thread in a matrix of [.., depth].
__device__ __forceinline__ std::int64_t firstOfThread() {
  return (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kRun;
}

__global__ void __launch_bounds__(kThreads)
    roundRowsKernel(MatrixView input, std::int64_t depth, __half* __restrict__ output) {
  const std::int64_t first = firstOfThread();
  const std::int64_t row = first / depth;
  const std::int64_t column = first % depth;
  if (row >= input.rows) return;
  const float* const source = input.data + row * input.stride;
  float numbers[kRun];
#pragma unroll
  for (int i = 0; i < kRun; ++i) numbers[i] = column + i < input.cols ? source[column + i] : 0.0F;
  storeRun(output + first, numbers);
}

/// Any weight: one number after the other.
__global__ void __launch_bounds__(kThreads)
    expandAnyKernel(WeightView weight, std::int64_t firstRow, std::int64_t nRows,
                    std::int64_t depth, __half* __restrict__ output) {
  const std::int64_t first = firstOfThread();
  const std::int64_t row = first / depth;
  const std::int64_t column = first % depth;
  if (row >= nRows) return;
  const std::int64_t source = (firstRow + row) * weight.cols + column;
  float numbers[kRun];
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    numbers[i] = column + i < weight.cols ? readWeight(weight, source + i) : 0.0F;
  }
  storeRun(output + first, numbers);
}

// --- Whole blocks, aligned: `first` counts numbers of the flattened weight
// ------------------------

/// A run of NF4; `pairs` holds both numbers of each byte of codes.
__device__ __forceinline__ void readNf4Run(const WeightView& weight, std::int64_t first,
                                           const float2* pairs, float (&numbers)[kRun]) {
  const std::uint32_t codes = *reinterpret_cast<const std::uint32_t*>(weight.data + first / 2);
  const float absmax = nf4Absmax(weight, first / kNf4BlockSize);
#pragma unroll
  for (int i = 0; i < kRun / 2; ++i) {
    const float2 pair = pairs[codes >> (8 * i) & 255U];
    numbers[2 * i] = pair.x * absmax;
    numbers[2 * i + 1] = pair.y * absmax;
  }
}

__device__ __forceinline__ void readInt8Run(const WeightView& weight, std::int64_t first,
                                            float (&numbers)[kRun]) {
  const uint2 loaded = *reinterpret_cast<const uint2*>(weight.data + first);
  const float scale = weight.scales[first / kInt8BlockSize];
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const std::uint32_t word = i < 4 ? loaded.x : loaded.y;
    numbers[i] = static_cast<float>(static_cast<std::int8_t>(word >> (i % 4 * 8))) * scale;
  }
}

__device__ __forceinline__ void readBfloatRun(const WeightView& weight, std::int64_t first,
                                              float (&numbers)[kRun]) {
  const uint4 loaded = *reinterpret_cast<const uint4*>(weight.data + first * 2);
  const std::uint32_t words[] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const std::uint32_t word = words[i / 2];
    numbers[i] = __uint_as_float(i % 2 == 0 ? word << 16U : word & 0xffff0000U);
  }
}

__device__ __forceinline__ void readFloatRun(const WeightView& weight, std::int64_t first,
                                             float (&numbers)[kRun]) {
  const auto* const source = reinterpret_cast<const float4*>(weight.data + first * 4);
  const float4 low = source[0];
  const float4 high = source[1];
  const float loaded[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < kRun; ++i) numbers[i] = loaded[i];
}

template <DataType kType>
__global__ void __launch_bounds__(kThreads)
    expandBlocksKernel(WeightView weight, std::int64_t firstNumber, std::int64_t nNumbers,
                       __half* __restrict__ output) {
  SHARED(pairs, float2[kCodePairs]);
  if constexpr (kType == DataType::kNf4) {
    const auto pair = static_cast<int>(threadIdx.x);  // kThreads == kCodePairs
    pairs[pair] = make_float2(weight.codebook[pair / 16], weight.codebook[pair % 16]);
    __syncthreads();
  }
  const std::int64_t first = firstOfThread();
  if (first >= nNumbers) return;
  float numbers[kRun];
  if constexpr (kType == DataType::kNf4) {
    readNf4Run(weight, firstNumber + first, pairs, numbers);
  } else if constexpr (kType == DataType::kInt8) {
    readInt8Run(weight, firstNumber + first, numbers);
  } else if constexpr (kType == DataType::kBF16) {
    readBfloatRun(weight, firstNumber + first, numbers);
  } else {
    readFloatRun(weight, firstNumber + first, numbers);
  }
  storeRun(output + first, numbers);
}

unsigned blocksFor(std::int64_t numbers) {
  return static_cast<unsigned>(ceilDivide<std::int64_t>(numbers, kThreads * kRun));
}

template <DataType kType>
void launchExpandBlocks(const WeightView& weight, std::int64_t firstRow, std::int64_t nRows,
                        __half* output, const LaunchQueue& queue) {
  static_assert(kThreads == kCodePairs);
  const std::int64_t nNumbers = nRows * weight.cols;
  launch(expandBlocksKernel<kType>, blocksFor(nNumbers), kThreads, 0, queue, weight,
         firstRow * weight.cols, nNumbers, output);
}

}  // namespace

void launchRoundRows(const MatrixView& input, std::int64_t depth, void* output,
                     const LaunchQueue& queue) {
  assert(depth % kRun == 0 && depth >= input.cols);
  if (input.rows == 0) return;
  launch(roundRowsKernel, blocksFor(input.rows * depth), kThreads, 0, queue, input, depth,
         static_cast<__half*>(output));
}

void launchExpandWeight(const WeightView& weight, std::int64_t firstRow, std::int64_t nRows,
                        std::int64_t depth, void* output, const LaunchQueue& queue) {
  assert(depth % kRun == 0 && depth >= weight.cols);
  if (nRows == 0) return;
  auto* const halves = static_cast<__half*>(output);
  const bool isAligned = reinterpret_cast<std::uintptr_t>(weight.data) % 16 == 0;
  if (isAligned && weight.cols % kNf4BlockSize == 0 && depth == weight.cols) {
    static_assert(kNf4BlockSize == kInt8BlockSize);
    switch (weight.type) {
      case DataType::kNf4:
        return launchExpandBlocks<DataType::kNf4>(weight, firstRow, nRows, halves, queue);
      case DataType::kInt8:
        return launchExpandBlocks<DataType::kInt8>(weight, firstRow, nRows, halves, queue);
      case DataType::kBF16:
        return launchExpandBlocks<DataType::kBF16>(weight, firstRow, nRows, halves, queue);
      case DataType::kF32:
        return launchExpandBlocks<DataType::kF32>(weight, firstRow, nRows, halves, queue);
      case DataType::kF16:
        break;  // is multiplied where it lies
    }
  }
  launch(expandAnyKernel, blocksFor(nRows * depth), kThreads, 0, queue, weight, firstRow, nRows,
         depth, halves);
}

}  // namespace longhand::kernels::cuda
