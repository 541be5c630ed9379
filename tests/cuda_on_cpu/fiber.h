#pragma once
// One CUDA thread as a fiber: a stack of its own, and a switch that saves the registers a function
// call must keep. Fibers of a block all run on one OS thread.

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace longhand::cuda_on_cpu {

/// A cp.async that was issued and not yet waited for.
struct PendingCopy {
  void* destination;
  const void* source;
  unsigned bytes;
  unsigned zeroBytes;  // written as zeros behind them
  unsigned group;      // of cp.async.commit_group
};

struct Fiber {
  enum class State : std::uint8_t { kReady, kInCollective, kAtBarrier, kDone };

  void* stackPointer = nullptr;  // while it does not run
  char* mapping = nullptr;       // [guard page, stack]; nullptr for the OS thread itself
  uint3 threadIndex{};
  unsigned linearIndex = 0;
  State state = State::kDone;
  const char* site = nullptr;  // where it waits, "file:line#n"
  std::vector<PendingCopy> pendingCopies;
  unsigned copyGroup = 0;
  void* tsanFiber = nullptr;
  void* asanFakeStack = nullptr;
  const void* stackBottom = nullptr;  // for asan
  std::size_t stackBytes = 0;
#if !defined(__x86_64__)
  ucontext_t context{};
#endif
};

/// Maps a stack with a guard page below it. Throws std::bad_alloc.
void mapStack(Fiber& fiber, std::size_t stackBytes);
/// Gives back the stack and what a sanitizer holds for the fiber.
void releaseFiber(Fiber& fiber) noexcept;
/// The next switch to the fiber calls entry(), which must not return.
void prepareFiber(Fiber& fiber, void (*entry)());
/// Leaves `from`, continues `to`; returns when something switches back to `from`.
void switchFiber(Fiber& from, Fiber& to, bool fromIsDone);
/// Called first by entry().
void finishFirstSwitch();
/// Fills in the stack of the OS thread that `fiber` stands for.
void describeOsThread(Fiber& fiber);

}  // namespace longhand::cuda_on_cpu
