#pragma once
// Matrix products of the CPU backend, over all threads.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/cpu/weights/cpu_kernels.h"
#include "kernels/cpu/weights/int8_matmul.h"
#include "kernels/cpu/weights/int8_matvec.h"
#include "kernels/types.h"

namespace longhand::kernels {

/// Multiplies with one set of kernels on one pool. A few tokens (4, or 16 of F32, F16 and BF16)
/// read the stored weights directly; more tokens use panels of weights expanded to float, each
/// expanded once in a call. NF4 and int8 weights with rows longer than `longestFloatRow` go to
/// Int8Matvec and Int8Matmul instead, where the kernels have integer products. Owns the scratch for
/// that: about 260 KiB a thread, more only for very wide inputs. One thread at a time calls.
class Matmul {
 public:
  /// Both must outlive this.
  Matmul(const CpuKernels& kernels, ThreadPool& pool, std::int64_t longestFloatRow);

  /// As Backend::matmul.
  void multiply(const MatrixView& input,   // [n, weight.cols]
                const WeightView& weight,  // [outputs, inputs]
                const MatrixView& output,  // [n, weight.rows]
                bool accumulate);

  /// As Backend::matmulEach.
  void multiplyEach(const MatrixView& input, std::span<const Projection> projections);

  /// Row `row` of any weight as float, as dequantizeRow but faster. Any thread.
  void expandRow(const WeightView& weight, std::int64_t row, float* output) const;

 private:
  bool isForInt8Matvec(const MatrixView& input, const WeightView& weight) const;
  bool isForInt8Matmul(const MatrixView& input, const WeightView& weight) const;
  void multiplyFew(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                   bool accumulate);
  void multiplyNf4Few(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                      bool accumulate);
  void multiplyMany(const MatrixView& input, const WeightView& weight, const MatrixView& output,
                    bool accumulate);
  void expandPart(const WeightView& weight, std::int64_t row, std::int64_t firstCol,
                  std::int64_t count, float* output) const;
  float* scratch(int thread, std::int64_t count);

  const CpuKernels& kernels_;
  ThreadPool& pool_;
  const std::int64_t longestFloatRow_;
  std::optional<Int8Matmul> int8_;
  std::optional<Int8Matvec> int8Matvec_;     // where the kernels have it
  std::vector<float> arrangedInput_;         // [nTokens, cols in whole NF4 chunks]
  std::vector<std::vector<float>> scratch_;  // of each thread
};

}  // namespace longhand::kernels
