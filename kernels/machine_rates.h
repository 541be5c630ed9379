#pragma once
// What a machine can do at best, measured: the floors of all kernels follow from it.

namespace longhand::kernels {

/// Of all threads of a backend together. 0: the machine (or its path) has no such instruction, or
/// the backend cannot tell.
struct MachineRates {
  double readBytesPerSecond = 0.0;          // from memory, not from a cache
  double floatMultiplyAddsPerSecond = 0.0;  // F32
  double bf16MultiplyAddsPerSecond = 0.0;   // BF16 into F32
  double int8MultiplyAddsPerSecond = 0.0;   // 8-bit codes into 32 bits
  // Of graphics cards, as the driver says, not measured: what issues instructions, and how often.
  int computeMajor = 0;  // of the compute capability
  int nMultiprocessors = 0;
  double clockHz = 0.0;
};

}  // namespace longhand::kernels
