#pragma once
// Runs one thread block at a time on the calling OS thread: every CUDA thread is a fiber, and
// fibers switch only inside a barrier or a warp collective. Whoever blocks picks the next ready
// fiber.
//
// Throws Error out of runBlock() for: a barrier that threads reach at different lines, a barrier
// that some threads never reach, lanes that meet in different collectives, a collective whose mask
// names a lane that has exited or not the caller, and threads that wait for ever.

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/fiber.h"
#include "tests/cuda_on_cpu/options.h"
#include "tests/cuda_on_cpu/sanitizer_hooks.h"
#include "tests/cuda_on_cpu/shared_memory.h"

namespace longhand::cuda_on_cpu {

class BlockEngine;

/// What threadIdx and its like read: state of the OS thread that runs a block.
struct Current {
  Fiber* fiber = nullptr;
  uint3 blockIndex{};
  dim3 blockSize;
  dim3 gridSize;
  BlockEngine* engine = nullptr;
};
inline constinit thread_local Current current;

/// Computes every lane's result of a collective; lanes[i] is what lane i passed, for i in mask.
using Combine = void (*)(void** lanes, unsigned mask);

class BlockEngine {
 public:
  /// What a barrier returns: nothing, or a vote over the threads that met.
  enum class Vote : std::uint8_t { kNone, kAny, kAll, kCount };

  BlockEngine() = default;
  ~BlockEngine();
  BlockEngine(const BlockEngine&) = delete;
  BlockEngine& operator=(const BlockEngine&) = delete;

  /// Runs body(argument) once for each thread of the block that `current` describes.
  void runBlock(void (*body)(void*), void* argument, std::size_t dynamicSharedBytes,
                std::size_t largestSharedBytes);
  /// Seeds the order of kRandom.
  void seed(std::uint64_t value) { random_ = value * 0x9e3779b97f4a7c15U | 1U; }

  // --- Called by the running CUDA thread --------------------------------------------------------

  /// __syncthreads and bar.sync: waits for `nThreads` threads (0: all of the block).
  int barrier(unsigned id, unsigned nThreads, const char* site, bool predicate, Vote vote);
  /// Waits for all lanes of `mask`; the last to arrive runs `combine` (may be nullptr).
  void collective(unsigned mask, Combine combine, void* lane, const char* site);
  void* sharedArray(const char* site, std::size_t bytes);
  void* dynamicShared() const { return shared_.dynamic(); }
  /// Ends the launch with an Error.
  [[noreturn]] void fail(const std::string& message);

 private:
  struct Meeting {  // of lanes in a collective; several masks can meet at once
    unsigned mask = 0;
    unsigned arrived = 0;
    Combine combine = nullptr;
    const char* site = nullptr;
    void* lanes[32] = {};
    unsigned generation = 0;
    char order[2] = {};  // for tsan: alternate, since one would hide a write after a read
  };
  struct Warp {
    unsigned existing = 0;
    unsigned alive = 0;
    std::vector<Meeting> meetings;
  };
  struct Barrier {
    std::vector<unsigned> waiting;
    unsigned nExpected = 0;  // 0: all
    const char* site = nullptr;
    unsigned nTrue = 0;
    int result = 0;
    unsigned generation = 0;
    char order[2] = {};
  };
  static constexpr unsigned kBarriers = 16;
#ifdef LONGHAND_EMULATION_TSAN
  static constexpr unsigned kFiberSets = 2;
#else
  static constexpr unsigned kFiberSets = 1;
#endif
  static constexpr std::size_t kFiberShift = 7;

  static void enterFiber();
  void chooseFibers();
  void prepareThreads();
  void threadMain();
  void unwindThreads();
  void leaveThread(Fiber& self);
  Fiber& nextReady();
  void switchTo(Fiber& next);
  void yield() { switchTo(nextReady()); }
  void makeReady(unsigned thread);
  void unready(unsigned thread);
  void openBarrier(Barrier& barrier);
  Meeting& meetingFor(Warp& warp, unsigned mask, Combine combine, const char* site);
  std::uint64_t nextRandom();
  std::string deadlockMessage() const;

  // To ThreadSanitizer each fiber is a thread, which costs a tenth of a millisecond to make, and
  // each barrier costs as much as there are fibers. So blocks take turns with two sets of them: a
  // race between neighbouring blocks shows. Between others it shows too, because the block after
  // next gives each thread another fiber of the set.
  std::vector<Fiber> fiberSets_[kFiberSets];
  std::size_t nBlocksRun_ = 0;
  std::vector<Fiber*> fibers_;  // [nThreads_] of the block
  std::vector<Warp> warps_;
  std::vector<unsigned> ready_;
  std::size_t readyHead_ = 0;
  Barrier barriers_[kBarriers];
  Fiber osThread_;
  unsigned nThreads_ = 0;
  unsigned nAlive_ = 0;
  std::uint64_t random_ = 1;
  std::string error_;
  bool isUnwinding_ = false;  // the block has failed, its threads end where they wait
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  SharedMemory shared_;
  std::size_t dynamicBytes_ = 0;
  std::size_t largestSharedBytes_ = 0;
  char launchBegin_ = 0;  // for tsan: everything before the launch
  char launchOrder_ = 0;  // for tsan: everything before the end of the launch

  friend void orderBeforeLaunch(BlockEngine& engine);
  friend void orderAfterLaunch(BlockEngine& engine);
};

/// For tsan: what this OS thread did comes before the threads of the launch.
void orderBeforeLaunch(BlockEngine& engine);
/// For tsan: what follows in this OS thread comes after the threads of the launch.
void orderAfterLaunch(BlockEngine& engine);

}  // namespace longhand::cuda_on_cpu
