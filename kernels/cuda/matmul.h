#pragma once
// Matrix products with weights of any type and any number of tokens; shapes as in
// kernels/backend.h.

#include <cuda_runtime_api.h>

#include "kernels/types.h"

namespace longhand::kernels::cuda {

/// output = input * weight^T (+ output with `accumulate`): any shape, type and alignment. The path
/// of last resort, also the slow twin of the others on the device.
void launchPlainMatmul(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                       bool accumulate, cudaStream_t stream);

}  // namespace longhand::kernels::cuda
