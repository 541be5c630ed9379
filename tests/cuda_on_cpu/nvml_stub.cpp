#include "tests/cuda_on_cpu/nvml_stub.h"

#include <unistd.h>

#include <cstring>

using longhand::cuda_on_cpu::NvmlState;
using longhand::cuda_on_cpu::NvmlStub;

namespace {

constexpr int kSuccess = 0;
constexpr int kNotLoaded = 9;        // NVML_ERROR_DRIVER_NOT_LOADED
constexpr int kTooSmall = 7;         // NVML_ERROR_INSUFFICIENT_SIZE
constexpr unsigned kProcesses = 70;  // more than a first guess

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct Process {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId;
  unsigned computeInstanceId;
};

NvmlState& state() {
  static NvmlState only;
  return only;
}

}  // namespace

#define LONGHAND_EXPORT __attribute__((visibility("default")))

extern "C" {

LONGHAND_EXPORT NvmlState* longhandNvmlState() { return &state(); }

LONGHAND_EXPORT int nvmlInit_v2() {
  if (!state().isInstalled) return kNotLoaded;
  ++state().nStarts;
  return kSuccess;
}
LONGHAND_EXPORT int nvmlShutdown() {
  --state().nStarts;
  return kSuccess;
}
LONGHAND_EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, NvmlStub::kDriverVersion, size);
  return kSuccess;
}
LONGHAND_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  *device = &state();
  return std::strcmp(id, "0000:01:00.0") == 0 ? kSuccess : kNotLoaded;
}
LONGHAND_EXPORT int nvmlDeviceGetMemoryInfo(void* /*device*/, Memory* memory) {
  *memory = {0, 0, state().usedBytes};
  return kSuccess;
}
LONGHAND_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void* /*device*/, unsigned* count,
                                                            Process* list) {
  const unsigned room = *count;
  *count = kProcesses;
  if (room < kProcesses) return kTooSmall;
  for (unsigned i = 0; i < kProcesses; ++i) list[i] = {1000000 + i, 1, 0, 0};
  if (state().ownBytes != 0) {
    list[kProcesses - 1] = {static_cast<unsigned>(getpid()), state().ownBytes, 0, 0};
  }
  return kSuccess;
}

}  // extern "C"
