#include "kernels/cpu/weights/matmul.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/nf4.h"
#include "kernels/rounding.h"

namespace longhand::kernels {
namespace {

// A panel of 64 rows and 1024 columns is 256 KiB of floats: it stays in a core's L2 while all
// tokens pass by, and 6 tokens' 1024 inputs (24 KiB) stay in L1.
constexpr std::int64_t kPanelRows = 64;
constexpr std::int64_t kPanelCols = 1024;
static_assert(kPanelCols % kNf4BlockSize == 0 && kPanelCols % kTilePadding == 0);

// Plain weights of this many tokens are still read as stored, for 4 tokens at a time: expanding
// them costs as much as multiplying some 40 tokens (weights from memory).
constexpr std::int64_t kMaxPlainTokens = 16;

// Stored bytes of weights that a thread takes at a time: some 3 microseconds of work.
constexpr std::int64_t kMatvecTaskBytes = 32 * 1024;

bool isWholeBlocks(const WeightView& weight) {
  static_assert(kNf4BlockSize == kInt8BlockSize);
  return isQuantized(weight.type) && weight.cols % kNf4BlockSize == 0;
}

template <typename Stored>
const Stored* numbersOf(const WeightView& weight) {
  return static_cast<const Stored*>(static_cast<const void*>(weight.data));
}

float absmaxAt(const WeightView& weight, std::int64_t block) {
  if (weight.absmax != nullptr) return weight.absmax[block];
  return weight.nestedCodebook[weight.absmaxCodes[block]] *
             weight.nestedAbsmax[block / kNf4NestedBlockSize] +
         weight.nestedOffset;
}

// Numbers [first, first + count) of the flattened matrix, which may start and end inside a block.
void expandUnaligned(const WeightView& weight, std::int64_t first, std::int64_t count,
                     float* output) {
  for (std::int64_t i = first; i < first + count;) {
    const std::int64_t block = i / kNf4BlockSize;
    const std::int64_t end = std::min(first + count, (block + 1) * kNf4BlockSize);
    if (weight.type == DataType::kInt8) {
      const auto* const codes = numbersOf<std::int8_t>(weight);
      const float scale = weight.scales[block];
      for (; i < end; ++i) output[i - first] = static_cast<float>(codes[i]) * scale;
      continue;
    }
    const auto* const codes = numbersOf<std::uint8_t>(weight);
    const float absmax = absmaxAt(weight, block);
    for (; i < end; ++i) {  // the high nibble comes first
      const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
      output[i - first] = weight.codebook[code] * absmax;
    }
  }
}

// Rows to hand out at a time: groups of 4, as the kernels take them.
std::int64_t matvecGrain(const WeightView& weight) {
  const auto rowBytes = static_cast<std::int64_t>(bytesOf(weight.type, weight.cols));
  return roundUp(std::max<std::int64_t>(1, kMatvecTaskBytes / std::max<std::int64_t>(1, rowBytes)),
                 kTileRowGroup);
}

MatvecJob matvecJob(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                    bool accumulate) {
  return {.weight = weight,
          .input = input.data,
          .inputStride = input.stride,
          .nTokens = static_cast<int>(input.rows),
          .output = output.data,
          .outputStride = output.stride,
          .accumulate = accumulate};
}

}  // namespace

Matmul::Matmul(const CpuKernels& kernels, ThreadPool& pool, std::int64_t longestFloatRow)
    : kernels_(kernels),
      pool_(pool),
      longestFloatRow_(longestFloatRow),
      scratch_(static_cast<std::size_t>(pool.threads())) {
  if (kernels.int8 != nullptr) int8_.emplace(*kernels.int8, pool);
  if (kernels.int8Matvec != nullptr) int8Matvec_.emplace(*kernels.int8Matvec, pool);
}

bool Matmul::isForInt8Matvec(const MatrixView& input, const WeightView& weight) const {
  return int8Matvec_.has_value() && input.rows <= kMaxInt8MatvecTokens &&
         weight.cols > longestFloatRow_ && Int8Matvec::accepts(weight);
}

bool Matmul::isForInt8Matmul(const MatrixView& input, const WeightView& weight) const {
  return int8_.has_value() && input.rows > kMaxMatvecTokens && weight.cols > longestFloatRow_ &&
         Int8Matmul::accepts(weight);
}

void Matmul::multiply(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                      bool accumulate) {
  assert(input.rows == output.rows && input.cols == weight.cols && output.cols == weight.rows);
  if (input.rows == 0) return;
  const Projection projection{weight, output};
  // NF4 rows that start inside a block are only expanded, as is int8.
  const bool canReadStored = weight.type == DataType::kNf4 && isWholeBlocks(weight);
  if (isForInt8Matvec(input, weight)) {
    int8Matvec_->multiply(input, std::span(&projection, 1), accumulate);
  } else if (isForInt8Matmul(input, weight)) {
    int8_->multiply(input, std::span(&projection, 1), accumulate);
  } else if (!isQuantized(weight.type) && input.rows <= kMaxPlainTokens) {
    multiplyFew(input, weight, output, accumulate);
  } else if (input.rows > kMaxMatvecTokens || !canReadStored) {
    multiplyMany(input, weight, output, accumulate);
  } else {
    multiplyNf4Few(input, weight, output, accumulate);
  }
}

void Matmul::multiplyEach(const MatrixView& input, std::span<const Projection> projections) {
  if (input.rows == 0 || projections.empty()) return;
  const bool isOneMatvec = std::ranges::all_of(projections, [&](const Projection& p) {
    return isForInt8Matvec(input, p.weight) &&
           Int8Matvec::areAlike(p.weight, projections.front().weight);
  });
  if (isOneMatvec) return int8Matvec_->multiply(input, projections, false);
  // The input is rounded once for all.
  const bool isOneMatmul = std::ranges::all_of(
      projections, [&](const Projection& p) { return isForInt8Matmul(input, p.weight); });
  if (isOneMatmul && !isForInt8Matvec(input, projections.front().weight)) {
    return int8_->multiply(input, projections, false);
  }
  for (const Projection& p : projections) multiply(input, p.weight, p.output, false);
}

void Matmul::multiplyFew(const MatrixView& input, const WeightView& weight,
                         const MatrixView& output, bool accumulate) {
  const auto matvec = weight.type == DataType::kF32   ? kernels_.matvecF32
                      : weight.type == DataType::kF16 ? kernels_.matvecF16
                                                      : kernels_.matvecBf16;
  const auto multiplyRows = [&](int, std::int64_t firstRow, std::int64_t lastRow) {
    for (std::int64_t token = 0; token < input.rows; token += kMaxMatvecTokens) {
      const std::int64_t count = std::min<std::int64_t>(kMaxMatvecTokens, input.rows - token);
      const MatvecJob job =
          matvecJob(input.slice(token, count), weight, output.slice(token, count), accumulate);
      matvec(job, firstRow, lastRow);  // from the second time on, the rows are in L2
    }
  };
  pool_.parallelFor(weight.rows, matvecGrain(weight), multiplyRows);
}

void Matmul::multiplyNf4Few(const MatrixView& input, const WeightView& weight,
                            const MatrixView& output, bool accumulate) {
  MatvecJob job = matvecJob(input, weight, output, accumulate);
  job.inputStride = roundUp(weight.cols, 8 * kernels_.lanes);
  arrangedInput_.resize(static_cast<std::size_t>(input.rows * job.inputStride));
  for (std::int64_t row = 0; row < input.rows; ++row) {
    kernels_.arrangeNf4Input(input.data + row * input.stride, weight.cols,
                             arrangedInput_.data() + row * job.inputStride);
  }
  job.input = arrangedInput_.data();
  const std::int64_t scratchCount = kMatvecNf4Rows * (weight.cols / kNf4BlockSize + 1);
  pool_.parallelFor(weight.rows, matvecGrain(weight),
                    [&](int thread, std::int64_t first, std::int64_t last) {
                      kernels_.matvecNf4(job, first, last, scratch(thread, scratchCount));
                    });
}

void Matmul::multiplyMany(const MatrixView& input, const WeightView& weight,
                          const MatrixView& output, bool accumulate) {
  // Panels of fewer rows where there would not be a few for each thread.
  const std::int64_t rowsForBalance = roundUp(weight.rows / (4 * pool_.threads()), kTileRowGroup);
  const std::int64_t panelRows = std::clamp(rowsForBalance, kTileRowGroup, kPanelRows);
  const std::int64_t panelStride = roundUp(std::min(weight.cols, kPanelCols), kTilePadding);
  const auto multiplyPanel = [&](int thread, std::int64_t firstRow, std::int64_t lastRow) {
    float* const panel = scratch(thread, panelRows * panelStride);
    const std::int64_t nRows = lastRow - firstRow;
    for (std::int64_t firstCol = 0; firstCol < weight.cols; firstCol += kPanelCols) {
      const std::int64_t cols = std::min(kPanelCols, weight.cols - firstCol);
      for (std::int64_t r = 0; r < roundUp(nRows, kTileRowGroup); ++r) {
        float* const row = panel + r * panelStride;
        const std::int64_t nNumbers = r < nRows ? cols : 0;
        if (r < nRows) expandPart(weight, firstRow + r, firstCol, cols, row);
        std::fill(row + nNumbers, row + panelStride, 0.0F);
      }
      kernels_.multiplyTile({.tile = panel,
                             .tileStride = panelStride,
                             .nRows = nRows,
                             .cols = cols,
                             .input = input.data + firstCol,
                             .inputStride = input.stride,
                             .nTokens = input.rows,
                             .output = output.data + firstRow,
                             .outputStride = output.stride,
                             .accumulate = accumulate || firstCol > 0});
    }
  };
  pool_.parallelFor(weight.rows, panelRows, [&](int thread, std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; row += panelRows) {  // one range: a single thread
      multiplyPanel(thread, row, std::min(row + panelRows, last));
    }
  });
}

void Matmul::expandRow(const WeightView& weight, std::int64_t row, float* output) const {
  expandPart(weight, row, 0, weight.cols, output);
}

// Numbers [firstCol, firstCol + count) of a row; firstCol is a multiple of kPanelCols.
void Matmul::expandPart(const WeightView& weight, std::int64_t row, std::int64_t firstCol,
                        std::int64_t count, float* output) const {
  const std::int64_t first = row * weight.cols + firstCol;
  switch (weight.type) {
    case DataType::kF32:
      std::memcpy(output, numbersOf<float>(weight) + first, bytesOf(DataType::kF32, count));
      return;
    case DataType::kF16:
      return kernels_.expandF16(numbersOf<std::uint16_t>(weight) + first, count, output);
    case DataType::kBF16:
      return kernels_.expandBf16(numbersOf<std::uint16_t>(weight) + first, count, output);
    case DataType::kNf4:
    case DataType::kInt8:
      break;
  }
  if (!isWholeBlocks(weight)) return expandUnaligned(weight, first, count, output);
  const std::int64_t nBlocks = count / kNf4BlockSize;
  if (weight.type == DataType::kInt8) {
    kernels_.expandInt8(numbersOf<std::int8_t>(weight) + first,
                        weight.scales + first / kInt8BlockSize, nBlocks, output);
    return;
  }
  for (std::int64_t block = 0; block < nBlocks; ++block) {
    const std::int64_t offset = first + block * kNf4BlockSize;
    const float absmax = absmaxAt(weight, offset / kNf4BlockSize);
    kernels_.expandNf4(weight.codebook, numbersOf<std::uint8_t>(weight) + offset / 2, &absmax, 1,
                       output + block * kNf4BlockSize);
  }
}

float* Matmul::scratch(int thread, std::int64_t count) {
  std::vector<float>& buffer = scratch_[static_cast<std::size_t>(thread)];
  if (std::ssize(buffer) < count) buffer.resize(static_cast<std::size_t>(count));
  return buffer.data();
}

}  // namespace longhand::kernels
