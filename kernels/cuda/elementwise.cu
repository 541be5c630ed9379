// Embedding, norm, RoPE (with the store of keys and values), SiLU-multiply, argmax.
//
// Everything here is bound by memory, or by the launch: kernels read and write 16 bytes a thread
// (kVector = 4) where rows are aligned, as the engine's are.

#include <cassert>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/pages/kv_device.cuh"
#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/vector_io.cuh"
#include "kernels/cuda/warp/warp.cuh"
#include "kernels/cuda/weights/weight_reader.cuh"

namespace longhand::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr std::int64_t kMostRowBlocks = 65535;  // gridDim.y

/// Blocks of kThreads for `count` threads in x, rows in y (rows beyond the limit: by a loop).
dim3 gridFor(std::int64_t rows, std::int64_t count) {
  return dim3(static_cast<unsigned>(ceilDivide<std::int64_t>(count, kThreads)),
              static_cast<unsigned>(rows < kMostRowBlocks ? rows : kMostRowBlocks));
}

__device__ __forceinline__ std::int64_t indexOfThread() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

struct FewIds {
  std::int32_t ids[kMostEmbedArguments];
};

template <int kVector>
__device__ __forceinline__ void embedRow(const WeightView& table, std::int64_t id,
                                         const MatrixView& output, std::int64_t row,
                                         std::int64_t col) {
  Floats<kVector> numbers;
#pragma unroll
  for (int i = 0; i < kVector; ++i) numbers.x[i] = readWeight(table, id * table.cols + col + i);
  numbers.store(output.data + row * output.stride + col);
}

template <int kVector>
__global__ void __launch_bounds__(kThreads)
    embedKernel(WeightView table, const std::int32_t* __restrict__ ids, MatrixView output) {
  const std::int64_t col = kVector * indexOfThread();
  if (col >= output.cols) return;
  for (std::int64_t row = blockIdx.y; row < output.rows; row += gridDim.y) {
    embedRow<kVector>(table, ids[row], output, row, col);
  }
}

template <int kVector>
__global__ void __launch_bounds__(kThreads)
    embedFewKernel(WeightView table, const __grid_constant__ FewIds ids, MatrixView output) {
  const std::int64_t col = kVector * indexOfThread();
  if (col >= output.cols) return;
  embedRow<kVector>(table, ids.ids[blockIdx.y], output, blockIdx.y, col);
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
template <int kVector>
__global__ void __launch_bounds__(kThreads)
    rmsNormKernel(MatrixView input, const float* __restrict__ weight, float epsilon,
                  MatrixView output) {
  using Numbers = Floats<kVector>;
  const float* const x = input.data + blockIdx.x * input.stride;
  float* const y = output.data + blockIdx.x * output.stride;
  const std::int64_t first = kVector * static_cast<std::int64_t>(threadIdx.x);
  float squares = 0.0F;
#pragma unroll 4
  for (std::int64_t i = first; i < input.cols; i += kVector * kThreads) {
    const Numbers numbers = Numbers::load(x + i);
#pragma unroll
    for (int k = 0; k < kVector; ++k) squares += numbers.x[k] * numbers.x[k];
  }
  const float mean = blockSum(squares) / static_cast<float>(input.cols);
  const float factor = 1.0F / sqrtf(mean + epsilon);
#pragma unroll 4
  for (std::int64_t i = first; i < input.cols; i += kVector * kThreads) {
    Numbers numbers = Numbers::load(x + i);
    const Numbers w = Numbers::load(weight + i);
#pragma unroll
    for (int k = 0; k < kVector; ++k) numbers.x[k] = numbers.x[k] * factor * w.x[k];
    numbers.store(y + i);
  }
}

/// Turns kVector pairs: (low, high) by the angles of cos and sin.
template <int kVector>
__device__ __forceinline__ void turn(Floats<kVector>& low, Floats<kVector>& high,
                                     const Floats<kVector>& cosine, const Floats<kVector>& sine) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float x = low.x[i];
    const float y = high.x[i];
    low.x[i] = x * cosine.x[i] - y * sine.x[i];
    high.x[i] = y * cosine.x[i] + x * sine.x[i];
  }
}

/// One thread kVector pairs (i, i + half) of one head.
template <int kVector>
__global__ void __launch_bounds__(kThreads)
    ropeKernel(MatrixView heads, int half, const float* __restrict__ cosSin) {
  using Numbers = Floats<kVector>;
  const std::int64_t pair = kVector * indexOfThread();
  if (pair >= heads.cols / 2) return;
  const std::int64_t i = pair % half;
  const std::int64_t first = pair / half * 2 * half + i;
  for (std::int64_t row = blockIdx.y; row < heads.rows; row += gridDim.y) {
    const float* const angles = cosSin + row * 2 * half + i;
    float* const head = heads.data + row * heads.stride + first;
    Numbers low = Numbers::load(head);
    Numbers high = Numbers::load(head + half);
    turn(low, high, Numbers::load(angles), Numbers::load(angles + half));
    low.store(head);
    high.store(head + half);
  }
}

struct RopeStoreJob {
  MatrixView queries;
  MatrixView keys;
  MatrixView values;
  const float* cosSin = nullptr;
  ExactSpan span;
  std::int64_t firstToken = 0;
  int nHeads = 0;
  int nKvHeads = 0;
  int half = 0;
  int unused = 0;  // no bytes are undefined
};

/// kVector numbers of an exact span. With 4, a token's numbers are 16-byte aligned.
template <int kVector>
__device__ __forceinline__ void storeNumbers(DataType type, std::byte* numbers, std::int64_t index,
                                             const Floats<kVector>& x) {
  if constexpr (kVector == 4) {
    if (type == DataType::kF16) {
      const __half2 halves[2] = {__floats2half2_rn(x.x[0], x.x[1]),
                                 __floats2half2_rn(x.x[2], x.x[3])};
      uint2 bits;
      memcpy(&bits, static_cast<const void*>(halves), sizeof bits);
      *reinterpret_cast<uint2*>(reinterpret_cast<__half*>(numbers) + index) = bits;
    } else {
      x.store(reinterpret_cast<float*>(numbers) + index);
    }
  } else {
    writeExact(type, numbers, index, x.x[0]);
  }
}

/// One thread kVector pairs of one head of queries, keys or values, in this order.
template <int kVector>
__global__ void __launch_bounds__(kThreads)
    ropeStoreKernel(const __grid_constant__ RopeStoreJob job) {
  using Numbers = Floats<kVector>;
  const int half = job.half;
  const int pair = kVector * static_cast<int>(indexOfThread());
  const int head = pair / half;
  const int i = pair % half;
  if (head >= job.nHeads + 2 * job.nKvHeads) return;
  const bool isQuery = head < job.nHeads;
  const bool isKey = !isQuery && head < job.nHeads + job.nKvHeads;
  const MatrixView& source = isQuery ? job.queries : (isKey ? job.keys : job.values);
  const int own = isQuery ? head : (head - job.nHeads) % job.nKvHeads;
  for (std::int64_t row = blockIdx.y; row < source.rows; row += gridDim.y) {
    float* const numbers = source.data + row * source.stride + own * 2 * half + i;
    Numbers low = Numbers::load(numbers);
    Numbers high = Numbers::load(numbers + half);
    if (isQuery || isKey) {
      const float* const angles = job.cosSin + row * 2 * half + i;
      turn(low, high, Numbers::load(angles), Numbers::load(angles + half));
    }
    if (isQuery) {
      low.store(numbers);
      high.store(numbers + half);
      continue;
    }
    const std::int64_t token = own * job.span.tokenCapacity + job.firstToken + row;
    std::byte* const destination = isKey ? job.span.keys : job.span.values;
    storeNumbers(job.span.type, destination, token * 2 * half + i, low);
    storeNumbers(job.span.type, destination, token * 2 * half + half + i, high);
  }
}

template <int kVector>
__global__ void __launch_bounds__(kThreads) siluMultiplyKernel(MatrixView gate, MatrixView up) {
  using Numbers = Floats<kVector>;
  const std::int64_t col = kVector * indexOfThread();
  if (col >= gate.cols) return;
  for (std::int64_t row = blockIdx.y; row < gate.rows; row += gridDim.y) {
    float* const address = gate.data + row * gate.stride + col;
    Numbers numbers = Numbers::load(address);
    const Numbers other = Numbers::load(up.data + row * up.stride + col);
#pragma unroll
    for (int i = 0; i < kVector; ++i) numbers.x[i] = siluProduct(numbers.x[i], other.x[i]);
    numbers.store(address);
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

/// One block. A vocabulary is 128 KB of logits: one multiprocessor reads that in microseconds, 8
/// vectors of each thread in flight.
template <int kVector>
__global__ void __launch_bounds__(1024)
    argmaxKernel(const float* __restrict__ logits, int count, std::int32_t* __restrict__ result) {
  using Numbers = Floats<kVector>;
  SHARED(bests, Candidate[kWarpSize]);
  const int thread = static_cast<int>(threadIdx.x);
  const int nWarps = static_cast<int>(blockDim.x) / kWarpSize;
  const auto bestOfWarp = [](Candidate best) {
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      const Candidate other{__shfl_xor_sync(kAllLanes, best.value, offset),
                            __shfl_xor_sync(kAllLanes, best.index, offset)};
      best = better(best, other);
    }
    return best;
  };
  Candidate best{-INFINITY, count};
#pragma unroll 8
  for (int i = kVector * thread; i < count; i += kVector * static_cast<int>(blockDim.x)) {
    const Numbers numbers = Numbers::load(logits + i);
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      const float value = numbers.x[k];
      best = better(best, {value, value == value ? i + k : -1});
    }
  }
  best = bestOfWarp(best);
  if (thread % kWarpSize == 0) bests[thread / kWarpSize] = best;
  __syncthreads();
  if (thread >= kWarpSize) return;  // a whole warp stays
  best = bestOfWarp(thread < nWarps ? bests[thread] : Candidate{-INFINITY, count});
  if (thread == 0) *result = best.index;
}

}  // namespace

void launchEmbed(const WeightView& table, const std::int32_t* ids, const MatrixView& output,
                 const LaunchQueue& queue) {
  if (output.rows == 0) return;
  const bool isVector = hasVectorRows(output);
  launch(isVector ? embedKernel<4> : embedKernel<1>,
         gridFor(output.rows, output.cols / (isVector ? 4 : 1)), kThreads, 0, queue, table, ids,
         output);
}

void launchEmbedFew(const WeightView& table, std::span<const std::int32_t> ids,
                    const MatrixView& output, const LaunchQueue& queue) {
  assert(std::ssize(ids) == output.rows && output.rows <= kMostEmbedArguments);
  if (output.rows == 0) return;
  FewIds few{};
  for (std::size_t i = 0; i < ids.size(); ++i) few.ids[i] = ids[i];
  const bool isVector = hasVectorRows(output);
  launch(isVector ? embedFewKernel<4> : embedFewKernel<1>,
         gridFor(output.rows, output.cols / (isVector ? 4 : 1)), kThreads, 0, queue, table, few,
         output);
}

void launchRmsNorm(const MatrixView& input, const float* weight, float epsilon,
                   const MatrixView& output, const LaunchQueue& queue) {
  if (input.rows == 0) return;
  const bool isVector = hasVectorRows(input) && hasVectorRows(output) && isAlignedTo16(weight);
  launch(isVector ? rmsNormKernel<4> : rmsNormKernel<1>, static_cast<unsigned>(input.rows),
         kThreads, 0, queue, input, weight, epsilon, output);
}

void launchRope(const MatrixView& heads, std::int64_t headDim, const float* cosSin,
                const LaunchQueue& queue) {
  if (heads.rows == 0) return;
  const int half = static_cast<int>(headDim / 2);
  const bool isVector = half % 4 == 0 && hasVectorRows(heads) && isAlignedTo16(cosSin);
  launch(isVector ? ropeKernel<4> : ropeKernel<1>,
         gridFor(heads.rows, heads.cols / (isVector ? 8 : 2)), kThreads, 0, queue, heads, half,
         cosSin);
}

void launchRopeAndStore(const AttentionShape& shape, const MatrixView& queries,
                        const MatrixView& keys, const MatrixView& values, const float* cosSin,
                        const ExactSpan& span, std::int64_t firstToken, const LaunchQueue& queue) {
  if (queries.rows == 0) return;
  RopeStoreJob job;
  job.queries = queries;
  job.keys = keys;
  job.values = values;
  job.cosSin = cosSin;
  job.span = span;
  job.firstToken = firstToken;
  job.nHeads = static_cast<int>(shape.nHeads);
  job.nKvHeads = static_cast<int>(shape.nKvHeads);
  job.half = static_cast<int>(shape.headDim / 2);
  const std::int64_t nPairs = std::int64_t{job.nHeads + 2 * job.nKvHeads} * job.half;
  const bool isVector = job.half % 4 == 0 && hasVectorRows(queries) && hasVectorRows(keys) &&
                        hasVectorRows(values) && isAlignedTo16(cosSin) &&
                        isAlignedTo16(span.keys) && isAlignedTo16(span.values);
  if (isVector) {
    launch(ropeStoreKernel<4>, gridFor(queries.rows, nPairs / 4), kThreads, 0, queue, job);
  } else {
    launch(ropeStoreKernel<1>, gridFor(queries.rows, nPairs), kThreads, 0, queue, job);
  }
}

void launchSiluMultiply(const MatrixView& gate, const MatrixView& up, const LaunchQueue& queue) {
  if (gate.rows == 0) return;
  if (hasVectorRows(gate) && hasVectorRows(up)) {
    launch(siluMultiplyKernel<4>, gridFor(gate.rows, gate.cols / 4), kThreads, 0, queue, gate, up);
  } else {
    launch(siluMultiplyKernel<1>, gridFor(gate.rows, gate.cols), kThreads, 0, queue, gate, up);
  }
}

void launchArgmax(const float* logits, std::int64_t count, std::int32_t* result,
                  const LaunchQueue& queue) {
  const unsigned threads = count <= kThreads ? kThreads : 1024;
  const bool isVector = count % 4 == 0 && isAlignedTo16(logits);
  launch(isVector ? argmaxKernel<4> : argmaxKernel<1>, 1, threads, 0, queue, logits, count, result);
}

}  // namespace longhand::kernels::cuda
