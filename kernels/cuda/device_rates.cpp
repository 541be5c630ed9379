#include "kernels/cuda/device_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/rate_probe.h"
#include "kernels/cuda/weights/cublas.h"
#include "kernels/cuda/weights/half_gemm.h"

namespace longhand::kernels::cuda {
namespace {

constexpr double kSeconds = 0.01;

/// The fewest seconds of some runs.
template <class Work>
double bestSeconds(const LaunchQueue& queue, const Work& work) {
  constexpr int kRuns = 4;
  double best = HUGE_VAL;
  for (int run = 0; run <= kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    cudaStreamSynchronize(queue.stream());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (run > 0) best = std::min(best, seconds.count());  // the first one wakes the device
  }
  return best;
}

/// Rows and columns of a product that takes about kSeconds.
std::int64_t sideFor(double operationsPerSecond) {
  constexpr std::int64_t kTile = 128;  // of half_gemm
  constexpr std::int64_t kLongest = 8192;
  const auto side = static_cast<std::int64_t>(std::cbrt(kSeconds * operationsPerSecond / 2.0));
  return std::clamp(side / kTile * kTile, kTile, kLongest);
}

}  // namespace

MachineRates measureDeviceRates(Cublas* cublas, double operationsPerSecond, int nMultiprocessors,
                                const LaunchQueue& queue) {
  const std::int64_t n = sideFor(operationsPerSecond);
  const std::int64_t matrixBytes = 2 * n * n;     // of halves
  const std::int64_t allBytes = 4 * matrixBytes;  // two of halves, one of floats
  const DeviceMemory memory = allocateDevice(static_cast<std::size_t>(allBytes));
  if (memory == nullptr) return {};
  std::byte* const weight = memory.get() + matrixBytes;
  void* const output = memory.get() + 2 * matrixBytes;
  launchFillHalves(memory.get(), allBytes / 2, nMultiprocessors, queue);

  MachineRates rates;
  // Several passes: one takes 0.1 ms on an H200, and a launch that is waited for 0.01.
  constexpr int kPasses = 16;
  const double readSeconds = bestSeconds(queue, [&] {
    for (int pass = 0; pass < kPasses; ++pass) {
      launchRead(memory.get(), allBytes, output, nMultiprocessors, queue);
    }
  });
  rates.readBytesPerSecond = static_cast<double>(allBytes) * kPasses / readSeconds;

  const HalfProduct product{memory.get(), weight, static_cast<float*>(output), n, n, n, n, false};
  const double productSeconds = bestSeconds(queue, [&] {
    if (cublas == nullptr || !cublas->multiply(product)) launchHalfGemm(product, queue);
  });
  const double ofRound = multiplyAddsOfRound(nMultiprocessors);
  const int nRounds = std::max(1, static_cast<int>(kSeconds * operationsPerSecond / 2.0 / ofRound));
  const double loopSeconds =
      bestSeconds(queue, [&] { launchMultiply(nRounds, output, nMultiprocessors, queue); });
  const double ofProduct = std::pow(static_cast<double>(n), 3.0);
  rates.bf16MultiplyAddsPerSecond =
      std::max(ofProduct / productSeconds, ofRound * nRounds / loopSeconds);
  return rates;
}

}  // namespace longhand::kernels::cuda
