#pragma once
// Ctrl+C (SIGINT): ends the program, except while an InterruptScope lives. There the first one asks
// the work to stop cleanly, and the second one ends the program. Where the parent process had
// SIGINT ignored, it stays ignored.
//
//   Interrupt interrupt;                       // first thing in main, before any other thread
//   { InterruptScope scope(interrupt); engine.generate(..., scope.stop()); }

#include <atomic>
#include <mutex>
#include <stop_token>
#include <thread>

namespace longhand::engine::cli {

/// Takes SIGINT with a thread of its own, since nothing useful may be called in a signal handler.
class Interrupt {
 public:
  /// Throws std::system_error when no thread can be made.
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

 private:
  friend class InterruptScope;
  void waitForSignals();

  std::mutex mutex_;
  std::stop_source* active_ = nullptr;  // of the scope that lives, guarded by mutex_
  std::atomic<bool> isEnding_ = false;
  std::thread thread_;
};

/// At most one lives at a time.
class InterruptScope {
 public:
  explicit InterruptScope(Interrupt& interrupt);
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  ~InterruptScope();

  std::stop_token stop() const { return source_.get_token(); }

 private:
  Interrupt& interrupt_;
  std::stop_source source_;
};

}  // namespace longhand::engine::cli
