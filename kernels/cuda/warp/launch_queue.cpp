#include "kernels/cuda/warp/launch_queue.h"

#include <algorithm>
#include <cassert>

namespace longhand::kernels::cuda {
namespace {

bool isSame(const dim3& a, const dim3& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

/// Never less than another backend of this process needs: the limit is the context's.
void setMostShared(const void* kernel, int bytes) {
  cudaFuncAttributes now{};
  if (cudaFuncGetAttributes(&now, kernel) == cudaSuccess &&
      now.maxDynamicSharedSizeBytes >= bytes) {
    return;
  }
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

int occupancyOf(const void* kernel, int nThreads, std::size_t sharedBytes) {
  int nBlocks = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nBlocks, kernel, nThreads, sharedBytes);
  return std::max(nBlocks, 1);  // an error shows at the launch
}

}  // namespace

void** LaunchList::argumentsOf(const Launch& launch) {
  pointers_.clear();
  for (std::size_t i = 0; i < launch.nArguments; ++i) {
    pointers_.push_back(&units_[arguments_[launch.firstArgument + i].firstUnit]);
  }
  return pointers_.data();
}

bool LaunchList::isEqual(std::size_t i, const LaunchList& other) const {
  const Launch& a = launches_[i];
  const Launch& b = other.launches_[i];
  assert(a.kernel == b.kernel && a.nArguments == b.nArguments);
  if (!isSame(a.grid, b.grid) || !isSame(a.block, b.block) || a.sharedBytes != b.sharedBytes) {
    return false;
  }
  for (std::size_t k = 0; k < a.nArguments; ++k) {
    const Argument& mine = arguments_[a.firstArgument + k];
    const Argument& theirs = other.arguments_[b.firstArgument + k];
    if (std::memcmp(&units_[mine.firstUnit], &other.units_[theirs.firstUnit], mine.sizeBytes) !=
        0) {
      return false;
    }
  }
  return true;
}

bool LaunchList::isAlike(const LaunchList& other) const {
  return std::ranges::equal(launches_, other.launches_, {}, &Launch::kernel, &Launch::kernel);
}

void LaunchRecorder::allowShared(const void* kernel, int bytes) {
  const auto known = std::ranges::find(allowed_, kernel, &Allowed::kernel);
  if (known == allowed_.end()) {
    allowed_.push_back({kernel, bytes});
  } else if (known->bytes < bytes) {
    known->bytes = bytes;
  } else {
    return;
  }
  setMostShared(kernel, bytes);
}

int LaunchRecorder::blocksAtOnce(const void* kernel, int nThreads, std::size_t sharedBytes) {
  for (const Occupancy& known : occupancies_) {
    if (known.kernel == kernel && known.nThreads == nThreads && known.sharedBytes == sharedBytes) {
      return known.nBlocks;
    }
  }
  const int nBlocks = occupancyOf(kernel, nThreads, sharedBytes);
  occupancies_.push_back({kernel, nThreads, sharedBytes, nBlocks});
  return nBlocks;
}

int LaunchQueue::blocksAtOnce(const void* kernel, int nThreads, std::size_t sharedBytes) const {
  return recorder_ != nullptr ? recorder_->blocksAtOnce(kernel, nThreads, sharedBytes)
                              : occupancyOf(kernel, nThreads, sharedBytes);
}

void LaunchQueue::allowShared(const void* kernel, int bytes) const {
  if (recorder_ != nullptr) {
    recorder_->allowShared(kernel, bytes);
  } else {
    setMostShared(kernel, bytes);
  }
}

}  // namespace longhand::kernels::cuda
