#include "kernels/cuda/device/nvml.h"

#include <unistd.h>

#include <array>
#include <vector>

#include "kernels/cuda/device/shared_library.h"

namespace longhand::kernels::cuda {
namespace {

// From nvml.h, which only the toolkit has; part of NVML's ABI since driver 510.
constexpr int kSuccess = 0;
constexpr int kTooSmall = 7;  // NVML_ERROR_INSUFFICIENT_SIZE
constexpr const char* kFile = "libnvidia-ml.so.1";
constexpr unsigned long long kNotAvailable = ~0ULL;

struct NvmlMemory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

struct NvmlProcess {
  unsigned pid = 0;
  unsigned long long usedGpuMemory = 0;
  unsigned gpuInstanceId = 0;
  unsigned computeInstanceId = 0;
};

}  // namespace

struct Nvml::Functions {
  SharedLibrary library;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driverVersion)(char* text, unsigned size) = nullptr;
  int (*handleByPciBusId)(const char* id, void** device) = nullptr;
  int (*memoryInfo)(void* device, NvmlMemory* memory) = nullptr;
  int (*processes)(void* device, unsigned* count, NvmlProcess* list) = nullptr;

  bool open() {
    if (!library.open(kFile)) return false;
    library.find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");  // does without it
    return library.find(init, "nvmlInit_v2") && library.find(shutdown, "nvmlShutdown") &&
           library.find(driverVersion, "nvmlSystemGetDriverVersion") &&
           library.find(handleByPciBusId, "nvmlDeviceGetHandleByPciBusId_v2") &&
           library.find(memoryInfo, "nvmlDeviceGetMemoryInfo");
  }

  /// Bytes of this process on a device; 0 when it is not among those that are listed.
  std::uint64_t ownBytes(void* device) const {
    if (processes == nullptr) return 0;
    std::vector<NvmlProcess> list(64);
    auto count = static_cast<unsigned>(list.size());
    int result = processes(device, &count, list.data());
    if (result == kTooSmall) {
      list.resize(count + 16);  // some may have come in between
      count = static_cast<unsigned>(list.size());
      result = processes(device, &count, list.data());
    }
    if (result != kSuccess) return 0;
    const auto own = static_cast<unsigned>(getpid());
    for (unsigned i = 0; i < count; ++i) {
      const NvmlProcess& process = list[i];
      if (process.pid == own && process.usedGpuMemory != kNotAvailable) {
        return process.usedGpuMemory;
      }
    }
    return 0;
  }
};

Nvml::Nvml() : functions_(std::make_unique<Functions>()) {}

Nvml::~Nvml() {
  if (isStarted_) functions_->shutdown();
}

std::unique_ptr<Nvml> Nvml::load() {
  std::unique_ptr<Nvml> nvml(new Nvml);
  if (!nvml->functions_->open() || nvml->functions_->init() != kSuccess) return nullptr;
  nvml->isStarted_ = true;
  return nvml;
}

std::string Nvml::driverVersion() const {
  std::array<char, 96> text{};
  const auto size = static_cast<unsigned>(text.size() - 1);
  return functions_->driverVersion(text.data(), size) == kSuccess ? text.data() : "";
}

std::optional<Nvml::DeviceUse> Nvml::deviceUse(const std::string& pciBusId) const {
  void* device = nullptr;
  NvmlMemory memory;
  if (functions_->handleByPciBusId(pciBusId.c_str(), &device) != kSuccess ||
      functions_->memoryInfo(device, &memory) != kSuccess) {
    return std::nullopt;
  }
  return DeviceUse{memory.used, functions_->ownBytes(device)};
}

}  // namespace longhand::kernels::cuda
