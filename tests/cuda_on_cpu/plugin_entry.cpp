// What the emulated plug-in has beside the real one's entry: its device.
#include "tests/cuda_on_cpu/device_memory.h"

extern "C" __attribute__((visibility("default"))) longhand::cuda_on_cpu::EmulatedDevice*
longhandEmulatedDevice() {
  return &longhand::cuda_on_cpu::emulatedDevice();
}
