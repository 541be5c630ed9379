#include "kernels/cpu/weights/int8_matvec.h"

#include <algorithm>
#include <cassert>

#include "kernels/cpu/weights/byte_codebook.h"
#include "kernels/rounding.h"

namespace longhand::kernels {
namespace {

// Bytes of codes that a thread takes at a time: 1 to 2 microseconds, so that threads end together.
constexpr std::int64_t kTaskBytes = 128 * 1024;

std::int64_t rowGrain(const WeightView& weight) {
  const auto rowBytes = static_cast<std::int64_t>(bytesOf(weight.type, weight.cols));
  const std::int64_t rows = std::max<std::int64_t>(1, kTaskBytes / rowBytes);
  return ceilDivide(rows, kInt8MatvecRows) * kInt8MatvecRows;
}

}  // namespace

void* Int8Matvec::Scratch::reserve(std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(ceilDivide(bytes, std::ssize(Line{}.bytes)));
  if (lines_.size() < count) lines_.resize(count);
  return lines_.data();
}

Int8Matvec::Int8Matvec(const Int8MatvecKernels& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), rowScratch_(static_cast<std::size_t>(pool.threads())) {}

bool Int8Matvec::accepts(const WeightView& weight) {
  static_assert(kNf4BlockSize == kInt8BlockSize);
  return isQuantized(weight.type) && weight.cols % kNf4BlockSize == 0;
}

bool Int8Matvec::areAlike(const WeightView& a, const WeightView& b) {
  return a.type == b.type && a.cols == b.cols &&
         (a.type != DataType::kNf4 || std::equal(a.codebook, a.codebook + 16, b.codebook));
}

void Int8Matvec::multiply(const MatrixView& input, std::span<const Projection> projections,
                          bool accumulate) {
  assert(input.rows >= 1 && input.rows <= kMaxInt8MatvecTokens && !projections.empty());
  const std::int64_t nBlocks = input.cols / kNf4BlockSize;
  const WeightView& like = projections.front().weight;
  const bool isNf4 = like.type == DataType::kNf4;
  const Int8MatvecForm& form = isNf4 ? kernels_.nf4 : kernels_.int8;
  if (isNf4) prepareCodebook(like.codebook);
  const ByteCodebook codebook = isNf4 ? byteCodebook_ : ByteCodebook{};
  const Int8MatvecInput bytes = quantize(input, form);
  const std::int64_t scratchBytes =
      int8MatvecScratch(nBlocks, input.rows) * std::int64_t{sizeof(float)};
  // All weights' rows as one loop, so that threads wait for each other once.
  std::int64_t nRows = 0;
  for (const Projection& projection : projections) {
    assert(accepts(projection.weight) && areAlike(projection.weight, like));
    nRows += projection.weight.rows;
  }
  const auto multiplyRows = [&](int thread, std::int64_t first, std::int64_t last) {
    void* const scratch = rowScratch_[static_cast<std::size_t>(thread)].reserve(scratchBytes);
    std::int64_t start = 0;  // row 0 of the projection in the loop
    for (const Projection& projection : projections) {
      const std::int64_t end = start + projection.weight.rows;
      if (first < end && last > start) {
        const Int8MatvecJob job{.weight = projection.weight,
                                .codebook = codebook,
                                .input = bytes,
                                .output = projection.output.data,
                                .outputStride = projection.output.stride,
                                .accumulate = accumulate};
        form.multiply(job, std::max(first, start) - start, std::min(last, end) - start,
                      static_cast<float*>(scratch));
      }
      start = end;
    }
  };
  pool_.parallelFor(nRows, rowGrain(like), multiplyRows);
}

void Int8Matvec::prepareCodebook(const float* codebook) {
  if (hasCodebook_ && std::equal(codebook_.begin(), codebook_.end(), codebook)) return;
  std::copy_n(codebook, codebook_.size(), codebook_.begin());
  byteCodebook_ = roundToBytes(codebook_);
  hasCodebook_ = true;
}

Int8MatvecInput Int8Matvec::quantize(const MatrixView& input, const Int8MatvecForm& form) {
  const std::int64_t nBlocks = input.cols / kNf4BlockSize;
  const std::int64_t stride = int8ScaleStride(nBlocks);
  const std::int64_t paddedBlocks = ceilDivide(nBlocks, form.chunkBlocks) * form.chunkBlocks;
  const std::int64_t bytesOfNumber = kernels_.digits[input.rows - 1].count;
  const std::int64_t nScales = input.rows * stride;
  Int8MatvecInput bytes;
  bytes.bytes = static_cast<std::int8_t*>(
      inputBytes_.reserve(input.rows * bytesOfNumber * paddedBlocks * kNf4BlockSize));
  bytes.scales =
      static_cast<float*>(inputScales_.reserve(2 * nScales * std::int64_t{sizeof(float)}));
  bytes.sums = bytes.scales + nScales;
  bytes.scaleStride = stride;
  bytes.nTokens = input.rows;
  for (std::int64_t token = 0; token < input.rows; ++token) {
    form.quantize(input.data + token * input.stride, nBlocks, token, bytes);
  }
  return bytes;
}

}  // namespace longhand::kernels
