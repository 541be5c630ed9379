#pragma once
// What both products of a few tokens with a weight, NF4 and row by row, have in common: a
// MatvecCall by value for a kernel, and how a block finds its rows.

#include <cstdint>

#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/vector_io.cuh"
#include "kernels/cuda/weights/matmul.h"

namespace longhand::kernels::cuda {

struct MatvecJob {
  MatrixView input;
  Projection projections[kMostProjections];
  const float* normWeight = nullptr;  // [cols], or nullptr
  float normEpsilon = 0.0F;
  int nProjections = 0;
  int firstBlocks[kMostProjections] = {};  // of each projection
  int accumulate = 0;                      // a flag; int, so that no bytes are undefined
  int isAligned = 0;                       // likewise: input and norm weight as float4
  int nBlocks = 0;
};

/// `blockRows` outputs a block; of gated calls, pairs of outputs.
inline MatvecJob matvecJob(const MatvecCall& call, int blockRows) {
  MatvecJob job;
  job.input = call.input;
  job.normWeight = call.normWeight;
  job.normEpsilon = call.normEpsilon;
  job.accumulate = call.accumulate ? 1 : 0;
  job.isAligned = isAlignedTo16(call.input.data) && call.input.stride % 4 == 0 &&
                  isAlignedTo16(call.normWeight);
  for (const Projection& projection : call.projections) {
    job.projections[job.nProjections] = projection;
    job.firstBlocks[job.nProjections++] = job.nBlocks;
    if (!call.isGated || job.nProjections == 1) {
      job.nBlocks += static_cast<int>(ceilDivide<std::int64_t>(projection.weight.rows, blockRows));
    }
  }
  return job;
}

/// True where all projections are of one type, and gated ones a pair.
inline bool areAlike(const MatvecCall& call) {
  if (call.projections.empty() || call.projections.size() > kMostProjections) return false;
  const WeightView& first = call.projections.front().weight;
  for (const Projection& projection : call.projections) {
    const WeightView& weight = projection.weight;
    if (weight.type != first.type || weight.cols != first.cols) return false;
    if (call.isGated && (weight.rows != first.rows || weight.codebook != first.codebook)) {
      return false;
    }
  }
  return !call.isGated || call.projections.size() == 2;
}

/// The projection that block `block` works on.
__device__ __forceinline__ int projectionOf(const MatvecJob& job, int block) {
  int index = 0;
#pragma unroll
  for (int i = 1; i < kMostProjections; ++i) {
    if (i < job.nProjections && block >= job.firstBlocks[i]) index = i;
  }
  return index;
}

}  // namespace longhand::kernels::cuda
