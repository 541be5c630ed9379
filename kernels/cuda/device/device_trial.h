#pragma once
// A first kernel, before anything is trusted to a device.

#include <cuda_runtime_api.h>

namespace longhand::kernels::cuda {

inline constexpr int kTrialThreads = 128;
inline constexpr int kTrialNumbers = 4 * kTrialThreads;

/// Each run of kTrialThreads numbers is turned round, by way of shared memory, then
/// numbers[i] = 3 * numbers[i] + i % kTrialThreads.
void launchTrial(int* numbers,  // [kTrialNumbers], on the device
                 cudaStream_t stream);

}  // namespace longhand::kernels::cuda
