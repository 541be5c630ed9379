#pragma once
// Products of a few tokens with NF4 and int8 weights in 8-bit integers, over all threads.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/cpu/weights/int8_matvec_kernels.h"
#include "kernels/types.h"

namespace longhand::kernels {

/// Rounds the tokens to bytes once and multiplies them with the stored codes of one or several
/// weights, each read once, front to back, by a share of rows for each thread.
///
/// Error of an output: each NF4 weight is off by at most kMaxByteCodebookError of its absmax (for
/// the NF4 codebook), which is about 0.3 % of a product where NF4 itself adds 8 %. Each input is
/// off by at most 1 / 2L of the largest magnitude of its block of 64: with L = 127 (one byte) that
/// is 0.65 % of a product for normal inputs, with two bytes nothing beside the codebook.
/// int8_matvec_kernels.h says where there are two.
///
/// Owns its scratch: about 3 bytes for each input and token, and 8 KiB a thread.
/// One thread at a time calls.
class Int8Matvec {
 public:
  /// Both must outlive this.
  Int8Matvec(const Int8MatvecKernels& kernels, ThreadPool& pool);

  /// NF4 or int8 whose rows are whole blocks.
  static bool accepts(const WeightView& weight);
  /// True of weights that one call of multiply() can take together.
  static bool areAlike(const WeightView& a, const WeightView& b);

  /// Products with weights that it accepts and that are all alike, of up to kMaxInt8MatvecTokens
  /// tokens.
  void multiply(const MatrixView& input,  // [n, cols]
                std::span<const Projection> projections, bool accumulate);

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  /// Grows only, contents undefined.
  class Scratch {
   public:
    void* reserve(std::int64_t bytes);

   private:
    std::vector<Line> lines_;
  };

  void prepareCodebook(const float* codebook);
  Int8MatvecInput quantize(const MatrixView& input, const Int8MatvecForm& form);

  const Int8MatvecKernels& kernels_;
  ThreadPool& pool_;
  std::array<float, 16> codebook_{};  // the one that the next belongs to
  ByteCodebook byteCodebook_;
  bool hasCodebook_ = false;
  Scratch inputBytes_;
  Scratch inputScales_;
  std::vector<Scratch> rowScratch_;  // of each thread
};

}  // namespace longhand::kernels
