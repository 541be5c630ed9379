#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "kernels/cpu/base/core_count.h"
#include "kernels/cpu/base/cpu_path.h"
#include "kernels/cpu/base/thread_pool.h"
#include "kernels/cpu/kv/kv_store.h"
#include "kernels/cpu/probe/machine_probe.h"
#include "kernels/cpu/weights/cpu_kernels.h"
#include "kernels/cpu/weights/matmul.h"
#include "kernels/host_backend.h"
#include "kernels/reference/reference_kv.h"

namespace longhand::kernels {
namespace {

// Numbers of an elementwise operation that a thread takes at a time: some 4 microseconds of work,
// as much as a hand-over to another thread costs.
constexpr std::int64_t kElementwiseGrain = 16 * 1024;

std::int64_t rowGrain(std::int64_t cols) {
  return std::max<std::int64_t>(1, kElementwiseGrain / std::max<std::int64_t>(1, cols));
}

class CpuBackend final : public HostBackend {
 public:
  CpuBackend(CpuPath path, const CpuOptions& options)
      : path_(path), kernels_(kernelsFor(path)), longestFloatRow_(options.longestFloatRow) {
    setThreads(options.threads);
  }

  std::string description() const override {
    const int threads = workers_->pool.threads();
    return std::string("CPU, ") + kernels_.name + ", " + std::to_string(threads) +
           (threads == 1 ? " thread" : " threads");
  }
  double operationsPerSecond() const override;
  MachineRates measureRates() override { return measureMachineRates(path_, workers_->pool); }
  void setThreads(int threads) override {
    workers_.reset();  // the old threads end before new ones start
    workers_ = std::make_unique<Workers>(path_, threads > 0 ? threads : usableCoreCount(),
                                         longestFloatRow_);
  }

  void embed(const WeightView& table, std::span<const std::int32_t> ids,
             const MatrixView& output) override;
  void rmsNorm(const MatrixView& input, const float* weight, float epsilon,
               const MatrixView& output) override;
  void matmul(const MatrixView& input, const WeightView& weight, const MatrixView& output,
              bool accumulate) override {
    workers_->matmul.multiply(input, weight, output, accumulate);
  }
  void matmulEach(const MatrixView& input, std::span<const Projection> projections) override {
    workers_->matmul.multiplyEach(input, projections);
  }
  void rope(const MatrixView& heads, std::int64_t headDim, const float* cosSin) override;
  void siluMultiply(const MatrixView& gate, const MatrixView& up) override;
  std::int32_t argmax(const float* logits, std::int64_t count) override;

  void storeExact(const AttentionShape& shape, const MatrixView& keys, const MatrixView& values,
                  const ExactSpan& span, std::int64_t firstToken) override {
    workers_->kv.storeExact(shape, keys, values, span, firstToken);
  }
  void copyExact(const AttentionShape& shape, const ExactSpan& source, std::int64_t sourceFirst,
                 const ExactSpan& destination, std::int64_t destinationFirst,
                 std::int64_t count) override {
    copyExactReference(shape, source, sourceFirst, destination, destinationFirst, count);
  }
  void packPage(const AttentionShape& shape, std::span<const ExactSpan> source,
                const PageFormat& format, QuantSolver solver, std::byte* page) override {
    workers_->kv.packPage(shape, source, format, solver, page);
  }
  void unpackPage(const AttentionShape& shape, const PageRef& page,
                  const ExactSpan& destination) override {
    workers_->kv.unpackPage(shape, page, destination);
  }
  void attend(const AttentionShape& shape, float scoreScale, const MatrixView& queries,
              const KvView& history, const ExactSpan& chunk, std::int64_t chunkOffset,
              const MatrixView& output) override {
    workers_->kv.attend(shape, scoreScale, queries, history, chunk, chunkOffset, output);
  }

 private:
  struct Workers {
    Workers(CpuPath path, int threads, std::int64_t longestFloatRow)
        : pool(threads),
          matmul(kernelsFor(path), pool, longestFloatRow),
          kv(kvKernelsFor(path), pool) {}
    ThreadPool pool;
    Matmul matmul;
    CpuKv kv;
  };

  const CpuPath path_;
  const CpuKernels& kernels_;
  const std::int64_t longestFloatRow_;
  std::unique_ptr<Workers> workers_;  // never null
};

double CpuBackend::operationsPerSecond() const {
  // About half of what NF4 weights reach on an idle core.
  const auto perThread = [this] {
    switch (path_) {
      case CpuPath::kAvx512Bf16:
      case CpuPath::kAvx512Vnni:
        return 3e11;
      case CpuPath::kAvxVnni:
        return 1.5e11;
      case CpuPath::kAvx512:
        return 8e10;
      case CpuPath::kAvx2:
        return 8e10;
      default:
        return 1e10;
    }
  };
  return perThread() * workers_->pool.threads();
}

void CpuBackend::embed(const WeightView& table, std::span<const std::int32_t> ids,
                       const MatrixView& output) {
  assert(table.cols == output.cols);
  assert(std::ssize(ids) == output.rows);
  workers_->pool.parallelFor(
      output.rows, rowGrain(output.cols), [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) {
          const std::int32_t id = ids[static_cast<std::size_t>(row)];
          assert(id >= 0 && id < table.rows);
          workers_->matmul.expandRow(table, id, output.data + row * output.stride);
        }
      });
}

void CpuBackend::rmsNorm(const MatrixView& input, const float* weight, float epsilon,
                         const MatrixView& output) {
  assert(input.rows == output.rows && input.cols == output.cols);
  workers_->pool.parallelFor(
      input.rows, rowGrain(input.cols), [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) {
          kernels_.rmsNormRow(input.data + row * input.stride, weight, epsilon, input.cols,
                              output.data + row * output.stride);
        }
      });
}

void CpuBackend::rope(const MatrixView& heads, std::int64_t headDim, const float* cosSin) {
  assert(headDim > 0 && headDim % 2 == 0 && heads.cols % headDim == 0);
  const std::int64_t half = headDim / 2;
  workers_->pool.parallelFor(
      heads.rows, rowGrain(heads.cols), [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) {
          const float* const cosines = cosSin + row * headDim;  // [half]
          for (std::int64_t column = 0; column < heads.cols; column += headDim) {
            kernels_.ropeHead(heads.data + row * heads.stride + column, cosines, cosines + half,
                              half);
          }
        }
      });
}

void CpuBackend::siluMultiply(const MatrixView& gate, const MatrixView& up) {
  assert(gate.rows == up.rows && gate.cols == up.cols);
  workers_->pool.parallelFor(gate.rows, rowGrain(gate.cols),
                             [&](int, std::int64_t first, std::int64_t last) {
                               for (std::int64_t row = first; row < last; ++row) {
                                 kernels_.siluMultiplyRow(gate.data + row * gate.stride,
                                                          up.data + row * up.stride, gate.cols);
                               }
                             });
}

std::int32_t CpuBackend::argmax(const float* logits, std::int64_t count) {
  assert(count > 0);
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isnan(logits[i])) return -1;
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<std::int32_t>(best);
}

}  // namespace

std::unique_ptr<Backend> createCpuBackend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(resolvePath(options.path), options);
}

}  // namespace longhand::kernels
