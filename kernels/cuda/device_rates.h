#pragma once
// What a device does at best just now, measured: the floors that kernels are compared with.

#include "kernels/cuda/warp/launch_queue.h"
#include "kernels/machine_rates.h"

namespace longhand::kernels::cuda {

class Cublas;

/// Reading is the best of some passes over the matrices of a square product of halves; the
/// product's rate (in bf16MultiplyAddsPerSecond: devices multiply both alike) is the best of that
/// product, by cuBLAS where there is one, and of mma instructions that have nothing else to do.
/// `operationsPerSecond` (about, as Backend's) chooses sizes of about 10 ms: 540 MB on an H200, for
/// some 100 ms. Zeros where the device has no room. Faults: cudaGetLastError().
MachineRates measureDeviceRates(Cublas* cublas,  // or nullptr
                                double operationsPerSecond, int nMultiprocessors,
                                const LaunchQueue& queue);

}  // namespace longhand::kernels::cuda
