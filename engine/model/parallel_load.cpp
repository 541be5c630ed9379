#include "engine/model/parallel_load.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace longhand::engine {
namespace {

constexpr std::int64_t kMostThreads = 16;  // more than that wait for memory

/// The state that the threads of one run() share.
struct SharedRun {
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> done{0};
  std::atomic<bool> isAborted{false};
  std::mutex mutex;
  std::exception_ptr failure;  // the first one; guarded by mutex

  /// Takes one chunk and works on it. False when there is none left.
  bool step(std::int64_t nChunks, const std::function<void(std::int64_t)>& work) {
    if (isAborted.load()) return false;
    const std::int64_t chunk = next.fetch_add(1);
    if (chunk >= nChunks) return false;
    try {
      work(chunk);
      done.fetch_add(1);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (failure == nullptr) failure = std::current_exception();
      isAborted.store(true);
    }
    return true;
  }
};

}  // namespace

ChunkRunner::ChunkRunner(std::uint64_t totalBytes, const LoadProgress& progress,
                         std::stop_token stop)
    : totalBytes_(totalBytes), progress_(progress), stop_(std::move(stop)) {
  if (throttle_.isDue()) report(0);
}

void ChunkRunner::run(std::int64_t nChunks, std::uint64_t bytes,
                      const std::function<void(std::int64_t)>& work) {
  SharedRun shared;
  {
    const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
    const std::int64_t nThreads = std::min({cores, kMostThreads, nChunks});
    std::vector<std::jthread> helpers;
    for (std::int64_t i = 1; i < nThreads; ++i) {
      try {
        helpers.emplace_back([&] {
          while (shared.step(nChunks, work)) {
          }
        });
      } catch (const std::system_error&) {
        break;  // fewer do it, too
      }
    }
    // This thread works too, and looks up between its chunks. Where it throws, isAborted lets the
    // helpers end before they are joined.
    try {
      do {
        throwIfStopped();
        if (throttle_.isDue()) {
          report(doneBytes_ + bytes / static_cast<std::uint64_t>(nChunks) *
                                  static_cast<std::uint64_t>(shared.done.load()));
        }
      } while (shared.step(nChunks, work));
    } catch (...) {
      shared.isAborted.store(true);
      throw;
    }
  }
  if (shared.failure != nullptr) std::rethrow_exception(shared.failure);
  advance(bytes);
}

void ChunkRunner::advance(std::uint64_t bytes) {
  doneBytes_ += bytes;
  throwIfStopped();
  if (throttle_.isDue()) report(doneBytes_);
}

void ChunkRunner::finish() { report(totalBytes_); }

void ChunkRunner::report(std::uint64_t doneBytes) {
  if (progress_) progress_(std::min(doneBytes, totalBytes_), totalBytes_);
}

void ChunkRunner::throwIfStopped() const {
  if (stop_.stop_requested()) {
    throw Error(ErrorCode::kCancelled, "Loading the model was cancelled.");
  }
}

}  // namespace longhand::engine
