// The best of a vocabulary's logits, in one launch.
//
// Each block sorts pieces of 1024 logits in shared memory (bitonic: 55 rounds) and keeps the best
// of them; the last block to finish merges what all of them kept. For 32,000 logits and up to 64
// best ones that is one piece for each of 32 blocks, and 35 rounds of merging.
//
// A logit and its id are one number: larger means better, equal logits by lower id, and 0 is what
// can never be chosen. So the result does not depend on the order of anything.

#include <algorithm>
#include <bit>

#include "kernels/cuda/top_logits.h"
#include "kernels/cuda/warp/last_block.cuh"
#include "kernels/cuda/warp/portability.cuh"

namespace longhand::kernels::cuda {
namespace {

using Key = unsigned long long;
constexpr int kThreads = 256;
constexpr int kPiece = 1024;
constexpr int kHeld = 2 * kPiece;  // keys in shared memory
constexpr int kLeastKept = 32;

struct TopJob {
  const float* logits = nullptr;
  Key* partials = nullptr;  // [blocks, nKept]
  unsigned* finished = nullptr;
  ScoredToken* best = nullptr;
  int count = 0;
  int nPieces = 0;
  int nBest = 0;
  int nKept = 0;  // a power of two, at least nBest, at most kPiece / 2
};

/// 0 for NaN and -infinity.
__device__ __forceinline__ Key keyOf(float logit, int id) {
  if (!(logit > -INFINITY)) return 0;
  const unsigned bits = __float_as_uint(logit == 0.0F ? 0.0F : logit);  // -0.0 equals 0.0
  const unsigned ordered = (bits >> 31U) != 0 ? ~bits : bits | 0x80000000U;
  return Key{ordered} << 32U | (0xffffffffU - static_cast<unsigned>(id));
}

__device__ __forceinline__ ScoredToken tokenOf(Key key) {
  ScoredToken token;
  if (key == 0) return token;
  const auto ordered = static_cast<unsigned>(key >> 32U);
  token.logit = __uint_as_float((ordered >> 31U) != 0 ? ordered & 0x7fffffffU : ~ordered);
  token.id = static_cast<std::int32_t>(0xffffffffU - static_cast<unsigned>(key));
  return token;
}

/// One round of a bitonic network over `count` keys: pairs `stride` apart; runs of `size` keys fall
/// and rise in turn. A barrier must be before and after.
__device__ __forceinline__ void exchangeRound(Key* keys, int count, int stride, int size) {
  for (int i = static_cast<int>(threadIdx.x); i < count / 2; i += kThreads) {
    const int low = 2 * i - (i & (stride - 1));
    const bool isFalling = (low & size) == 0;
    const Key a = keys[low];
    const Key b = keys[low + stride];
    if ((a < b) == isFalling) {
      keys[low] = b;
      keys[low + stride] = a;
    }
  }
}

/// Falling order, of a power of two of keys.
__device__ __forceinline__ void sortKeys(Key* keys, int count) {
  for (int size = 2; size <= count; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      exchangeRound(keys, count, stride, size == count ? 0 : size);
      __syncthreads();
    }
  }
}

/// Lists of nKept keys, each in falling order, lie one behind the other. Every list whose number is
/// a multiple of 2 * distance becomes the best of itself and of the one `distance` behind it.
__device__ __forceinline__ void mergeLists(Key* keys, int nLists, int nKept, int distance) {
  const int nPairs = nLists / (2 * distance);
  for (int i = static_cast<int>(threadIdx.x); i < nPairs * nKept; i += kThreads) {
    Key* const list = keys + i / nKept * 2 * distance * nKept;
    const int at = i % nKept;
    const Key other = list[distance * nKept + nKept - 1 - at];
    if (list[at] < other) list[at] = other;
  }
  __syncthreads();
  // What is left rises and falls once: the last rounds of a sort put it in order.
  for (int stride = nKept / 2; stride > 0; stride /= 2) {
    for (int i = static_cast<int>(threadIdx.x); i < nPairs * nKept / 2; i += kThreads) {
      Key* const list = keys + i / (nKept / 2) * 2 * distance * nKept;
      const int pair = i % (nKept / 2);
      const int low = 2 * pair - (pair & (stride - 1));
      const Key a = list[low];
      const Key b = list[low + stride];
      if (a < b) {
        list[low] = b;
        list[low + stride] = a;
      }
    }
    __syncthreads();
  }
}

/// keys[0 .. nKept) = the best of the block's pieces. Their last barrier is behind all writes.
__device__ __forceinline__ void keepBest(const TopJob& job, Key* keys) {
  Key* const piece = keys + job.nKept;
  for (int i = static_cast<int>(threadIdx.x); i < job.nKept; i += kThreads) keys[i] = 0;
  for (int p = static_cast<int>(blockIdx.x); p < job.nPieces; p += static_cast<int>(gridDim.x)) {
    for (int i = static_cast<int>(threadIdx.x); i < kPiece; i += kThreads) {
      const int id = p * kPiece + i;
      piece[i] = id < job.count ? keyOf(job.logits[id], id) : 0;
    }
    __syncthreads();
    sortKeys(piece, kPiece);
    mergeLists(keys, 2, job.nKept, 1);
  }
}

__global__ void __launch_bounds__(kThreads) topLogitsKernel(const __grid_constant__ TopJob job) {
  SHARED(keys, Key[kHeld]);
  SHARED(isLast, bool);
  const int thread = static_cast<int>(threadIdx.x);
  const int nBlocks = static_cast<int>(gridDim.x);
  const int nKept = job.nKept;
  keepBest(job, keys);
  if (nBlocks > 1) {
    for (int i = thread; i < nKept; i += kThreads) {
      job.partials[static_cast<int>(blockIdx.x) * nKept + i] = keys[i];
    }
    __syncthreads();
    if (thread == 0) isLast = countBlock(job.finished) == gridDim.x - 1;
    __syncthreads();
    if (!isLast) return;
    // The first list stays in shared memory, the others come beside it, as many as there is room.
    const int nLists = kHeld / nKept;
    for (int first = 0; first < nBlocks; first += first == 0 ? nLists : nLists - 1) {
      const int skipped = first == 0 ? 0 : 1;
      for (int i = thread + skipped * nKept; i < kHeld; i += kThreads) {
        const int list = first + i / nKept - skipped;
        keys[i] = list < nBlocks ? job.partials[list * nKept + i % nKept] : 0;
      }
      __syncthreads();
      for (int distance = 1; distance < nLists; distance *= 2) {
        mergeLists(keys, nLists, nKept, distance);
      }
    }
    if (thread == 0) *job.finished = 0;  // for the next launch
  }
  for (int i = thread; i < job.nBest; i += kThreads) job.best[i] = tokenOf(keys[i]);
}

}  // namespace

void launchTopLogits(const float* logits, std::int64_t count, int nBest,
                     const TopWorkspace& workspace, const LaunchQueue& queue) {
  static_assert(kMostTopLogits <= kPiece / 2);  // a list and a piece, and four lists, fit
  static_assert(sizeof(Key) == sizeof(std::uint64_t));
  TopJob job;
  job.logits = logits;
  job.partials = reinterpret_cast<Key*>(workspace.partials);
  job.finished = workspace.finished;
  job.best = workspace.best;
  job.count = static_cast<int>(count);
  job.nPieces = ceilDivide(job.count, kPiece);
  job.nBest = nBest;
  job.nKept = std::max(kLeastKept, static_cast<int>(std::bit_ceil(static_cast<unsigned>(nBest))));
  launch(topLogitsKernel, static_cast<unsigned>(std::min(job.nPieces, kMostTopBlocks)), kThreads, 0,
         queue, job);
}

}  // namespace longhand::kernels::cuda
