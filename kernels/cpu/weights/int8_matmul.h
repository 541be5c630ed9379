#pragma once
// Products of many tokens with NF4 or int8 weights in 8-bit integers, over all threads.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/cpu/weights/int8_kernels.h"
#include "kernels/types.h"

namespace longhand::kernels {

/// Rounds the input to bytes once, then takes each weight panel by panel: codes become bytes in a
/// tile that stays in L1 while the tokens pass by, so a weight is expanded once for each
/// kSlabTokens tokens. int8_kernels.h has formats and formula.
///
/// Error of an output: each input is off by at most 1/254 of the largest magnitude of its block of
/// 64, each NF4 weight by at most kMaxInt8CodebookError of its absmax (for the NF4 codebook).
///
/// Owns its scratch: 36 KiB a thread, and for the input 73 bytes a block and token, at most
/// kSlabTokens tokens (6 MiB for 11,008 inputs). One thread at a time calls.
class Int8Matmul {
 public:
  /// Both must outlive this.
  Int8Matmul(const Int8Kernels& kernels, ThreadPool& pool);

  /// NF4 and int8 whose rows are whole blocks.
  static bool accepts(const WeightView& weight);

  /// As Backend::matmul, or Backend::matmulEach, for weights that it accepts.
  void multiply(const MatrixView& input,  // [n, cols]
                std::span<const Projection> projections, bool accumulate);

  static constexpr std::int64_t kSlabTokens = 512;

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
  struct Slab;

  void multiplySlab(const Slab& slab);
  void multiplyItem(const Slab& slab, std::int64_t panel, std::int64_t firstToken,
                    std::int64_t lastToken, Scratch& scratch) const;
  void prepareCodebook(const float* codebook);
  Int8Input quantize(const MatrixView& input);

  const Int8Kernels& kernels_;
  ThreadPool& pool_;
  std::array<float, 16> codebook_{};              // the one that the next two belong to
  std::array<std::uint8_t, 16> codebookBytes_{};  // 128 + round(number / codebookStep_)
  float codebookStep_ = 0.0F;
  Scratch values_;
  Scratch scales_;
  Scratch corrections_;
  std::vector<Scratch> panels_;  // of each thread
};

/// A codebook of 16 numbers as bytes 128 + round(number / step). Of the steps that let the largest
/// magnitude become 64 to 127, the one with the least sum of squared errors.
struct Int8Codebook {
  std::array<std::uint8_t, 16> bytes{};
  float step = 0.0F;
};
Int8Codebook roundCodebook(const float* codebook);  // [16]

/// The largest error of roundCodebook for the NF4 codebook, where the largest magnitude is 1.
inline constexpr float kMaxInt8CodebookError = 0.0039F;

}  // namespace longhand::kernels
