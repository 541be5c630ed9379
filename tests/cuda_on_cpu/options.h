#pragma once
// How the emulation runs kernels, and the error it throws.

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace longhand::cuda_on_cpu {

/// The order in which the threads of a block, and the blocks of a grid, get their turn. A kernel
/// that is right gives the same result in all of them.
enum class Schedule : std::uint8_t { kForward, kReverse, kRandom };

struct Options {
  Schedule schedule = Schedule::kForward;
  std::uint64_t seed = 1;                                   // of kRandom
  unsigned osThreads = 1;                                   // blocks run on so many at once
  std::size_t stackBytes = std::size_t{64} << 10U;          // of each CUDA thread
  std::size_t largestSharedBytes = std::size_t{99} << 10U;  // a block's, after opting in (sm_86)
  std::size_t largestDefaultSharedBytes = std::size_t{48} << 10U;  // without opting in
};

/// What launch() goes by: set it before a launch, from the thread that launches.
inline Options options;

/// Puts the options back at the end of a scope.
class ScopedOptions {
 public:
  explicit ScopedOptions(const Options& wanted) : before_(options) { options = wanted; }
  ~ScopedOptions() { options = before_; }
  ScopedOptions(const ScopedOptions&) = delete;
  ScopedOptions& operator=(const ScopedOptions&) = delete;

 private:
  Options before_;
};

/// A kernel did what a GPU forbids or leaves undefined. The message names the block, the thread and
/// the line. The launch's memory is then undefined.
struct Error : std::runtime_error {
  using runtime_error::runtime_error;
};

/// The byte that fills shared memory before each block: a float of -1.2e-12, a code 0xab.
inline constexpr unsigned char kSharedPoison = 0xab;

}  // namespace longhand::cuda_on_cpu
