// What a device does at best: reads memory and nothing else, multiplies halves and nothing else. A
// self-test holds the other kernels against it.

#include "kernels/cuda/rate_probe.h"
#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/ptx.cuh"

namespace longhand::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksOnMultiprocessor = 8;
constexpr int kProducts = 8;  // independent, in each round

__global__ void fillKernel(__half* numbers, std::int64_t count) {
  const std::int64_t step = std::int64_t{kThreads} * gridDim.x;
  for (std::int64_t i = std::int64_t{kThreads} * blockIdx.x + threadIdx.x; i < count; i += step) {
    const unsigned bits = (static_cast<unsigned>(i) * 2654435761U) >> 16U;
    numbers[i] = __float2half(static_cast<float>(bits) / 32768.0F - 1.0F);
  }
}

__global__ void readKernel(const uint4* memory, std::int64_t count, unsigned* sink) {
  const std::int64_t step = std::int64_t{kThreads} * gridDim.x;
  unsigned all = 0;
#pragma unroll 4
  for (std::int64_t i = std::int64_t{kThreads} * blockIdx.x + threadIdx.x; i < count; i += step) {
    const uint4 word = memory[i];
    all ^= word.x ^ word.y ^ word.z ^ word.w;
  }
  if (all == 0x5eed1234U) *sink = all;  // hardly ever, but the compiler cannot know
}

__global__ void multiplyKernel(int nRounds, float* sink) {
  float sums[kProducts][4] = {};
  const unsigned one = 0x3c003c00U + threadIdx.x;  // two halves of about 1
  const unsigned left[4] = {one, one + 1U, one + 2U, one + 3U};
  const unsigned right[2] = {one, one};
  for (int round = 0; round < nRounds; ++round) {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) multiplyTile(sums[i], left, right);
  }
  float all = 0.0F;
#pragma unroll
  for (int i = 0; i < kProducts; ++i) all += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  if (all == -1.0F) *sink = all;  // likewise
}

dim3 blocksFor(int nMultiprocessors) {
  return dim3(static_cast<unsigned>(kBlocksOnMultiprocessor * nMultiprocessors));
}

}  // namespace

void launchFillHalves(void* numbers, std::int64_t count, int nMultiprocessors,
                      const LaunchQueue& queue) {
  launch(fillKernel, blocksFor(nMultiprocessors), dim3(kThreads), 0, queue,
         static_cast<__half*>(numbers), count);
}

void launchRead(const void* memory, std::int64_t bytes, void* sink, int nMultiprocessors,
                const LaunchQueue& queue) {
  launch(readKernel, blocksFor(nMultiprocessors), dim3(kThreads), 0, queue,
         static_cast<const uint4*>(memory), bytes / std::int64_t{sizeof(uint4)},
         static_cast<unsigned*>(sink));
}

void launchMultiply(int nRounds, void* sink, int nMultiprocessors, const LaunchQueue& queue) {
  launch(multiplyKernel, blocksFor(nMultiprocessors), dim3(kThreads), 0, queue, nRounds,
         static_cast<float*>(sink));
}

double multiplyAddsOfRound(int nMultiprocessors) {
  constexpr double kOfTile = 16.0 * 8.0 * 16.0;
  constexpr int kWarps = kThreads / 32;
  return kOfTile * kProducts * kWarps * kBlocksOnMultiprocessor * nMultiprocessors;
}

}  // namespace longhand::kernels::cuda
