#include "tests/cuda_on_cpu/launch.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_on_cpu/device_memory.h"
#include "tests/cuda_on_cpu/sanitizer_hooks.h"

namespace longhand::cuda_on_cpu {
namespace {

// What CUDA allows of every device (CUDA C++ Programming Guide, technical specifications).
constexpr unsigned kLargestBlock = 1024;
constexpr unsigned kLargestGridYz = 65535;

std::mutex allowedMutex;
std::map<const void*, std::size_t> allowedDynamicBytes;

void checkShape(dim3 grid, dim3 block) {
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kLargestBlock || block.z > 64) throw Error("bad block size");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) throw Error("empty grid");
  if (grid.y > kLargestGridYz || grid.z > kLargestGridYz) throw Error("grid too large");
}

/// The order of blocks: as the schedule orders threads.
std::vector<std::uint64_t> blockOrder(std::uint64_t nBlocks) {
  std::vector<std::uint64_t> order;
  if (options.schedule == Schedule::kForward) return order;
  order.resize(nBlocks);
  for (std::uint64_t i = 0; i < nBlocks; ++i) order[i] = nBlocks - 1 - i;
  if (options.schedule == Schedule::kReverse) return order;
  std::uint64_t random = options.seed * 0x9e3779b97f4a7c15U | 1U;
  for (std::uint64_t i = nBlocks; i > 1; --i) {
    random ^= random << 13U;
    random ^= random >> 7U;
    random ^= random << 17U;
    std::swap(order[i - 1], order[random % i]);
  }
  return order;
}

/// Read by all fibers of this OS thread, and none of tsan's business.
LONGHAND_NO_TSAN void setCurrent(const Current& value) {
  const BookkeepingScope scope;
  current = value;
}

BlockEngine& engineOfThisThread() {
  thread_local std::unique_ptr<BlockEngine> engine;
  if (engine == nullptr) engine = std::make_unique<BlockEngine>();
  return *engine;
}

}  // namespace

void allowDynamicShared(const void* kernel, std::size_t bytes) {
  const std::lock_guard lock(allowedMutex);
  allowedDynamicBytes[kernel] = bytes;
}

std::size_t allowedDynamicShared(const void* kernel) {
  const std::lock_guard lock(allowedMutex);
  const auto found = allowedDynamicBytes.find(kernel);
  return found == allowedDynamicBytes.end() ? options.largestDefaultSharedBytes : found->second;
}

void forgetAllowedShared() {
  const std::lock_guard lock(allowedMutex);
  allowedDynamicBytes.clear();
}

void runGrid(const void* kernel, dim3 grid, dim3 block, std::size_t dynamicSharedBytes,
             void (*body)(void*), void* argument) {
  checkShape(grid, block);
  if (!beginLaunch()) return;
  const std::size_t allowed = allowedDynamicShared(kernel);
  if (dynamicSharedBytes > allowed) {
    throw Error("a launch wants " + std::to_string(dynamicSharedBytes) +
                " bytes of dynamic shared memory and may have " + std::to_string(allowed));
  }
  // Static arrays come on top of what the kernel was allowed.
  const std::size_t largestShared = allowed > options.largestDefaultSharedBytes
                                        ? options.largestSharedBytes
                                        : options.largestDefaultSharedBytes;
  const std::uint64_t nBlocks = std::uint64_t{grid.x} * grid.y * grid.z;
  emulatedDevice().counters.nBlocks += nBlocks;
  const std::vector<std::uint64_t> order = blockOrder(nBlocks);
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> hasFailed{false};
  std::string failure;
  const auto work = [&] {
    BlockEngine& engine = engineOfThisThread();
    setCurrent({nullptr, {}, block, grid, &engine});
    engine.seed(options.seed);
    orderBeforeLaunch(engine);
    try {
      for (;;) {
        std::uint64_t index = next.fetch_add(1);
        if (index >= nBlocks || hasFailed) break;
        if (!order.empty()) index = order[index];
        const uint3 position = {static_cast<unsigned>(index % grid.x),
                                static_cast<unsigned>(index / grid.x % grid.y),
                                static_cast<unsigned>(index / grid.x / grid.y)};
        setCurrent({nullptr, position, block, grid, &engine});
        engine.runBlock(body, argument, dynamicSharedBytes, largestShared);
      }
    } catch (const Error& error) {
      if (!hasFailed.exchange(true)) failure = error.what();
    }
    orderAfterLaunch(engine);
    setCurrent({});
  };
  if (options.osThreads <= 1 || nBlocks == 1) {
    work();
  } else {
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < options.osThreads; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
  }
  if (hasFailed) throw Error(failure);
}

}  // namespace longhand::cuda_on_cpu
