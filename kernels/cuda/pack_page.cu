#include "kernels/cuda/group_solver.h"
#include "kernels/cuda/kv_device.h"
#include "kernels/cuda/pack_page.h"
#include "kernels/cuda/portability.h"

namespace longhand::kernels::cuda {
namespace {

constexpr int kThreads = 128;

/// What the kernels of one page share, by value.
struct PackJob {
  SpanList source;
  PageFormat format;
  QuantSolver solver;
  PageParts parts;
  std::byte* page;
  int nKvHeads;
  int headDim;
};

/// The token's exact number, rounded to F16 and clamped.
__device__ __forceinline__ float sourceNumber(const PackJob& job, bool isKey, int kvHead, int token,
                                              int channel) {
  for (int i = 0; i < job.source.nSpans; ++i) {
    const ExactSpan& span = job.source.spans[i];
    if (token < span.nTokens) {
      const std::int64_t row = kvHead * span.tokenCapacity + token;
      return readExact(span.type, isKey ? span.keys : span.values, row * job.headDim + channel);
    }
    token -= static_cast<int>(span.nTokens);
  }
  return 0.0F;
}

__device__ __forceinline__ float roundForPacking(float value) {
  constexpr float kLargestHalf = 65504.0F;
  const float rounded = __half2float(__float2half_rn(value));
  return rounded > kLargestHalf ? kLargestHalf
                                : (rounded < -kLargestHalf ? -kLargestHalf : rounded);
}

/// The values of one group, read anew each time they are asked for.
struct KeyGroup {
  const PackJob& job;
  int kvHead;
  int channel;
  __device__ int size() const { return job.format.groupSize; }
  __device__ float operator[](int i) const {
    return roundForPacking(sourceNumber(job, true, kvHead, i, channel));
  }
};
struct ValueGroup {
  const PackJob& job;
  int kvHead;
  int token;
  int firstChannel;
  __device__ int size() const { return min(job.parts.valueGroupSize, job.headDim - firstChannel); }
  __device__ float operator[](int i) const {
    return roundForPacking(sourceNumber(job, false, kvHead, token, firstChannel + i));
  }
};

__device__ __forceinline__ void writeScale(const PackJob& job, std::uint32_t scales,
                                           std::uint32_t mins, int index, GroupScale group) {
  reinterpret_cast<__half*>(job.page + scales)[index] = __float2half_rn(group.scale);
  if (job.format.scheme == QuantScheme::kAsymmetric) {
    reinterpret_cast<__half*>(job.page + mins)[index] = __float2half_rn(group.min);
  }
}

/// One thread a group of keys: (kv head, channel).
__global__ void __launch_bounds__(kThreads) keyScalesKernel(PackJob job) {
  const int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (index >= job.nKvHeads * job.headDim) return;
  const KeyGroup values{job, index / job.headDim, index % job.headDim};
  const GroupScale group = solveGroup(values, job.format.keyNbits, job.format.scheme, job.solver);
  writeScale(job, job.parts.keyScales, job.parts.keyMins, index, group);
}

/// One thread a group of values: (kv head, value group, token).
__global__ void __launch_bounds__(kThreads) valueScalesKernel(PackJob job) {
  const int groupSize = job.format.groupSize;
  const int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (index >= job.nKvHeads * job.parts.nValueGroups * groupSize) return;
  const int row = index / groupSize;  // kv head and value group
  const ValueGroup values{job, row / job.parts.nValueGroups, index % groupSize,
                          row % job.parts.nValueGroups * job.parts.valueGroupSize};
  const GroupScale group = solveGroup(values, job.format.valueNbits, job.format.scheme, job.solver);
  writeScale(job, job.parts.valueScales, job.parts.valueMins, index, group);
}

/// One thread a word of key codes: (kv head, word of channels, token).
__global__ void __launch_bounds__(kThreads) keyCodesKernel(PackJob job) {
  const int groupSize = job.format.groupSize;
  const int nbits = job.format.keyNbits;
  const int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (index >= job.nKvHeads * job.parts.keyWords * groupSize) return;
  const int token = index % groupSize;
  const int kvHead = index / groupSize / job.parts.keyWords;
  const int firstChannel = index / groupSize % job.parts.keyWords * (32 / nbits);
  const bool hasMins = job.format.scheme == QuantScheme::kAsymmetric;
  std::uint32_t word = 0;
  for (int i = 0; i < 32 / nbits && firstChannel + i < job.headDim; ++i) {
    const int channel = firstChannel + i;
    const float x = roundForPacking(sourceNumber(job, true, kvHead, token, channel));
    const GroupScale group = readScale(job.page, job.parts.keyScales, job.parts.keyMins, hasMins,
                                       kvHead * job.headDim + channel);
    word |= static_cast<std::uint32_t>(codeOf(x, nbits, job.format.scheme, group))
            << codeShift(nbits, i);
  }
  reinterpret_cast<std::uint32_t*>(job.page + job.parts.keyCodes)[index] = word;
}

/// One thread a word of value codes: (kv head, word of tokens, channel).
__global__ void __launch_bounds__(kThreads) valueCodesKernel(PackJob job) {
  const int groupSize = job.format.groupSize;
  const int nbits = job.format.valueNbits;
  const int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (index >= job.nKvHeads * job.parts.valueWords * job.headDim) return;
  const int channel = index % job.headDim;
  const int kvHead = index / job.headDim / job.parts.valueWords;
  const int firstToken = index / job.headDim % job.parts.valueWords * (32 / nbits);
  const int scaleRow = kvHead * job.parts.nValueGroups + channel / job.parts.valueGroupSize;
  const bool hasMins = job.format.scheme == QuantScheme::kAsymmetric;
  std::uint32_t word = 0;
  for (int i = 0; i < 32 / nbits; ++i) {
    const int token = firstToken + i;
    const float x = roundForPacking(sourceNumber(job, false, kvHead, token, channel));
    const GroupScale group = readScale(job.page, job.parts.valueScales, job.parts.valueMins,
                                       hasMins, scaleRow * groupSize + token);
    word |= static_cast<std::uint32_t>(codeOf(x, nbits, job.format.scheme, group))
            << codeShift(nbits, i);
  }
  reinterpret_cast<std::uint32_t*>(job.page + job.parts.valueCodes)[index] = word;
}

/// One thread a number of a part with 16 bits.
__global__ void __launch_bounds__(kThreads) exactPartKernel(PackJob job, bool isKey) {
  const int groupSize = job.format.groupSize;
  const int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (index >= job.nKvHeads * groupSize * job.headDim) return;
  const int token = index / job.headDim % groupSize;
  const float x =
      sourceNumber(job, isKey, index / job.headDim / groupSize, token, index % job.headDim);
  writeExact(job.format.exactType, job.page + (isKey ? job.parts.keyCodes : job.parts.valueCodes),
             index, x);
}

/// x: numbers of one head, y: kv heads, z: keys or values.
__global__ void __launch_bounds__(kThreads)
    unpackKernel(PageRef page, PageParts parts, ExactSpan destination, int headDim) {
  constexpr float kLargestHalf = 65504.0F;
  const int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (index >= page.nTokens * headDim) return;
  const int kvHead = static_cast<int>(blockIdx.y);
  const int token = index / headDim;
  const int channel = index % headDim;
  const bool isKey = blockIdx.z == 0;
  float x = isKey ? readPageKey(page, parts, headDim, kvHead, token, channel)
                  : readPageValue(page, parts, headDim, kvHead, token, channel);
  if (destination.type == DataType::kF16) {
    x = x > kLargestHalf ? kLargestHalf : (x < -kLargestHalf ? -kLargestHalf : x);
  }
  writeExact(destination.type, isKey ? destination.keys : destination.values,
             (kvHead * destination.tokenCapacity + token) * headDim + channel, x);
}

unsigned blocksFor(std::int64_t threads) {
  return static_cast<unsigned>(ceilDivide<std::int64_t>(threads, kThreads));
}

}  // namespace

void launchPackPage(const AttentionShape& shape, const SpanList& source, const PageFormat& format,
                    QuantSolver solver, std::byte* page, cudaStream_t stream) {
  const int nKvHeads = static_cast<int>(shape.nKvHeads);
  const int headDim = static_cast<int>(shape.headDim);
  const PackJob job{source, format,   solver, pageParts(format, nKvHeads, headDim),
                    page,   nKvHeads, headDim};
  // Padding too, so that equal tokens give equal pages, byte for byte (session files, checksums).
  cudaMemsetAsync(page, 0, job.parts.totalBytes, stream);
  const std::int64_t numbers = shape.nKvHeads * format.groupSize * shape.headDim;
  if (format.keyNbits == 16) {
    launch(exactPartKernel, blocksFor(numbers), kThreads, 0, stream, job, true);
  } else {
    launch(keyScalesKernel, blocksFor(shape.nKvHeads * shape.headDim), kThreads, 0, stream, job);
    launch(keyCodesKernel, blocksFor(shape.nKvHeads * job.parts.keyWords * format.groupSize),
           kThreads, 0, stream, job);
  }
  if (format.valueNbits == 16) {
    launch(exactPartKernel, blocksFor(numbers), kThreads, 0, stream, job, false);
  } else {
    launch(valueScalesKernel, blocksFor(shape.nKvHeads * job.parts.nValueGroups * format.groupSize),
           kThreads, 0, stream, job);
    launch(valueCodesKernel, blocksFor(shape.nKvHeads * job.parts.valueWords * shape.headDim),
           kThreads, 0, stream, job);
  }
}

void launchUnpackPage(const AttentionShape& shape, const PageRef& page,
                      const ExactSpan& destination, cudaStream_t stream) {
  if (page.nTokens == 0) return;
  const int headDim = static_cast<int>(shape.headDim);
  const PageParts parts = pageParts(page.format, static_cast<int>(shape.nKvHeads), headDim);
  const dim3 grid(blocksFor(page.nTokens * shape.headDim), static_cast<unsigned>(shape.nKvHeads),
                  2);
  launch(unpackKernel, grid, kThreads, 0, stream, page, parts, destination, headDim);
}

}  // namespace longhand::kernels::cuda
