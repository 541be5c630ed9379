#pragma once
// The inner loops of the CPU backend, once for each instruction set, as a table of functions that
// is chosen at run time. They work on raw pointers within one thread;
// kernels/cpu/weights/matmul.cpp and cpu_backend.cpp split the work over threads.
//
// The code is written once, in the *_inl.h files, against the type Simd of simd/simd_<set>.h, and
// compiled once for each set by kernels_<set>.cpp. Such a file puts everything into an anonymous
// namespace and calls no inline function from outside it (not even of std): the linker keeps one
// copy of an inline function, and it could be the one with AVX-512 in it.

#include <cstdint>

#include "kernels/cpu/base/cpu_path.h"
#include "kernels/cpu/weights/int8_kernels.h"
#include "kernels/cpu/weights/int8_matvec_kernels.h"
#include "kernels/types.h"

namespace longhand::kernels {

/// Most tokens a matrix-vector kernel takes: with more, expanding the weights first is faster.
inline constexpr int kMaxMatvecTokens = 4;
/// Tile rows are padded with zeros to a multiple of this many floats (the widest vector).
inline constexpr std::int64_t kTilePadding = 16;
/// The tile kernel takes weight rows in groups of this many.
inline constexpr std::int64_t kTileRowGroup = 4;

/// Products of a few tokens with rows of a weight.
struct MatvecJob {
  WeightView weight;             // NF4: cols is a multiple of kNf4BlockSize
  const float* input = nullptr;  // [nTokens, inputStride]; NF4: rows written by arrangeNf4Input
  std::int64_t inputStride = 0;
  int nTokens = 0;          // 1..kMaxMatvecTokens
  float* output = nullptr;  // [nTokens, outputStride]
  std::int64_t outputStride = 0;
  bool accumulate = false;
};

/// One panel of an expanded weight times many tokens.
struct TileJob {
  const float* tile = nullptr;  // [nRows rounded up to kTileRowGroup, tileStride]
  std::int64_t tileStride = 0;  // cols rounded up to kTilePadding; what pads is 0
  std::int64_t nRows = 0;
  std::int64_t cols = 0;
  const float* input = nullptr;  // [nTokens, inputStride], `cols` of each row are read
  std::int64_t inputStride = 0;
  std::int64_t nTokens = 0;
  float* output = nullptr;  // [nTokens, outputStride], nRows of each row are written
  std::int64_t outputStride = 0;
  bool accumulate = false;
};

struct CpuKernels {
  const char* name;  // "AVX-512"

  // --- matvec_inl.h: output[t, r] (+)= sum_i weight[r, i] * input[t, i], r in [first, last) ---

  /// For kF32, kF16, kBF16. `weight` points to the number (0, 0).
  void (*matvecF32)(const MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow);
  void (*matvecF16)(const MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow);
  void (*matvecBf16)(const MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow);

  /// Lanes of a vector; an NF4 chunk is 8 codes a lane.
  std::int64_t lanes;
  /// Sorts one row so that the k-th 4-bit code of 32-bit word w of a chunk meets its number at
  /// [chunk, k, w], and fills the last chunk with zeros.
  void (*arrangeNf4Input)(const float* input,  // [cols]
                          std::int64_t cols,
                          float* arranged);  // [cols rounded up to 8 * lanes]
  /// `scratch` of the calling thread: [kMatvecNf4Rows, cols / kNf4BlockSize + 1].
  void (*matvecNf4)(const MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow,
                    float* scratch);

  /// Few tokens with NF4 in integers, used instead of matvecNf4; nullptr where the set has none.
  const Int8MatvecKernels* int8Matvec;

  // --- expand_inl.h: numbers of a weight as float ----------------------------------------------

  void (*expandF16)(const std::uint16_t* input, std::int64_t count, float* output);
  void (*expandBf16)(const std::uint16_t* input, std::int64_t count, float* output);
  /// Whole blocks, starting at a byte.
  void (*expandNf4)(const float* codebook,      // [16]
                    const std::uint8_t* codes,  // [nBlocks * 32]
                    const float* absmax,        // [nBlocks]
                    std::int64_t nBlocks,
                    float* output);  // [nBlocks * 64]

  /// Whole blocks of int8 weights.
  void (*expandInt8)(const std::int8_t* codes,  // [nBlocks * 64]
                     const float* scales,       // [nBlocks]
                     std::int64_t nBlocks,
                     float* output);  // [nBlocks * 64]

  // --- tile_inl.h ------------------------------------------------------------------------------

  void (*multiplyTile)(const TileJob& job);
  /// Products of many tokens with NF4 in integers; nullptr where the set lacks the instructions.
  const Int8Kernels* int8;

  // --- rms_norm_inl.h, rope_inl.h, silu_multiply_inl.h: one row ---------------------------------

  void (*rmsNormRow)(const float* input, const float* weight, float epsilon, std::int64_t count,
                     float* output);
  /// Pairs (i, i + half) of one head.
  void (*ropeHead)(float* head, const float* cosines, const float* sines, std::int64_t half);
  /// Within 4 units in the last place; where gate < -88.3, silu is gate * exp(-88.3), not less.
  void (*siluMultiplyRow)(float* gate, const float* up, std::int64_t count);
};

/// Rows that matvecNf4 takes at a time.
inline constexpr std::int64_t kMatvecNf4Rows = 4;

const CpuKernels& portableKernels();
#ifdef LONGHAND_X86_KERNELS
const CpuKernels& avx2Kernels();        // needs AVX2, FMA, F16C
const CpuKernels& avx512Kernels();      // needs AVX-512 F, BW, DQ, VL and what AVX2 needs
const CpuKernels& avx512VnniKernels();  // needs AVX-512 VNNI and what AVX-512 needs
#endif

/// The kernels of a path that isSupported() and is not kAuto.
const CpuKernels& kernelsFor(CpuPath path);

}  // namespace longhand::kernels
