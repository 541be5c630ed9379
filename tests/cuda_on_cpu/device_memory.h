#pragma once
// The emulated device's memory: blocks of main memory with a limit, so that tests can make a device
// run out of it, and with guard zones under asan. Contents are 0xff bytes (NaN in every float
// format) before they are written.

#include <cstddef>
#include <cstdint>

namespace longhand::cuda_on_cpu {

/// What the emulated device says of itself; tests change it before they create a backend.
struct DeviceSettings {
  int nDevices = 1;
  bool hasDriver = true;
  int driverVersion = 13000;  // as cudaDriverGetVersion says it: 13.0
  int major = 8;              // compute capability
  int minor = 6;
  std::size_t totalBytes = std::size_t{8} << 30U;
  int failAfterLaunches = -1;  // the launch with this number faults, like a broken device
};
inline DeviceSettings deviceSettings;

/// Bytes that are allocated now: 0 when everything was given back.
std::size_t allocatedDeviceBytes();

}  // namespace longhand::cuda_on_cpu
