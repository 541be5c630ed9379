#include "kernels/cpu/base/thread_pool.h"

#include <algorithm>
#include <cassert>
#include <system_error>

namespace longhand::kernels {
namespace {

// Tells the core that this is a spin loop (its hardware twin gets the units).
void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::size_t sizeOf(int count) { return static_cast<std::size_t>(count); }

// True as soon as `condition` holds, false when it does not within ThreadPool::kSpinTime.
template <typename Condition>
bool spinUntil(const Condition& condition) {
  constexpr int kPausesPerClock = 16;  // reading the clock costs about as much as one pause
  const auto end = std::chrono::steady_clock::now() + ThreadPool::kSpinTime;
  do {
    for (int i = 0; i < kPausesPerClock; ++i) {
      if (condition()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

}  // namespace

ThreadPool::ThreadPool(int threads) : shares_(std::make_unique<Share[]>(sizeOf(threads))) {
  assert(threads >= 1);
  workers_.reserve(sizeOf(threads - 1));
  for (int thread = 1; thread < threads; ++thread) {
    try {
      workers_.emplace_back([this, thread] { workerMain(thread); });
    } catch (const std::system_error&) {
      break;  // the pool is correct with any number of workers
    }
  }
}

ThreadPool::~ThreadPool() {
  quit_.store(true);
  loop_.fetch_add(1);
  loop_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t count, std::int64_t grain, const void* context,
                     Function function) {
  assert(grain >= 1);
  if (workers_.empty() || count <= grain) {
    if (count > 0) function(context, 0, 0, count);
    return;
  }
  count_ = count;
  grain_ = grain;
  context_ = context;
  function_ = function;
  const std::int64_t nRanges = (count + grain - 1) / grain;
  for (int thread = 0; thread < threads(); ++thread) {
    Share& share = shares_[sizeOf(thread)];
    share.next.store(nRanges * thread / threads(), std::memory_order_relaxed);
    share.end = nRanges * (thread + 1) / threads();
  }
  gate_.store(kOpen, std::memory_order_release);
  loop_.fetch_add(1, std::memory_order_release);
  loop_.notify_all();

  work(0);

  gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  const auto empty = [this] { return gate_.load(std::memory_order_acquire) == 0; };
  if (spinUntil(empty)) return;
  for (std::uint32_t inside = gate_.load(std::memory_order_acquire); inside != 0;
       inside = gate_.load(std::memory_order_acquire)) {
    gate_.wait(inside, std::memory_order_acquire);
  }
}

void ThreadPool::work(int thread) {
  for (int share = thread; share < threads(); ++share) takeRanges(shares_[sizeOf(share)], thread);
  for (int share = 0; share < thread; ++share) takeRanges(shares_[sizeOf(share)], thread);
}

void ThreadPool::takeRanges(Share& share, int thread) {
  while (share.next.load(std::memory_order_relaxed) < share.end) {
    const std::int64_t range = share.next.fetch_add(1, std::memory_order_relaxed);
    if (range >= share.end) return;
    const std::int64_t first = range * grain_;
    function_(context_, thread, first, std::min(first + grain_, count_));
  }
}

void ThreadPool::workerMain(int thread) {
  while (true) {
    const std::uint32_t seenLoop = loop_.load(std::memory_order_acquire);
    if (quit_.load()) return;
    if (enter()) {
      work(thread);
      leave();
    }
    waitForLoop(seenLoop);
  }
}

void ThreadPool::waitForLoop(std::uint32_t seenLoop) {
  const auto started = [&] { return loop_.load(std::memory_order_acquire) != seenLoop; };
  if (!spinUntil(started)) loop_.wait(seenLoop, std::memory_order_acquire);
}

bool ThreadPool::enter() {
  std::uint32_t gate = gate_.load(std::memory_order_relaxed);
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void ThreadPool::leave() {
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_one();  // shut and empty
}

}  // namespace longhand::kernels
