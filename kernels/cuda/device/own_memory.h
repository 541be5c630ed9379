#pragma once
// What the backend takes of a device's memory for itself: one set of figures for the backend, and
// for plans that are made where there is no device. No header of CUDA is needed.

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace longhand::kernels::cuda {

/// Token ids that embed() sends at once.
inline constexpr std::int64_t kIdsAtOnce = 4096;
/// Of topLogits().
inline constexpr int kMostTopLogits = 512;
inline constexpr int kMostTopBlocks = 64;
/// Of decode attention: blocks on each multiprocessor, floats that each hands over (the parts of 8
/// queries of up to 128 channels), and kv heads times portions of queries.
inline constexpr int kDecodeBlocksOnMultiprocessor = 4;
inline constexpr std::int64_t kDecodePartialFloats = std::int64_t{8} * (128 + 2);
inline constexpr int kMostDecodeCounters = 65536;

inline constexpr std::size_t kIdsBytes = kIdsAtOnce * sizeof(std::int32_t);
inline constexpr std::size_t kTopBytes = kMostTopLogits * sizeof(ScoredToken);
inline constexpr std::size_t kTopPartialBytes =
    std::size_t{kMostTopBlocks} * kMostTopLogits * sizeof(std::uint64_t);
inline constexpr std::size_t kTopWorkspaceBytes = kTopPartialBytes + kTopBytes + sizeof(unsigned);
inline constexpr std::size_t kDecodeCounterBytes = kMostDecodeCounters * sizeof(unsigned);

/// Of tiles of a product. 48 MiB hold 4096 rows of a weight with 4096 columns and 1536 tokens.
inline constexpr std::size_t kMatmulScratchBytes = std::size_t{48} << 20U;
/// Of cuBLAS: what its documentation advises for Hopper is 32 MiB, for others 4.
inline constexpr std::size_t kCublasBytes = std::size_t{4} << 20U;
inline constexpr std::size_t kHopperCublasBytes = std::size_t{32} << 20U;

/// Left free for what the driver takes later: a kernel's code at its first launch (ours and
/// cuBLAS's are loaded lazily), a step's graph. Without it, a first launch could find no room.
inline constexpr std::size_t kDriverBytes = std::size_t{128} << 20U;

/// All of the backend's own; `matmulBytes` are those of the tiles, and of cuBLAS where there is
/// one.
constexpr std::uint64_t ownDeviceBytes(int nMultiprocessors, std::size_t matmulBytes) {
  const std::int64_t nFloats =
      std::int64_t{kDecodeBlocksOnMultiprocessor} * nMultiprocessors * kDecodePartialFloats;
  return kIdsBytes + sizeof(std::int32_t) + kTopWorkspaceBytes + kDecodeCounterBytes + matmulBytes +
         static_cast<std::uint64_t>(nFloats) * sizeof(float);
}

/// The same of a device that is not here, with cuBLAS.
constexpr std::uint64_t plannedDeviceBytes(int nMultiprocessors, int computeMajor) {
  const std::size_t cublasBytes = computeMajor >= 9 ? kHopperCublasBytes : kCublasBytes;
  return ownDeviceBytes(nMultiprocessors, kMatmulScratchBytes + cublasBytes);
}

}  // namespace longhand::kernels::cuda
