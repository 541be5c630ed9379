#pragma once
// The emulated device: what it says of itself, how it fails, what it has done so far. Its memory is
// blocks of main memory with a limit, with guard zones under asan; contents are 0xff bytes (NaN in
// every float format) before they are written.
//
// A fault is "sticky", as on a GPU: from then on every call reports it, and memory cannot even be
// freed, until cudaDeviceReset() takes everything back.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/cuda_on_cpu/options.h"

namespace longhand::cuda_on_cpu {

/// What the device says of itself; tests change it before they create a backend.
struct DeviceSettings {
  int nDevices = 1;
  bool hasDriver = true;
  int driverVersion = 13000;  // as cudaDriverGetVersion says it: 13.0
  int major = 8;              // compute capability
  int minor = 6;
  std::size_t totalBytes = std::size_t{8} << 30U;
  std::size_t otherBytes = 0;          // held by other processes
  bool hasKernels = true;              // false: the plug-in has no code for this device
  bool computesWrongly = false;        // kernels do nothing
  bool staysBrokenAfterReset = false;  // a fault survives cudaDeviceReset()
};

/// Failures to come. Any thread may set them while the device works.
struct DeviceFailures {
  /// The allocation with this number (device or pinned) finds no room; 1: the next, 0: none.
  std::atomic<int> allocation{0};
  std::atomic<int> launch{0};  // the kernel with this number faults; likewise
  std::atomic<int> copy{0};    // the copy to, from or inside the device with this number; likewise
  std::atomic<bool> isBroken{false};  // a fault that has not been reset
  std::atomic<int> graph{0};          // the graph with this number cannot be instantiated; likewise
};

/// What the device holds and has done. Any thread may read it.
struct DeviceCounters {
  std::atomic<std::size_t> deviceBytes{0};  // 0 when everything was given back
  std::atomic<std::size_t> pinnedBytes{0};
  std::atomic<int> nStreamsAndEvents{0};
  std::atomic<int> nDeviceAllocations{0};  // in all
  std::atomic<int> nPinnedAllocations{0};
  std::atomic<int> nFrees{0};
  std::atomic<int> nLaunches{0};
  std::atomic<std::uint64_t> nBlocks{0};  // of them
  std::atomic<int> nSynchronizations{0};  // of a stream or an event, by the host
  std::atomic<int> nResets{0};
  std::atomic<int> nGraphs{0};         // instantiated, in all
  std::atomic<int> nGraphLaunches{0};  // their kernels count in nLaunches, too
  std::atomic<int> nNodeUpdates{0};
  std::atomic<std::uint64_t> pageableUploadBytes{0};  // from memory that is not pinned
  std::atomic<std::uint64_t> pinnedUploadBytes{0};
};

/// The emulated device of this program, or of this plug-in.
struct EmulatedDevice {
  DeviceSettings settings;
  DeviceFailures failures;
  DeviceCounters counters;
  Options& kernelOptions = options;  // how its kernels run
};
EmulatedDevice& emulatedDevice();

/// For launch(): counts a kernel. False when it shall not run, since the device is broken, or is
/// from now on.
bool beginLaunch();

}  // namespace longhand::cuda_on_cpu
