// A kernel with shared memory and a barrier, whose result the host knows (device_check.cpp).

#include "kernels/cuda/device/device_trial.h"
#include "kernels/cuda/warp/portability.cuh"

namespace longhand::kernels::cuda {
namespace {

__global__ void trialKernel(int* numbers) {
  SHARED(turned, int[kTrialThreads]);
  const int thread = static_cast<int>(threadIdx.x);
  int* const own = numbers + static_cast<int>(blockIdx.x) * kTrialThreads;
  turned[kTrialThreads - 1 - thread] = own[thread];
  __syncthreads();
  own[thread] = 3 * turned[thread] + thread;
}

}  // namespace

void launchTrial(int* numbers, cudaStream_t stream) {
  launch(trialKernel, dim3(kTrialNumbers / kTrialThreads), dim3(kTrialThreads), 0, stream, numbers);
}

}  // namespace longhand::kernels::cuda
