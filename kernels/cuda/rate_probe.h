#pragma once
// Kernels that do one thing as fast as a device can, for device_rates.h.

#include <cstdint>

#include "kernels/cuda/warp/launch_queue.h"

namespace longhand::kernels::cuda {

/// Halves from -1 to 1 without a pattern: zeros would let the device clock higher.
void launchFillHalves(void* numbers,  // half [count], on the device
                      std::int64_t count, int nMultiprocessors, const LaunchQueue& queue);
/// Reads `bytes` (a multiple of 16); may write to `sink`, one number.
void launchRead(const void* memory, std::int64_t bytes, void* sink, int nMultiprocessors,
                const LaunchQueue& queue);
/// mma.m16n8k16 in registers; may write to `sink`, one number.
void launchMultiply(int nRounds, void* sink, int nMultiprocessors, const LaunchQueue& queue);
/// Multiply-adds of each round of it.
double multiplyAddsOfRound(int nMultiprocessors);

}  // namespace longhand::kernels::cuda
