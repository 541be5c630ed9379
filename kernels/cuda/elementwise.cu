#include <cfloat>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/portability.h"
#include "kernels/cuda/warp.h"
#include "kernels/cuda/weight_reader.h"

namespace longhand::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr std::int64_t kMostRowBlocks = 65535;  // gridDim.y

/// Blocks of kThreads for `cols` columns in x, rows in y (rows beyond the limit: by a loop).
dim3 gridFor(std::int64_t rows, std::int64_t cols) {
  return dim3(static_cast<unsigned>(ceilDivide<std::int64_t>(cols, kThreads)),
              static_cast<unsigned>(rows < kMostRowBlocks ? rows : kMostRowBlocks));
}

__device__ __forceinline__ std::int64_t columnOfThread() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

__global__ void __launch_bounds__(kThreads)
    embedKernel(WeightView table, const std::int32_t* __restrict__ ids, MatrixView output) {
  const std::int64_t col = columnOfThread();
  if (col >= output.cols) return;
  for (std::int64_t row = blockIdx.y; row < output.rows; row += gridDim.y) {
    output.data[row * output.stride + col] = readWeight(table, ids[row] * table.cols + col);
  }
}

/// Sum over the block; every thread gets it.
__device__ __forceinline__ float blockSum(float value) {
  SHARED(sums, float[kWarps]);
  value = warpSum(value);
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  float total = 0.0F;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) total += sums[i];
  return total;
}

/// One block a row.
__global__ void __launch_bounds__(kThreads)
    rmsNormKernel(MatrixView input, const float* __restrict__ weight, float epsilon,
                  MatrixView output) {
  const float* const x = input.data + blockIdx.x * input.stride;
  float* const y = output.data + blockIdx.x * output.stride;
  float squares = 0.0F;
  for (std::int64_t i = threadIdx.x; i < input.cols; i += kThreads) squares += x[i] * x[i];
  const float mean = blockSum(squares) / static_cast<float>(input.cols);
  const float factor = 1.0F / sqrtf(mean + epsilon);
  for (std::int64_t i = threadIdx.x; i < input.cols; i += kThreads)
    y[i] = x[i] * factor * weight[i];
}

/// One thread a pair (i, i + half) of one head.
__global__ void __launch_bounds__(kThreads)
    ropeKernel(MatrixView heads, int half, const float* __restrict__ cosSin) {
  const std::int64_t pair = columnOfThread();
  if (pair >= heads.cols / 2) return;
  const std::int64_t i = pair % half;
  const std::int64_t first = pair / half * 2 * half + i;
  for (std::int64_t row = blockIdx.y; row < heads.rows; row += gridDim.y) {
    const float c = cosSin[row * 2 * half + i];
    const float s = cosSin[row * 2 * half + half + i];
    float* const head = heads.data + row * heads.stride + first;
    const float x = head[0];
    const float y = head[half];
    head[0] = x * c - y * s;
    head[half] = y * c + x * s;
  }
}

__global__ void __launch_bounds__(kThreads) siluMultiplyKernel(MatrixView gate, MatrixView up) {
  const std::int64_t col = columnOfThread();
  if (col >= gate.cols) return;
  for (std::int64_t row = blockIdx.y; row < gate.rows; row += gridDim.y) {
    float& g = gate.data[row * gate.stride + col];
    g = g / (1.0F + expf(-g)) * up.data[row * up.stride + col];
  }
}

struct Candidate {
  float value;
  int index;  // -1: a NaN was met
};

/// The better of two: NaN beats all, then the larger, then the lower index.
__device__ __forceinline__ Candidate better(Candidate a, Candidate b) {
  if (a.index < 0 || b.index < 0) return {0.0F, -1};
  if (b.value > a.value || (b.value == a.value && b.index < a.index)) return b;
  return a;
}

/// One block. A vocabulary is 128 KB of logits: one multiprocessor reads that in microseconds.
__global__ void __launch_bounds__(1024)
    argmaxKernel(const float* __restrict__ logits, int count, std::int32_t* __restrict__ result) {
  SHARED(bests, Candidate[kWarpSize]);
  const int thread = static_cast<int>(threadIdx.x);
  Candidate best{-INFINITY, count};
  for (int i = thread; i < count; i += static_cast<int>(blockDim.x)) {
    const float value = logits[i];
    best = better(best, {value, value == value ? i : -1});
  }
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const Candidate other{__shfl_xor_sync(kAllLanes, best.value, offset),
                          __shfl_xor_sync(kAllLanes, best.index, offset)};
    best = better(best, other);
  }
  if (thread % kWarpSize == 0) bests[thread / kWarpSize] = best;
  __syncthreads();
  if (thread != 0) return;
  for (int i = 1; i < static_cast<int>(blockDim.x) / kWarpSize; ++i) best = better(best, bests[i]);
  *result = best.index;
}

}  // namespace

void launchEmbed(const WeightView& table, const std::int32_t* ids, const MatrixView& output,
                 const LaunchQueue& queue) {
  if (output.rows == 0) return;
  launch(embedKernel, gridFor(output.rows, output.cols), kThreads, 0, queue, table, ids, output);
}

void launchRmsNorm(const MatrixView& input, const float* weight, float epsilon,
                   const MatrixView& output, const LaunchQueue& queue) {
  if (input.rows == 0) return;
  launch(rmsNormKernel, static_cast<unsigned>(input.rows), kThreads, 0, queue, input, weight,
         epsilon, output);
}

void launchRope(const MatrixView& heads, std::int64_t headDim, const float* cosSin,
                const LaunchQueue& queue) {
  if (heads.rows == 0) return;
  launch(ropeKernel, gridFor(heads.rows, heads.cols / 2), kThreads, 0, queue, heads, headDim / 2,
         cosSin);
}

void launchSiluMultiply(const MatrixView& gate, const MatrixView& up, const LaunchQueue& queue) {
  if (gate.rows == 0) return;
  launch(siluMultiplyKernel, gridFor(gate.rows, gate.cols), kThreads, 0, queue, gate, up);
}

void launchArgmax(const float* logits, std::int64_t count, std::int32_t* result,
                  const LaunchQueue& queue) {
  const unsigned threads = count <= kThreads ? kThreads : 1024;
  launch(argmaxKernel, 1, threads, 0, queue, logits, count, result);
}

}  // namespace longhand::kernels::cuda
