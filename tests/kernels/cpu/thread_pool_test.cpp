#include "kernels/cpu/base/thread_pool.h"

#include <atomic>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <QtTest>

using longhand::kernels::ThreadPool;

class ThreadPoolTest : public QObject {
  Q_OBJECT

 private slots:
  void everyIndexIsVisitedOnce();
  void rangesAreNoLongerThanTheGrain();
  void aLoopOfOneRangeRunsOnTheCaller();
  void severalThreadsWorkAtOnce();
  void theCallerWaitsForTheSlowestThread();
  void loopsFollowEachOtherClosely();
  void loopsWorkAfterTheWorkersFellAsleep();
  void aPoolCanBeDestroyedAtOnce();
  void anEmptyLoopCallsNothing();
};

void ThreadPoolTest::everyIndexIsVisitedOnce() {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    QCOMPARE(pool.threads(), threads);
    for (const std::int64_t grain : {1, 2, 7, 64}) {
      for (const std::int64_t count : {1, 2, 3, 63, 64, 65, 1000}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
        std::atomic<bool> isThreadValid{true};
        pool.parallelFor(count, grain, [&](int thread, std::int64_t first, std::int64_t last) {
          if (thread < 0 || thread >= threads) isThreadValid = false;
          for (std::int64_t i = first; i < last; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        QVERIFY(isThreadValid);
        for (const auto& count_ : visits) QCOMPARE(count_.load(), 1);
      }
    }
  }
}

void ThreadPoolTest::rangesAreNoLongerThanTheGrain() {
  ThreadPool pool(3);
  std::atomic<std::int64_t> longest{0};
  pool.parallelFor(1000, 16, [&](int, std::int64_t first, std::int64_t last) {
    std::int64_t seen = longest.load();
    while (last - first > seen && !longest.compare_exchange_weak(seen, last - first)) {
    }
  });
  QCOMPARE(longest.load(), std::int64_t{16});
}

void ThreadPoolTest::aLoopOfOneRangeRunsOnTheCaller() {
  ThreadPool pool(4);
  const std::thread::id caller = std::this_thread::get_id();
  int calls = 0;
  pool.parallelFor(10, 10, [&](int thread, std::int64_t first, std::int64_t last) {
    ++calls;
    QCOMPARE(thread, 0);
    QCOMPARE(first, std::int64_t{0});
    QCOMPARE(last, std::int64_t{10});
    QVERIFY(std::this_thread::get_id() == caller);
  });
  QCOMPARE(calls, 1);
}

// Each range waits until another thread has entered one too: it can only end with two threads.
void ThreadPoolTest::severalThreadsWorkAtOnce() {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  pool.parallelFor(2, 1, [&](int, std::int64_t, std::int64_t) {
    ++inside;
    while (inside.load() < 2) std::this_thread::yield();
  });
  QCOMPARE(inside.load(), 2);
}

void ThreadPoolTest::theCallerWaitsForTheSlowestThread() {
  ThreadPool pool(2);
  for (const auto delay : {ThreadPool::kSpinTime / 4, 200 * ThreadPool::kSpinTime}) {
    std::atomic<int> inside{0};
    bool isWorkerDone = false;
    pool.parallelFor(2, 1, [&](int thread, std::int64_t, std::int64_t) {
      ++inside;
      while (inside.load() < 2) std::this_thread::yield();
      if (thread == 0) return;
      std::this_thread::sleep_for(delay);
      isWorkerDone = true;
    });
    QVERIFY(isWorkerDone);
  }
}

void ThreadPoolTest::loopsFollowEachOtherClosely() {
  ThreadPool pool(3);
  std::vector<std::int64_t> numbers(64, 0);  // plain: a race would show under tsan
  for (std::int64_t loop = 0; loop < 5000; ++loop) {
    pool.parallelFor(64, 8, [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) numbers[static_cast<std::size_t>(i)] += i;
    });
  }
  for (std::int64_t i = 0; i < 64; ++i) {
    QCOMPARE(numbers[static_cast<std::size_t>(i)], 5000 * i);
  }
}

void ThreadPoolTest::loopsWorkAfterTheWorkersFellAsleep() {
  ThreadPool pool(3);
  for (int loop = 0; loop < 20; ++loop) {
    std::this_thread::sleep_for(20 * ThreadPool::kSpinTime);
    std::atomic<std::int64_t> sum{0};
    pool.parallelFor(100, 1, [&](int, std::int64_t first, std::int64_t) { sum += first; });
    QCOMPARE(sum.load(), std::int64_t{4950});
  }
}

void ThreadPoolTest::aPoolCanBeDestroyedAtOnce() {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(4);
    std::atomic<int> calls{0};
    pool.parallelFor(8, 1, [&](int, std::int64_t, std::int64_t) { ++calls; });
    QCOMPARE(calls.load(), 8);
  }
}

void ThreadPoolTest::anEmptyLoopCallsNothing() {
  ThreadPool pool(2);
  bool wasCalled = false;
  pool.parallelFor(0, 1, [&](int, std::int64_t, std::int64_t) { wasCalled = true; });
  QVERIFY(!wasCalled);
}

QTEST_APPLESS_MAIN(ThreadPoolTest)
#include "thread_pool_test.moc"
