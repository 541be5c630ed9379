#include <atomic>
#include <stdexcept>

#include "tests/cuda_on_cpu/planted_bugs.h"

namespace longhand::cuda_on_cpu {
namespace {

constexpr int kThreads = 64;
constexpr int kBlocks = 2;
constexpr unsigned kLowerHalf = 0x0000ffffU;

std::atomic<int> nOwned{0};

/// Stands for what the stack of a CUDA thread owns.
struct Owned {
  Owned() { nOwned.fetch_add(1, std::memory_order_relaxed); }
  ~Owned() { nOwned.fetch_sub(1, std::memory_order_relaxed); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};

__device__ int next(int thread) { return (thread + 1) % kThreads; }

/// Everything that only needs one array and one exchange.
__global__ void exchange(int* result, Bug bug) {
  SHARED(shared, int[kThreads]);
  SHARED(behind, int[kThreads]);
  const int t = static_cast<int>(threadIdx.x);
  behind[t] = 0;
  if (bug != Bug::kUninitialised) shared[t] = t;
  if (bug == Bug::kSharedOverrun) {
    volatile int* const element = shared;
    element[t + 1] = t;
  }
  if (bug == Bug::kEarlyExit && t >= 40) return;
  if (bug == Bug::kWarpBarrierOnly) {
    __syncwarp();
  } else if (bug != Bug::kMissingBarrier) {
    __syncthreads();
  }
  result[blockIdx.x * kThreads + threadIdx.x] = shared[next(t)] + behind[t];
}

__global__ void writeAfterRead(int* result, int rounds) {
  SHARED(shared, int[kThreads]);
  const int t = static_cast<int>(threadIdx.x);
  int sum = 0;
  for (int i = 0; i < rounds; ++i) {
    shared[t] = i * kThreads + t;
    __syncthreads();
    sum += shared[next(t)] - i * kThreads;
  }
  result[blockIdx.x * kThreads + threadIdx.x] = sum / rounds;
}

__global__ void divergentBarrier(int* result) {
  const int t = static_cast<int>(threadIdx.x);
  if (t < 16) {
    result[t] = 1;
    __syncthreads();
  } else {
    result[t] = 2;
    __syncthreads();
  }
}

__global__ void collectives(int* result, Bug bug) {
  const Owned owned;
  const int t = static_cast<int>(threadIdx.x);
  if (bug == Bug::kMismatchedCollective) {
    result[t] = t % 2 == 0 ? __shfl_xor_sync(~0U, t, 1) : static_cast<int>(__ballot_sync(~0U, 1));
  } else if (bug == Bug::kExitedLane) {
    if (t % 32 < 4) return;
    result[t] = __shfl_xor_sync(~0U, t, 1);
  } else if (bug == Bug::kNotInMask) {
    result[t] = __shfl_xor_sync(kLowerHalf, t, 1);
  } else if (bug == Bug::kDeadlock) {
    if (t % 32 < 16) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
}

__global__ void dynamicOverrun(int* result) {
  DYN_SHARED(int, shared);
  const int t = static_cast<int>(threadIdx.x);
  shared[t + 1] = t + 1;  // [kThreads] were asked for
  __syncthreads();
  result[blockIdx.x * kThreads + threadIdx.x] = t == kThreads - 1 ? 0 : shared[t + 1];
}

__global__ void missingWait(int* result, const int* source) {
  SHARED(shared, int[2][kThreads]);
  const int t = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 2; ++i) {
    copyAsync(&shared[i][t], source + t, 4, 4);
    commitCopies();
  }
  waitCopies(1);  // the second group may still be on its way
  __syncthreads();
  result[blockIdx.x * kThreads + threadIdx.x] = shared[1][next(t)];
}

__global__ void misalignedLoad(int* result) {
  SHARED(shared, unsigned short[kThreads * 8 + 1]);
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < kThreads * 8 + 1; i += kThreads) shared[i] = 0;
  __syncthreads();
  unsigned loaded[4];
  loadMatrices(LONGHAND_SITE, loaded, &shared[t % 32 * 8 + 1], false);
  result[t] = static_cast<int>(loaded[0]);
}

__global__ void globalRace(int* result) {
  const int t = static_cast<int>(threadIdx.x);
  result[blockIdx.x * kThreads + threadIdx.x] = next(t);
  if (t == 0) result[0] = static_cast<int>(blockIdx.x);
}

__global__ void farBlocksRace(int* result) {
  if (blockIdx.x != 1) result[threadIdx.x] = next(static_cast<int>(threadIdx.x));
}

__global__ void shuffleForBarrier(int* result) {
  SHARED(shared, int[kThreads]);
  const int t = static_cast<int>(threadIdx.x);
  shared[t] = t;
  static_cast<void>(__shfl_xor_sync(~0U, t, 1));
  result[blockIdx.x * kThreads + threadIdx.x] = shared[t ^ 1];
}

__global__ void earlyMatrixLoad(int* result) {
  SHARED(shared, unsigned short[kThreads][8]);
  const int t = static_cast<int>(threadIdx.x);
  for (unsigned short& each : shared[t]) each = 0;
  unsigned loaded[4];
  loadMatrices(LONGHAND_SITE, loaded, &shared[kThreads - 1 - t], false);
  result[blockIdx.x * kThreads + threadIdx.x] = static_cast<int>(loaded[0]);
}

__global__ void tooMuchShared(int* result) {
  SHARED(shared, int[13 * 1024]);
  shared[threadIdx.x] = 1;
  result[threadIdx.x] = shared[threadIdx.x];
}

}  // namespace

std::vector<int> runPlanted(Bug bug) {
  std::vector<int> result(kBlocks * kThreads, -1);
  std::vector<int> source(kThreads);
  for (int i = 0; i < kThreads; ++i) source[static_cast<std::size_t>(i)] = i;
  const auto run = [&](auto* kernel, std::size_t dynamicBytes, auto... more) {
    launch(kernel, kBlocks, kThreads, dynamicBytes, nullptr, result.data(), more...);
  };
  switch (bug) {
    case Bug::kWriteAfterRead:
      run(writeAfterRead, 0, 3);
      break;
    case Bug::kDivergentBarrier:
      run(divergentBarrier, 0);
      break;
    case Bug::kMismatchedCollective:
    case Bug::kExitedLane:
    case Bug::kNotInMask:
    case Bug::kDeadlock:
      run(collectives, 0, bug);
      break;
    case Bug::kDynamicOverrun:
      run(dynamicOverrun, kThreads * sizeof(int));
      break;
    case Bug::kMissingWait:
      run(missingWait, 0, static_cast<const int*>(source.data()));
      break;
    case Bug::kMisalignedLoad:
      run(misalignedLoad, 0);
      break;
    case Bug::kGlobalRace:
      run(globalRace, 0);
      break;
    case Bug::kFarBlocksRace:
      launch(farBlocksRace, 3, kThreads, 0, nullptr, result.data());
      break;
    case Bug::kShuffleForBarrier:
      run(shuffleForBarrier, 0);
      break;
    case Bug::kEarlyMatrixLoad:
      run(earlyMatrixLoad, 0);
      break;
    case Bug::kTooMuchShared:
      run(tooMuchShared, 0);
      break;
    default:
      run(exchange, 0, bug);
      break;
  }
  return result;
}

int ownedByThreads() { return nOwned; }

Bug bugNamed(const std::string& name) {
  if (name == "missing-barrier") return Bug::kMissingBarrier;
  if (name == "write-after-read") return Bug::kWriteAfterRead;
  if (name == "warp-barrier-only") return Bug::kWarpBarrierOnly;
  if (name == "global-race") return Bug::kGlobalRace;
  if (name == "far-blocks-race") return Bug::kFarBlocksRace;
  if (name == "shuffle-for-barrier") return Bug::kShuffleForBarrier;
  if (name == "early-matrix-load") return Bug::kEarlyMatrixLoad;
  if (name == "shared-overrun") return Bug::kSharedOverrun;
  if (name == "dynamic-overrun") return Bug::kDynamicOverrun;
  if (name == "none") return Bug::kNone;
  throw std::invalid_argument("no bug is called " + name);
}

}  // namespace longhand::cuda_on_cpu
