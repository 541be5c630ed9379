#pragma once
// NVIDIA's management library (NVML), loaded at run time: it comes with the driver and knows what
// CUDA does not say, the driver's version and how much device memory each process holds.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace longhand::kernels::cuda {

/// Any thread.
class Nvml {
 public:
  /// nullptr where it is not installed or does not start, which is no error.
  static std::unique_ptr<Nvml> load();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  /// "580.65.06"; empty when it does not say.
  std::string driverVersion() const;

  struct DeviceUse {
    std::uint64_t usedBytes = 0;  // by all, with what the driver keeps for itself
    std::uint64_t ownBytes = 0;   // by this process, with its CUDA context; 0: not known
  };
  /// `pciBusId` as cudaDeviceGetPCIBusId() says it. Nothing when the device does not tell. The
  /// share of a process is not known under WSL, nor in a container with process ids of its own.
  std::optional<DeviceUse> deviceUse(const std::string& pciBusId) const;

 private:
  struct Functions;
  Nvml();

  std::unique_ptr<Functions> functions_;
  bool isStarted_ = false;
};

}  // namespace longhand::kernels::cuda
