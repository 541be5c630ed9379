#pragma once
// Products of many tokens with NF4 or int8 weights in 8-bit integers: the inner loops, as a table
// of functions for each instruction set that has integer dot products.
// kernels/cpu/weights/int8_matmul.cpp calls them.
//
// Both factors become bytes with one scale a block of 64 inputs (kNf4BlockSize):
//   weight[r, i]  ~  weightScale[r, block] * (weightByte - 128)
//   input[t, i]   ~  inputScale[t, block] * inputByte
// where weightByte = 128 + round(codebook[code] / step), weightScale = step * absmax for NF4, the
// stored code and scale for int8 (exact), and inputScale = largest |input| of the block / 127. So a
// block's part of an output is
//   weightScale * inputScale * (sum weightByte * inputByte - 128 * sum inputByte)
// with exact integers in the bracket; blocks are added up as floats. (Where the instructions take
// signed weights, weightByte is there less 128, and the correction is 0.)
//
// Numbers of a block stand in this order, which is how 8 codes fall out of a 32-bit word of the
// stored weight when it is masked at once: 0 2 4 6 1 3 5 7, 8 10 12 14 9 11 13 15, ...

#include <cstdint>

#include "kernels/types.h"

namespace longhand::kernels {

/// Numbers that an integer dot product adds up in one lane.
inline constexpr std::int64_t kInt8Quad = 4;

/// The input of a product as bytes. Tokens form groups of Int8Kernels::groupTokens, the last one
/// may be shorter; what the inner loop reads for a group lies together, n being its tokens:
struct Int8Input {
  std::int8_t* values = nullptr;        // group by group: [nBlocks, n, kNf4BlockSize]
  float* scales = nullptr;              // group by group: [nBlocks, n]
  std::int32_t* corrections = nullptr;  // group by group: [nBlocks, n], -128 * sum of values, or 0
  std::int64_t nBlocks = 0;
  std::int64_t nTokens = 0;
};

/// Part of a weight's rows and columns, as stored.
struct Int8ExpandJob {
  const std::uint8_t* codes = nullptr;  // [nRows, rowBytes], nBlocks blocks of each row are read
  std::int64_t rowBytes = 0;
  std::int64_t nRows = 0;  // 1..panelRows
  std::int64_t nBlocks = 0;
  const std::uint8_t* codebook = nullptr;  // [16] weight bytes; NF4 only
};

/// Stored codes that will be expanded next.
struct Int8Prefetch {
  const std::uint8_t* codes = nullptr;  // [nRows, rowBytes], `count` bytes of each row
  std::int64_t rowBytes = 0;
  std::int64_t nRows = 0;
  std::int64_t count = 0;
};

/// A panel of weight bytes times many tokens.
struct Int8PanelJob {
  const std::uint8_t* weights = nullptr;  // [nBlocks, kNf4BlockSize / 4, panelRows, 4]
  const float* weightScales = nullptr;    // [nBlocks, panelRows]
  std::int64_t nRows = 0;                 // 1..panelRows
  std::int64_t nBlocks = 0;
  Int8Input input;
  std::int64_t firstBlock = 0;  // of the input
  std::int64_t firstToken = 0;  // at the start of a group
  std::int64_t lastToken = 0;   // at the end of a group
  float* output = nullptr;      // [input.nTokens, outputStride], nRows of each row are written
  std::int64_t outputStride = 0;
  bool accumulate = false;
  /// Fetched meanwhile, a few lines with each group of tokens: all at once would stall.
  Int8Prefetch next;
};

struct Int8Kernels {
  std::int64_t panelRows;    // rows of a full panel
  std::int64_t groupTokens;  // tokens of a full group

  /// Tokens [firstToken, lastToken), which are whole groups. Blocks whose largest number is below
  /// 1e-30 count as zeros; a block with a NaN or an infinity makes the token's outputs NaN or
  /// infinite.
  void (*quantizeInput)(const float* rows,  // [input.nTokens, rowStride]
                        std::int64_t rowStride, const Int8Input& input, std::int64_t firstToken,
                        std::int64_t lastToken);
  /// Rows that are missing in the last panel repeat the last one.
  void (*expandNf4Panel)(const Int8ExpandJob& job,
                         std::uint8_t* weights);  // [nBlocks, kNf4BlockSize / 4, panelRows, 4]
  void (*expandInt8Panel)(const Int8ExpandJob& job, std::uint8_t* weights);  // the same
  void (*multiplyPanel)(const Int8PanelJob& job);
};

#ifdef LONGHAND_X86_KERNELS
const Int8Kernels& avxVnniInt8Kernels();  // needs AVX-VNNI and what AVX2 kernels need
#endif

}  // namespace longhand::kernels
