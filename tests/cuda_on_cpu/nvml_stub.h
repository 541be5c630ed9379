#pragma once
// A stand-in for libnvidia-ml.so.1: the calls of kernels/cuda/device/nvml.cpp. A library of that
// name that is loaded already is what dlopen("libnvidia-ml.so.1") finds.

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace longhand::cuda_on_cpu {

struct NvmlState {
  std::atomic<bool> isInstalled{false};  // else it does not start
  std::atomic<std::uint64_t> usedBytes{0};
  std::atomic<std::uint64_t> ownBytes{0};  // 0: this process is not in the list
  std::atomic<int> nStarts{0};             // less those that were ended
};

/// Loads the stub, which then stays until the process ends, but is as if not installed without one
/// of these.
class NvmlStub {
 public:
  explicit NvmlStub(const char* file) {
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void* const entry = library == nullptr ? nullptr : dlsym(library, "longhandNvmlState");
    if (entry == nullptr) throw std::runtime_error(std::string(file) + " is no stub of NVML");
    state_ = reinterpret_cast<NvmlState* (*)()>(entry)();
    state_->isInstalled = true;
    state_->usedBytes = 0;
    state_->ownBytes = 0;
  }
  NvmlStub(const NvmlStub&) = delete;
  NvmlStub& operator=(const NvmlStub&) = delete;
  ~NvmlStub() { state_->isInstalled = false; }

  NvmlState& state() const { return *state_; }

  static constexpr const char* kDriverVersion = "470.57.02";

 private:
  NvmlState* state_ = nullptr;
};

}  // namespace longhand::cuda_on_cpu
