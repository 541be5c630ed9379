#pragma once
// The CPU backend's KV cache operations: Backend's storeExact ... attend (kernels/backend.h), with
// the inner loops of one instruction set (kv_kernels.h) and the work split over threads.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/base/cpu_path.h"
#include "kernels/cpu/base/thread_pool.h"
#include "kernels/cpu/kv/kv_kernels.h"
#include "kernels/kv_types.h"
#include "kernels/page_layout.h"
#include "kernels/types.h"

namespace longhand::kernels {

/// The inner loops of a path that isSupported() and is not kAuto.
const KvKernels& kvKernelsFor(CpuPath path);

/// One thread at a time calls it. The pool must outlive it.
class CpuKv {
 public:
  CpuKv(const KvKernels& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}
  CpuKv(const CpuKv&) = delete;
  CpuKv& operator=(const CpuKv&) = delete;

  const KvKernels& kernels() const { return kernels_; }

  void storeExact(const AttentionShape& shape, const MatrixView& keys, const MatrixView& values,
                  const ExactSpan& span, std::int64_t firstToken);
  void packPage(const AttentionShape& shape, std::span<const ExactSpan> source,
                const PageFormat& format, QuantSolver solver, std::byte* page);
  void unpackPage(const AttentionShape& shape, const PageRef& page, const ExactSpan& destination);

  /// The result does not depend on the number of threads. With up to kMaxDirectQueries queries a kv
  /// head (decode), codes are read in place; with more (prefill), each tile is expanded once for
  /// kExpandedQueries. Either way tokens are split into runs that are merged by log-sum-exp.
  void attend(const AttentionShape& shape, float scoreScale, const MatrixView& queries,
              const KvView& history, const ExactSpan& chunk, std::int64_t chunkOffset,
              const MatrixView& output);

  /// Whether attend() with that many queries a kv head rounds queries and probabilities to integers
  /// where they meet codes, which adds less than a fifth of the error that the codes have already.
  /// (With more queries the AVX-512 BF16 path does the same to codes of up to 4 bits.)
  bool attendsByIntegers(std::int64_t nQueries) const {
    return kernels_.attendsByIntegers && nQueries <= kMaxDirectQueries;
  }

 private:
  struct alignas(64) Line {
    float values[16];
  };
  /// Memory of one thread, shared by all operations: under 1 MiB for headDim 256.
  struct Scratch {
    float* queries;
    float* output;
    float* scores;
    float* keys;
    float* values;
    float* largest;
    float* sum;
    float* factor;
    std::int32_t* visible;
  };
  struct AttendJob;
  class Tiles;

  void reserveScratch(std::int64_t headDim);
  Scratch scratchOf(int thread);

  void packHead(const AttentionShape& shape, std::span<const ExactSpan> source,
                const PageFormat& format, QuantSolver solver, const PageLayout& layout,
                std::int64_t kvHead, const Scratch& scratch, std::byte* page);

  void attendItem(const AttendJob& job, std::int64_t item, const Scratch& scratch);
  void attendTiles(const AttendJob& job, std::int64_t kvHead, std::int64_t firstTile,
                   std::int64_t endTile, std::int64_t firstQuery, std::int64_t nQueries,
                   QueryBlock& block, std::int32_t* visible);
  void attendGroups(const AttendJob& job, std::int64_t kvHead, std::int64_t firstTile,
                    std::int64_t endTile, std::int64_t firstQuery, std::int64_t nQueries,
                    QueryBlock& block, std::int32_t* seen);
  void mergeRuns(const AttendJob& job, std::int64_t group);

  const KvKernels& kernels_;
  ThreadPool& pool_;
  std::int64_t scratchHeadDim_ = 0;
  std::size_t linesPerThread_ = 0;
  std::vector<Line> scratch_;   // [threads, linesPerThread_]
  std::vector<Line> partials_;  // runs of one attend()
};

/// One kv head of a page, or tokens [first, first + count) of an exact span, for the inner loops.
KvTile pageTile(const PageRef& page, const PageLayout& layout, std::int64_t headDim,
                std::int64_t kvHead);
KvTile exactTile(const ExactSpan& span, std::int64_t headDim, std::int64_t kvHead,
                 std::int64_t first, std::int64_t count);

}  // namespace longhand::kernels
