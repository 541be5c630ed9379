#pragma once
// Splits long loops over threads, with progress and cancel. For work on weights, outside the graph.

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>

#include "engine/base/throttle.h"
#include "engine/model/model.h"

namespace longhand::engine {

/// One load of a model: counts its bytes and reports them. Used by the loading thread.
class ChunkRunner {
 public:
  /// `progress` may be empty; it is called on the thread that calls run() and advance().
  ChunkRunner(std::uint64_t totalBytes, const LoadProgress& progress, std::stop_token stop);

  /// Calls work(0) ... work(nChunks - 1), each once, on several threads in any order, and counts
  /// `bytes` as done along the way. Returns when all are done; what one of them throws is thrown
  /// here. A chunk should take no longer than 20 ms: between chunks progress is reported, and
  /// Error kCancelled is thrown when a stop was requested.
  void run(std::int64_t nChunks, std::uint64_t bytes,
           const std::function<void(std::int64_t)>& work);
  /// Counts bytes that needed no work. Throws kCancelled likewise.
  void advance(std::uint64_t bytes);
  /// Reports that everything is done.
  void finish();

 private:
  void report(std::uint64_t doneBytes);
  void throwIfStopped() const;

  std::uint64_t totalBytes_;
  std::uint64_t doneBytes_ = 0;
  const LoadProgress& progress_;
  std::stop_token stop_;
  Throttle throttle_{std::chrono::milliseconds(100)};
};

}  // namespace longhand::engine
