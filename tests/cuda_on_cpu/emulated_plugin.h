#pragma once
// The CUDA backend on the emulated device as a plug-in, for tests of the layers above: they load it
// as they load the real one, and set and read its device here.

#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include "tests/cuda_on_cpu/device_memory.h"

namespace longhand::cuda_on_cpu {

inline constexpr const char* kEmulatedDeviceEntry = "longhandEmulatedDevice";

/// Loads the plug-in, which then stays until the process ends; any number of these share it. The
/// device has no failures to come when one is made, and again when it goes.
class EmulatedPlugin {
 public:
  explicit EmulatedPlugin(const std::string& file) : file_(file) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void* const entry = library == nullptr ? nullptr : dlsym(library, kEmulatedDeviceEntry);
    if (entry == nullptr) throw std::runtime_error(file + " is no emulated plug-in");
    device_ = reinterpret_cast<EmulatedDevice* (*)()>(entry)();
    renew();
  }
  EmulatedPlugin(const EmulatedPlugin&) = delete;
  EmulatedPlugin& operator=(const EmulatedPlugin&) = delete;
  ~EmulatedPlugin() { renew(); }

  const std::string& file() const { return file_; }
  EmulatedDevice& device() const { return *device_; }
  DeviceSettings& settings() const { return device_->settings; }
  DeviceFailures& failures() const { return device_->failures; }
  Options& kernelOptions() const { return device_->kernelOptions; }
  DeviceCounters& counters() const { return device_->counters; }

 private:
  void renew() const {
    device_->settings = {};
    device_->kernelOptions = {};
    device_->failures.allocation = 0;
    device_->failures.isBroken = false;
    device_->failures.launch = 0;
    device_->failures.copy = 0;
    device_->failures.graph = 0;
  }

  std::string file_;
  EmulatedDevice* device_ = nullptr;
};

}  // namespace longhand::cuda_on_cpu
