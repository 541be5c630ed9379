#include "kernels/cpu/probe/machine_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "kernels/host_memory.h"

namespace longhand::kernels {
namespace {

using Clock = std::chrono::steady_clock;

// Eight times the 32 MiB of a large last-level cache: what little of it is still there from the
// pass before counts for nothing.
constexpr std::size_t kReadBytes = std::size_t{256} << 20U;
constexpr std::int64_t kReadParts = 64;  // of which threads take one at a time
constexpr std::chrono::milliseconds kReadTime{120};
constexpr std::chrono::milliseconds kMultiplyAddTime{40};

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Amount of the best pass a second; `pass` returns what it has done.
template <typename Pass>
double bestRate(std::chrono::milliseconds time, const Pass& pass) {
  double best = 0.0;
  const Clock::time_point end = Clock::now() + time;
  do {
    const Clock::time_point start = Clock::now();
    const double amount = pass();
    best = std::max(best, amount / secondsSince(start));
  } while (Clock::now() < end);
  return best;
}

double measureRead(const ProbeKernels& probe, ThreadPool& pool) {
  std::byte* const memory = allocateHostMemory(kReadBytes);
  if (memory == nullptr) return 0.0;
  constexpr std::size_t kPartBytes = kReadBytes / kReadParts;
  // Untouched memory would be one page of zeros, read from the cache.
  pool.parallelFor(kReadParts, 1, [&](int, std::int64_t first, std::int64_t last) {
    std::memset(memory + static_cast<std::size_t>(first) * kPartBytes, 1,
                static_cast<std::size_t>(last - first) * kPartBytes);
  });
  std::atomic<std::uint64_t> seen{0};
  const double rate = bestRate(kReadTime, [&] {
    pool.parallelFor(kReadParts, 1, [&](int, std::int64_t first, std::int64_t last) {
      seen += probe.readAll(memory + static_cast<std::size_t>(first) * kPartBytes,
                            static_cast<std::size_t>(last - first) * kPartBytes);
    });
    return static_cast<double>(kReadBytes);
  });
  releaseHostMemory(memory, kReadBytes);
  return rate;
}

double measureMultiplyAdds(std::int64_t (*loop)(std::int64_t), ThreadPool& pool) {
  if (loop == nullptr) return 0.0;
  constexpr std::int64_t kRounds = 20000;  // some 100 microseconds
  const std::int64_t nItems = 16 * pool.threads();
  std::atomic<std::int64_t> done{0};
  return bestRate(kMultiplyAddTime, [&] {
    done = 0;
    pool.parallelFor(nItems, 1, [&](int, std::int64_t, std::int64_t) { done += loop(kRounds); });
    return static_cast<double>(done.load());
  });
}

}  // namespace

const ProbeKernels& probeKernelsFor(CpuPath path) {
#ifdef LONGHAND_X86_KERNELS
  if (path >= CpuPath::kAvx512Vnni) return kAvx512VnniProbe;
  if (path == CpuPath::kAvx512) return kAvx512Probe;
  if (path == CpuPath::kAvx2) return kAvx2Probe;
  if (path == CpuPath::kAvxVnni) return kAvxVnniProbe;
#endif
  static_cast<void>(path);
  return kPortableProbe;
}

MachineRates measureMachineRates(CpuPath path, ThreadPool& pool) {
  const ProbeKernels& probe = probeKernelsFor(path);
  MachineRates rates;
  rates.readBytesPerSecond = measureRead(probe, pool);
  rates.floatMultiplyAddsPerSecond = measureMultiplyAdds(probe.multiplyAddFloats, pool);
  rates.int8MultiplyAddsPerSecond = measureMultiplyAdds(probe.multiplyAddInt8, pool);
#ifdef LONGHAND_X86_KERNELS
  if (path == CpuPath::kAvx512Bf16) {
    rates.bf16MultiplyAddsPerSecond = measureMultiplyAdds(multiplyAddBf16Avx512, pool);
  }
#endif
  return rates;
}

}  // namespace longhand::kernels
