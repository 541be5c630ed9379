#pragma once
// A fixed set of threads that share the work of one loop at a time.
//   ThreadPool pool(4);
//   pool.parallelFor(rows, 16, [&](int thread, std::int64_t first, std::int64_t last) { ... });
// Made for loops of 10 microseconds to milliseconds that follow each other closely, as in a decode
// step: idle workers spin for kSpinTime, then sleep until the next loop.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace longhand::kernels {

class ThreadPool {
 public:
  /// `threads` >= 1, the calling thread included: threads - 1 workers are started. Fewer when the
  /// system refuses to start more.
  explicit ThreadPool(int threads);
  /// Waits for the workers. No loop may be running.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(thread, first, last) for ranges of at most `grain` (>= 1) indices that together are
  /// [0, count) and returns when all have returned. Each thread takes the ranges of its own share
  /// of neighbouring indices in rising order, so that it reads memory in one line, and then helps
  /// with the shares of others. The caller works too, as thread 0; thread is in [0, threads()). A
  /// loop of one range runs on the caller alone. The body must not throw nor call parallelFor; one
  /// thread at a time may call.
  template <typename Body>
  void parallelFor(std::int64_t count, std::int64_t grain, const Body& body) {
    run(count, grain, &body,
        [](const void* context, int thread, std::int64_t first, std::int64_t last) {
          (*static_cast<const Body*>(context))(thread, first, last);
        });
  }

  /// How long a worker burns its core before it sleeps: about what waking it would cost.
  static constexpr std::chrono::microseconds kSpinTime{20};

 private:
  /// The ranges that a thread begins with: neighbours.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};  // first range that nobody has taken
    std::int64_t end = 0;               // written while the gate is shut, as count_
  };

  using Function = void (*)(const void* context, int thread, std::int64_t first, std::int64_t last);

  void run(std::int64_t count, std::int64_t grain, const void* context, Function function);
  void work(int thread);  // takes ranges until none is left
  void takeRanges(Share& share, int thread);
  void workerMain(int thread);
  void waitForLoop(std::uint32_t seenLoop);
  bool enter();
  void leave();

  std::unique_ptr<Share[]> shares_;  // [threads]

  // The gate: kOpen while there may be work, plus the number of workers inside. A worker that comes
  // late finds it shut, so the caller never waits for a sleeping thread.
  static constexpr std::uint32_t kOpen = 1U << 31U;
  alignas(64) std::atomic<std::uint32_t> gate_{0};
  alignas(64) std::atomic<std::uint32_t> loop_{0};  // counts loops; workers wait for a change
  std::atomic<bool> quit_{false};
  // The loop in progress. Written by the caller while the gate is shut and nobody is inside.
  std::int64_t count_ = 0;
  std::int64_t grain_ = 1;
  const void* context_ = nullptr;
  Function function_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace longhand::kernels
