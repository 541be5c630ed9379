#pragma once
// Where kernels are launched to: a stream at once, or the list of a decode step (step_graph.h).

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace longhand::kernels::cuda {

/// Launches with copies of their arguments, in order. Cleared and filled once a token, so that
/// nothing is allocated after the first.
class LaunchList {
 public:
  struct Launch {
    const void* kernel = nullptr;
    dim3 grid;
    dim3 block;
    std::size_t sharedBytes = 0;
    std::size_t firstArgument = 0;
    std::size_t nArguments = 0;
  };

  template <class... Values>
  void add(const void* kernel, dim3 grid, dim3 block, std::size_t sharedBytes,
           const Values&... values) {
    launches_.push_back({kernel, grid, block, sharedBytes, arguments_.size(), sizeof...(Values)});
    (addArgument(values), ...);
  }
  void clear() {
    launches_.clear();
    arguments_.clear();
    units_.clear();
  }
  std::span<const Launch> launches() const { return launches_; }
  /// As cudaLaunchKernel takes them; valid until the next call of anything.
  void** argumentsOf(const Launch& launch);
  /// Whether launch i of both lists, which are of one kernel, are equal in all else. Bytes between
  /// the members of an argument may make equal ones look different.
  bool isEqual(std::size_t i, const LaunchList& other) const;
  /// Whether the lists launch the same kernels.
  bool isAlike(const LaunchList& other) const;

 private:
  struct alignas(16) Unit {
    std::byte bytes[16];
  };
  struct Argument {
    std::size_t firstUnit = 0;
    std::size_t sizeBytes = 0;
  };

  template <class Value>
  void addArgument(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value> && alignof(Value) <= sizeof(Unit));
    const std::size_t first = units_.size();
    arguments_.push_back({first, sizeof(Value)});
    units_.resize(first + (sizeof(Value) + sizeof(Unit) - 1) / sizeof(Unit));
    std::memcpy(static_cast<void*>(&units_[first]), static_cast<const void*>(&value),
                sizeof(Value));
  }

  std::vector<Launch> launches_;
  std::vector<Argument> arguments_;
  std::vector<Unit> units_;
  std::vector<void*> pointers_;  // of argumentsOf
};

/// What a backend knows about its launches. One thread at a time.
class LaunchRecorder {
 public:
  LaunchList list;
  bool isRecording = false;

  /// cudaFuncSetAttribute, once for each kernel and size: it costs a microsecond.
  void allowShared(const void* kernel, int bytes);
  /// LaunchQueue::blocksAtOnce, asked once for each.
  int blocksAtOnce(const void* kernel, int nThreads, std::size_t sharedBytes);

 private:
  struct Allowed {
    const void* kernel = nullptr;
    int bytes = 0;
  };
  struct Occupancy {
    const void* kernel = nullptr;
    int nThreads = 0;
    std::size_t sharedBytes = 0;
    int nBlocks = 0;
  };
  std::vector<Allowed> allowed_;  // some ten kernels
  std::vector<Occupancy> occupancies_;
};

/// By value, to every launchX(). A stream converts to it: launches at once.
class LaunchQueue {
 public:
  LaunchQueue(cudaStream_t stream) : stream_(stream) {}
  LaunchQueue(cudaStream_t stream, LaunchRecorder& recorder)
      : stream_(stream), recorder_(&recorder) {}

  cudaStream_t stream() const { return stream_; }
  /// nullptr where launches go to the stream.
  LaunchList* list() const {
    return recorder_ != nullptr && recorder_->isRecording ? &recorder_->list : nullptr;
  }
  /// More than 48 KiB of dynamic shared memory for a kernel; before its launch.
  void allowShared(const void* kernel, int bytes) const;
  /// Blocks of a kernel that a multiprocessor of the current device holds, at least 1.
  int blocksAtOnce(const void* kernel, int nThreads, std::size_t sharedBytes) const;

 private:
  cudaStream_t stream_;
  LaunchRecorder* recorder_ = nullptr;
};

}  // namespace longhand::kernels::cuda
