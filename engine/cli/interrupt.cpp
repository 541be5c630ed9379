#include "engine/cli/interrupt.h"

#include <pthread.h>
#include <signal.h>

namespace longhand::engine::cli {
namespace {

sigset_t interruptSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

/// As if nobody had handled the signal, so that a shell sees why the program ended.
void endBySignal() {
  signal(SIGINT, SIG_DFL);
  raise(SIGINT);  // this thread's own: pending until it is unblocked
  const sigset_t set = interruptSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  struct sigaction inherited {};
  sigaction(SIGINT, nullptr, &inherited);
  if (inherited.sa_handler == SIG_IGN) return;  // as nohup and shells want it for background jobs
  const sigset_t set = interruptSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // later threads inherit it
  thread_ = std::thread([this] { waitForSignals(); });
}

Interrupt::~Interrupt() {
  if (!thread_.joinable()) return;
  isEnding_ = true;
  pthread_kill(thread_.native_handle(), SIGINT);  // wakes it up
  thread_.join();
}

void Interrupt::waitForSignals() {
  const sigset_t set = interruptSet();
  int received = 0;
  while (sigwait(&set, &received) == 0 && !isEnding_) {
    const std::lock_guard lock(mutex_);
    const bool isFirst = active_ != nullptr && active_->request_stop();
    if (!isFirst) endBySignal();
  }
}

InterruptScope::InterruptScope(Interrupt& interrupt) : interrupt_(interrupt) {
  const std::lock_guard lock(interrupt_.mutex_);
  interrupt_.active_ = &source_;
}

InterruptScope::~InterruptScope() {
  const std::lock_guard lock(interrupt_.mutex_);
  interrupt_.active_ = nullptr;
}

}  // namespace longhand::engine::cli
