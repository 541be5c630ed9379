// Storing and moving exact tokens, number by number: decode steps store theirs with RoPE instead
// (elementwise.cu).

#include "kernels/cuda/pages/kv_device.cuh"
#include "kernels/cuda/pages/kv_exact.h"
#include "kernels/cuda/warp/portability.cuh"

namespace longhand::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostRowBlocks = 65535;

/// x: columns of a row, y: rows, z: keys or values.
__global__ void __launch_bounds__(kThreads)
    storeExactKernel(MatrixView keys, MatrixView values, ExactSpan span, std::int64_t firstToken,
                     int headDim) {
  const int col = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (col >= keys.cols) return;
  const MatrixView& source = blockIdx.z == 0 ? keys : values;
  std::byte* const destination = blockIdx.z == 0 ? span.keys : span.values;
  const std::int64_t kvHead = col / headDim;
  for (std::int64_t row = blockIdx.y; row < keys.rows; row += gridDim.y) {
    const std::int64_t token = kvHead * span.tokenCapacity + firstToken + row;
    writeExact(span.type, destination, token * headDim + col % headDim,
               source.data[row * source.stride + col]);
  }
}

/// x: numbers of one head in units of T, y: kv heads, z: keys or values. T divides a token's bytes.
template <class T>
__global__ void __launch_bounds__(kThreads)
    copyExactKernel(ExactSpan source, ExactSpan destination, std::int64_t perHead,
                    std::int64_t sourceHeadStride, std::int64_t destinationHeadStride) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= perHead) return;
  const std::int64_t kvHead = blockIdx.y;
  const auto* from = reinterpret_cast<const T*>(blockIdx.z == 0 ? source.keys : source.values);
  auto* to = reinterpret_cast<T*>(blockIdx.z == 0 ? destination.keys : destination.values);
  to[kvHead * destinationHeadStride + i] = from[kvHead * sourceHeadStride + i];
}

bool isAligned(const ExactSpan& span, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(span.keys) % bytes == 0 &&
         reinterpret_cast<std::uintptr_t>(span.values) % bytes == 0;
}

template <class T>
void copyAs(const AttentionShape& shape, const ExactSpan& source, const ExactSpan& destination,
            std::int64_t count, const LaunchQueue& queue) {
  const auto unit = static_cast<std::int64_t>(sizeof(T));
  const auto tokenUnits = static_cast<std::int64_t>(bytesOf(source.type, shape.headDim)) / unit;
  const std::int64_t perHead = count * tokenUnits;
  const dim3 grid(static_cast<unsigned>(ceilDivide<std::int64_t>(perHead, kThreads)),
                  static_cast<unsigned>(shape.nKvHeads), 2);
  launch(copyExactKernel<T>, grid, kThreads, 0, queue, source, destination, perHead,
         source.tokenCapacity * tokenUnits, destination.tokenCapacity * tokenUnits);
}

}  // namespace

void launchStoreExact(const AttentionShape& shape, const MatrixView& keys, const MatrixView& values,
                      const ExactSpan& span, std::int64_t firstToken, const LaunchQueue& queue) {
  if (keys.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(ceilDivide<std::int64_t>(keys.cols, kThreads)),
                  static_cast<unsigned>(keys.rows < kMostRowBlocks ? keys.rows : kMostRowBlocks),
                  2);
  launch(storeExactKernel, grid, kThreads, 0, queue, keys, values, span, firstToken, shape.headDim);
}

void launchCopyExact(const AttentionShape& shape, const ExactSpan& source, std::int64_t sourceFirst,
                     const ExactSpan& destination, std::int64_t destinationFirst,
                     std::int64_t count, const LaunchQueue& queue) {
  if (count == 0) return;
  const ExactSpan from = source.slice(sourceFirst, count, shape.headDim);
  const ExactSpan to = destination.slice(destinationFirst, count, shape.headDim);
  const std::size_t tokenBytes = bytesOf(source.type, shape.headDim);
  if (tokenBytes % 16 == 0 && isAligned(from, 16) && isAligned(to, 16)) {
    copyAs<uint4>(shape, from, to, count, queue);
  } else {
    copyAs<std::uint16_t>(shape, from, to, count, queue);
  }
}

}  // namespace longhand::kernels::cuda
