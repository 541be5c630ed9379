#pragma once
// What the parts of the stand-in for libcudart share. Private to them.

#include <cuda_runtime_api.h>

#include <atomic>

namespace longhand::cuda_on_cpu::runtime {

/// Keeps an error for cudaGetLastError() of this thread, and returns it.
cudaError_t report(cudaError_t error);
/// What every call begins with: the error of a device that is broken.
cudaError_t requireWorkingDevice();
/// Counts one thing down; true when it reaches its end.
bool countsDown(std::atomic<int>& number);

}  // namespace longhand::cuda_on_cpu::runtime
