#pragma once
// Products of a few tokens with an NF4 or int8 weight in 8-bit integers, straight from the stored
// codes: the inner loops, as a table of functions for each instruction set that has them.
// kernels/cpu/weights/int8_matvec.cpp calls them.
//
// Both factors are bytes; a block is 64 inputs with one scale for each factor:
//   NF4:  weight[r, i] = absmax * codebook[code]  ~  absmax * step * (codebookByte[code] - zero)
//   int8: weight[r, i] = scale * code, the same with absmax = scale, step = 1
//   input[t, i]  ~  inputScale * inputInteger, inputScale = largest |input| of the block / L
// So a block's part of an output is
//   absmax * step * (inputScale * sum weightByte * inputInteger
//                    - zero * inputScale * sum inputInteger)
// where both sums are whole numbers, exact in 32 bits and rounded once when they become floats. The
// last term does not depend on the row and is prepared with the input.
//
// The input's integer has one byte (L = 127) or two ("digits", high * radix + low), as its sums
// leave room for on each instruction set:
//   AVX-512 VNNI, one token: radix 256, L = 32512. Memory is the bound, so it costs nothing.
//   AVX-512 VNNI, more tokens: one byte. There the dot products are the bound.
//   AVX-VNNI: the same.
//   AVX2: radix 64, L = 2048, both digits at most 32 in magnitude. Products of weight bytes (at
//   most 255) then add up four at a time in 16 bits without overflow (4 * 255 * 32 = 32,640), which
//   takes as many instructions as one byte whose sign has to be moved to the other factor.
//
// Weights are not repacked. A vector of NF4 codes holds the pairs (high nibble first) of one or two
// blocks; the input is stored in the order in which they come out: of each such chunk first the
// numbers 0, 2, 4, ... (the high nibbles), then the numbers 1, 3, 5, ... (the low ones). For int8
// weights a chunk is one block, and its numbers stand as they are.

#include <cstdint>

#include "kernels/types.h"

namespace longhand::kernels {

inline constexpr int kMaxInt8MatvecTokens = 8;

/// A codebook as bytes: codebook[code] ~ step * (bytes[code] - zero).
struct ByteCodebook {
  std::uint8_t bytes[16] = {};
  float step = 1.0F;
  float zero = 128.0F;
};

/// Tokens as bytes. Rows of scales and sums are `scaleStride` apart: a multiple of 16 that is at
/// least the number of blocks; what pads them is 0.
struct Int8MatvecInput {
  std::int8_t* bytes = nullptr;  // [nChunks, nTokens, inputDigits, chunkBlocks * 64], high first
  float* scales = nullptr;       // [nTokens, scaleStride]
  float* sums = nullptr;         // [nTokens, scaleStride], scale * sum of the block's integers
  std::int64_t scaleStride = 0;
  std::int64_t nTokens = 0;  // 1..kMaxInt8MatvecTokens
};

struct Int8MatvecJob {
  WeightView weight;      // cols are a multiple of 64
  ByteCodebook codebook;  // int8: its step is 1 and its zero 128
  Int8MatvecInput input;
  float* output = nullptr;  // [nTokens, outputStride]
  std::int64_t outputStride = 0;
  bool accumulate = false;
};

/// The loops for one type of weight.
struct Int8MatvecForm {
  std::int64_t chunkBlocks;  // blocks of a vector of codes: 1 or 2
  /// Rounds one token. Blocks whose largest number is below 1e-30 count as zeros; a block with a
  /// NaN or an infinity makes the token's outputs NaN or infinite.
  void (*quantize)(const float* numbers,  // [nBlocks * 64]
                   std::int64_t nBlocks, std::int64_t token, const Int8MatvecInput& input);
  /// output[t, r] (+)= sum_i weight[r, i] * input[t, i] for r in [firstRow, lastRow).
  void (*multiply)(const Int8MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow,
                   float* scratch);  // [int8MatvecScratch(nBlocks, nTokens)], aligned to 64 bytes
};

/// The integers that inputs are rounded to.
struct Int8InputDigits {
  int count;            // bytes: 1 or 2
  float largestNumber;  // L
};

struct Int8MatvecKernels {
  Int8InputDigits digits[kMaxInt8MatvecTokens];  // of 1, 2, ... tokens
  Int8MatvecForm nf4;
  Int8MatvecForm int8;
};

/// Rows that `multiply` takes at a time when there are several tokens.
inline constexpr std::int64_t kInt8MatvecRows = 2;

constexpr std::int64_t int8ScaleStride(std::int64_t nBlocks) { return (nBlocks + 15) / 16 * 16; }

/// Floats of scratch: absmax of a row, and for each row and token its products with input scales.
constexpr std::int64_t int8MatvecScratch(std::int64_t nBlocks, std::int64_t nTokens) {
  return int8ScaleStride(nBlocks) + 64 + kInt8MatvecRows * nTokens * int8ScaleStride(nBlocks);
}

#ifdef LONGHAND_X86_KERNELS
const Int8MatvecKernels& avxVnniInt8MatvecKernels();  // needs AVX-VNNI and what AVX2 kernels need
#endif

}  // namespace longhand::kernels
