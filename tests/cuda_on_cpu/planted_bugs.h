#pragma once
// Small kernels with one bug each, and their right twins: they show that the emulation can fail.

#include <string>
#include <vector>

namespace longhand::cuda_on_cpu {

enum class Bug {
  kNone,                  // s[t] is written, a barrier, s[t + 1] is read
  kMissingBarrier,        // the same without it
  kWriteAfterRead,        // a loop that lacks its second barrier
  kWarpBarrierOnly,       // __syncwarp where other warps are read
  kDivergentBarrier,      // two halves of a block at different __syncthreads
  kEarlyExit,             // some threads leave before a barrier
  kMismatchedCollective,  // a shuffle meets a ballot
  kExitedLane,            // a mask names a lane that is gone
  kNotInMask,             // the caller is not in its own mask
  kDeadlock,              // one half waits for the warp, the other for the block
  kSharedOverrun,         // writes one element past a shared array
  kDynamicOverrun,        // the same in dynamic shared memory
  kMissingWait,           // reads what cp.async has not brought yet
  kUninitialised,         // sums up shared memory that nobody wrote
  kMisalignedLoad,        // ldmatrix of a row at an odd address
  kGlobalRace,            // every block writes the same word
  kFarBlocksRace,         // threads of the first and the third block write the same words
  kShuffleForBarrier,     // relies on a shuffle, which orders no memory, for what its warp wrote
  kEarlyMatrixLoad,       // ldmatrix of rows that another warp writes, without a barrier
  kTooMuchShared,         // more than a block may have
};

/// Runs the kernel on 2 blocks of 64 threads. Returns [2 * 64] what each thread computed: t + 1 (of
/// 64, so 0 for the last) where all went well. Throws Error where the emulation saw the bug.
std::vector<int> runPlanted(Bug bug);
/// Objects that live on the stacks of CUDA threads: after a launch none.
int ownedByThreads();
/// "kMissingBarrier" for the command line of a child process.
Bug bugNamed(const std::string& name);

}  // namespace longhand::cuda_on_cpu
