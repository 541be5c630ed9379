// Attention of last resort: any head_dim, any number of queries, any alignment. One warp takes one
// query of one head and reads the history number by number, so it is slow; attention_decode.cu and
// attention_prefill.cu take what the engine's models need.

#include <algorithm>
#include <cassert>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/pages/kv_device.cuh"
#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/warp.cuh"

namespace longhand::kernels::cuda {
namespace {

constexpr int kMostHeadDim = 256;
constexpr int kChannelsPerLane = kMostHeadDim / kWarpSize;
constexpr int kWarps = 4;  // of a block, each with a query of its own

/// Online softmax of one query (Milakov and Gimelshein 2018): lane l owns channels l, l + 32, ...
struct Softmax {
  float largest = -INFINITY;
  float sum = 0.0F;
  float output[kChannelsPerLane] = {};

  /// Up to 32 tokens, one a lane: `score` of this lane's token (-INFINITY: none), and a way to read
  /// channel c of token t's value.
  template <class ReadValue>
  __device__ void add(float score, int nTokens, int headDim, const ReadValue& readValue) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const float newLargest = fmaxf(largest, warpMax(score));
    const float factor = expf(largest - newLargest);  // 0 at first
    const float weight = expf(score - newLargest);
    sum = sum * factor + warpSum(weight);
    largest = newLargest;
#pragma unroll
    for (int i = 0; i < kChannelsPerLane; ++i) output[i] *= factor;
    for (int t = 0; t < nTokens; ++t) {
      const float p = __shfl_sync(kAllLanes, weight, t);
#pragma unroll
      for (int i = 0; i < kChannelsPerLane; ++i) {
        const int channel = lane + i * kWarpSize;
        if (channel < headDim) output[i] += p * readValue(t, channel);
      }
    }
  }
};

__device__ void addPage(const PageRef& page, const AttentionJob& job, int kvHead,
                        const float* query, Softmax& softmax) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const PageParts parts = pageParts(page.format, job.nKvHeads, job.headDim);
  for (int first = 0; first < page.nTokens; first += kWarpSize) {
    const int nTokens = min(kWarpSize, page.nTokens - first);
    float score = -INFINITY;
    if (lane < nTokens) {
      float sum = 0.0F;
      for (int c = 0; c < job.headDim; ++c) {
        sum += query[c] * readPageKey(page, parts, job.headDim, kvHead, first + lane, c);
      }
      score = sum * job.scoreScale;
    }
    softmax.add(score, nTokens, job.headDim, [&](int t, int c) {
      return readPageValue(page, parts, job.headDim, kvHead, first + t, c);
    });
  }
}

__device__ void addSpan(const ExactSpan& span, std::int64_t nTokens, const AttentionJob& job,
                        int kvHead, const float* query, Softmax& softmax) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t head = kvHead * span.tokenCapacity;
  for (std::int64_t first = 0; first < nTokens; first += kWarpSize) {
    const int count = static_cast<int>(min(std::int64_t{kWarpSize}, nTokens - first));
    float score = -INFINITY;
    if (lane < count) {
      float sum = 0.0F;
      for (int c = 0; c < job.headDim; ++c) {
        sum += query[c] * readExact(span.type, span.keys, (head + first + lane) * job.headDim + c);
      }
      score = sum * job.scoreScale;
    }
    softmax.add(score, count, job.headDim, [&](int t, int c) {
      return readExact(span.type, span.values, (head + first + t) * job.headDim + c);
    });
  }
}

/// x: queries in groups of kWarps, y: heads.
__global__ void __launch_bounds__(kWarps* kWarpSize) plainAttentionKernel(AttentionJob job) {
  SHARED(queries, float[kWarps][kMostHeadDim]);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int head = static_cast<int>(blockIdx.y);
  const int kvHead = head / (job.nHeads / job.nKvHeads);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= job.queries.rows) return;  // whole warps: no barrier of the block follows
  float* const query = queries[warp];
  const std::int64_t column = static_cast<std::int64_t>(head) * job.headDim;
  for (int c = lane; c < job.headDim; c += kWarpSize) {
    query[c] = job.queries.data[row * job.queries.stride + column + c];
  }
  __syncwarp();

  Softmax softmax;
  for (int i = 0; i < job.nPages; ++i) addPage(job.pages[i], job, kvHead, query, softmax);
  for (int i = 0; i < job.exact.nSpans; ++i) {
    const bool isChunk = i + 1 == job.exact.nSpans;
    const ExactSpan& span = job.exact.spans[i];
    addSpan(span, isChunk ? job.chunkOffset + row + 1 : span.nTokens, job, kvHead, query, softmax);
  }
  float* const output = job.output.data + row * job.output.stride + column;
#pragma unroll
  for (int i = 0; i < kChannelsPerLane; ++i) {
    const int channel = lane + i * kWarpSize;
    if (channel < job.headDim) output[channel] = softmax.output[i] / softmax.sum;
  }
}

}  // namespace

void launchPlainAttention(const AttentionJob& job, const LaunchQueue& queue, double mostProducts) {
  assert(job.headDim <= kMostHeadDim && job.exact.nSpans > 0);
  double nTokens = static_cast<double>(job.nPagedTokens + job.chunkOffset + job.queries.rows);
  for (int i = 0; i + 1 < job.exact.nSpans; ++i) {
    nTokens += static_cast<double>(job.exact.spans[i].nTokens);
  }
  const double ofRow = 2.0 * nTokens * static_cast<double>(job.nHeads * job.headDim);
  const auto mostRows = static_cast<std::int64_t>(std::max(mostProducts / ofRow, 1.0));
  for (std::int64_t first = 0; first < job.queries.rows; first += mostRows) {
    const std::int64_t nRows = std::min(mostRows, job.queries.rows - first);
    AttentionJob part = job;
    part.queries = job.queries.slice(first, nRows);
    part.output = job.output.slice(first, nRows);
    part.chunkOffset += first;
    const dim3 grid(static_cast<unsigned>(ceilDivide<std::int64_t>(nRows, kWarps)),
                    static_cast<unsigned>(job.nHeads));
    launch(plainAttentionKernel, grid, kWarps * kWarpSize, 0, queue, part);
  }
}

}  // namespace longhand::kernels::cuda
