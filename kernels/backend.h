#pragma once
// The one door to a processor: memory, and the operations a Llama graph is made of.
//
// The graph (engine/graph/llama.cpp) is written once against this interface; kernels/cpu implements
// it with SIMD and threads, kernels/reference slowly and plainly as the twin that every test
// compares with, and a CUDA plug-in can implement it without a change to the graph.
//
// Rules for every implementation:
// * All addresses in views are addresses of this backend's memory (allocate), unless
//   usesHostMemory(), where any host address will do. Spans of views lie on the host.
// * Operations may run asynchronously, in the order of the calls. download() and synchronize()
//   wait. A device fault is reported by synchronize(); operations themselves do not fail.
// * The caller checks shapes; a backend only asserts them.
// * One thread at a time calls a backend; memoryInfo() may be called from any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/kv_types.h"
#include "kernels/machine_rates.h"
#include "kernels/types.h"

namespace longhand::kernels {

/// What the device says about its memory. On a CPU: main memory and this process's share.
struct DeviceMemoryInfo {
  std::uint64_t totalBytes = 0;
  std::uint64_t freeBytes = 0;     // available to a new allocation without swapping
  std::uint64_t processBytes = 0;  // held by this process (resident set on a CPU)
};

/// What a backend holds for its own work, beside what allocate() gave.
struct OwnMemory {
  std::uint64_t deviceBytes = 0;  // of the device's memory
  std::uint64_t pinnedBytes = 0;  // of main memory, locked for copies to and from a device
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  // --- Identity -------------------------------------------------------------------------------

  /// For people: "CPU, AVX-512, 2 threads".
  virtual std::string description() const = 0;
  /// True where host pointers can be used in views without upload (CPU backends).
  virtual bool usesHostMemory() const = 0;
  virtual DeviceMemoryInfo memoryInfo() const = 0;
  /// Any thread. Part of memoryInfo().processBytes, and constant once the backend has run a token.
  virtual OwnMemory ownMemory() const { return {}; }
  /// What the device rounds large allocations up to, in bytes: 2 MiB on NVIDIA's.
  virtual std::size_t allocationGranularity() const { return 64; }
  /// About how many floating-point operations a second a large matmul reaches: a constant of the
  /// kind of machine, never measured, so that results do not depend on the load. The graph sizes
  /// its tiles by it, such that progress and cancel come several times a second.
  virtual double operationsPerSecond() const { return 3e10; }
  /// What the device does at best just now, measured with the backend's threads (on a CPU a third
  /// of a second, with 256 MiB of memory for that time): for floors in benchmarks.
  virtual MachineRates measureRates() { return {}; }
  /// Threads of the operations to come (0: the cores this process may use). Devices ignore it.
  virtual void setThreads(int /*threads*/) {}

  // --- Memory ---------------------------------------------------------------------------------

  /// `bytes` (> 0) of memory aligned to at least 64 bytes, contents undefined; nullptr when the
  /// device has no room. The caller releases it with the same size.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory, std::size_t bytes) noexcept = 0;
  /// The source may change or go when this returns, unless it lies in stagingBuffer().
  virtual void upload(std::byte* destination, const std::byte* hostSource, std::size_t bytes) = 0;
  /// Host memory from which the next upload() runs beside the caller, for large copies: the next of
  /// a few buffers of one size, once what was uploaded from it before is done. Empty where it would
  /// gain nothing.
  virtual std::span<std::byte> stagingBuffer() { return {}; }
  virtual void download(std::byte* hostDestination, const std::byte* source, std::size_t bytes) = 0;
  virtual void copy(std::byte* destination, const std::byte* source, std::size_t bytes) = 0;
  /// Waits for everything queued. Empty when all went well, else what the device reported.
  virtual std::string synchronize() = 0;

  // --- The transformer ------------------------------------------------------------------------

  /// output[i] = table row ids[i], as float. ids lie on the host, each in [0, table.rows).
  virtual void embed(const WeightView& table,            // [vocab, hidden], any type
                     std::span<const std::int32_t> ids,  // [n]
                     const MatrixView& output) = 0;      // [n, hidden]

  /// output = input / sqrt(mean(input^2) + epsilon) * weight, row by row. May be in place.
  virtual void rmsNorm(const MatrixView& input,  // [n, hidden]
                       const float* weight,      // [hidden]
                       float epsilon,
                       const MatrixView& output) = 0;  // [n, hidden]

  /// output = input * weight^T, or output += with `accumulate`. Sums are kept in float.
  virtual void matmul(const MatrixView& input,   // [n, weight.cols]
                      const WeightView& weight,  // [outputs, inputs]
                      const MatrixView& output,  // [n, weight.rows]
                      bool accumulate) = 0;

  /// matmul() of one input with several weights of the same cols, such as query, key and value, or
  /// gate and up. Backends that gain from it share the input's preparation and run one loop.
  virtual void matmulEach(const MatrixView& input,  // [n, cols]
                          std::span<const Projection> projections) {
    for (const Projection& p : projections) matmul(input, p.weight, p.output, false);
  }

  /// rmsNorm(), then matmulEach() of its result. `normed` is scratch, undefined afterwards.
  virtual void normMatmulEach(const MatrixView& input,  // [n, cols]
                              const float* normWeight,  // [cols]
                              float epsilon,
                              const MatrixView& normed,  // [n, cols]
                              std::span<const Projection> projections) {
    rmsNorm(input, normWeight, epsilon, normed);
    matmulEach(normed, projections);
  }

  /// The first half of the MLP: with x = rmsNorm(input), gate.output = silu(x * gate.weight^T) *
  /// (x * up.weight^T). `normed` and up.output are scratch, undefined afterwards.
  virtual void normGateUp(const MatrixView& input,  // [n, cols]
                          const float* normWeight,  // [cols]
                          float epsilon,
                          const MatrixView& normed,  // [n, cols]
                          const Projection& gate, const Projection& up) {
    const Projection both[] = {gate, up};
    normMatmulEach(input, normWeight, epsilon, normed, both);
    siluMultiply(gate.output, up.output);
  }

  /// Rotates each head of each row in place: pairs (i, i + headDim/2), as Hugging Face stores Llama
  /// weights. Row r uses row r of the table: cos [headDim/2], then sin [headDim/2].
  virtual void rope(const MatrixView& heads,  // [n, nHeads * headDim]
                    std::int64_t headDim,
                    const float* cosSin) = 0;  // [n, headDim]

  /// gate = silu(gate) * up.
  virtual void siluMultiply(const MatrixView& gate,     // [n, intermediate]
                            const MatrixView& up) = 0;  // [n, intermediate]

  /// Index of the largest logit (the lowest index where several are equal); -1 if any is NaN.
  virtual std::int32_t argmax(const float* logits, std::int64_t count) = 0;

  /// The largest logits, best first, in best[0 .. the result); equal ones by lower id. NaN and
  /// -infinity are left out, so that there may be fewer than best.size(). Waits for them; a device
  /// brings only these to the host.
  virtual std::int64_t topLogits(const float* logits, std::int64_t count,
                                 std::span<ScoredToken> best);

  // --- The KV cache ---------------------------------------------------------------------------

  /// Rounds rows of keys (after RoPE) and values to span.type and stores them as the span's tokens
  /// [firstToken, firstToken + n). span.nTokens is not changed (views do not own counts).
  virtual void storeExact(const AttentionShape& shape,
                          const MatrixView& keys,    // [n, nKvHeads * headDim]
                          const MatrixView& values,  // [n, nKvHeads * headDim]
                          const ExactSpan& span, std::int64_t firstToken) = 0;

  /// rope() of queries and keys, then storeExact() of keys and values. `keys` are undefined
  /// afterwards.
  virtual void ropeAndStore(const AttentionShape& shape,
                            const MatrixView& queries,  // [n, nHeads * headDim]
                            const MatrixView& keys,     // [n, nKvHeads * headDim]
                            const MatrixView& values,   // [n, nKvHeads * headDim]
                            const float* cosSin,        // [n, headDim]
                            const ExactSpan& span, std::int64_t firstToken) {
    rope(queries, shape.headDim, cosSin);
    rope(keys, shape.headDim, cosSin);
    storeExact(shape, keys, values, span, firstToken);
  }

  /// Copies tokens [sourceFirst, +count) of one span to [destinationFirst, +count) of another of
  /// the same type. The spans must not overlap in memory.
  virtual void copyExact(const AttentionShape& shape, const ExactSpan& source,
                         std::int64_t sourceFirst, const ExactSpan& destination,
                         std::int64_t destinationFirst, std::int64_t count) = 0;

  /// Packs one page from `format.groupSize` exact tokens, which may lie in several spans (a ring):
  /// the spans' tokens in order are the page's tokens. kF32 sources are rounded to F16 first, so
  /// that codes do not depend on the type of the exact tokens. Formula: kernels/quantizer.h.
  virtual void packPage(const AttentionShape& shape,
                        std::span<const ExactSpan> source,  // nTokens sum up to groupSize
                        const PageFormat& format, QuantSolver solver,
                        std::byte* page) = 0;  // [pageLayout().totalBytes]

  /// Writes the page's tokens as exact numbers (clamped to +-65504 where they become F16).
  virtual void unpackPage(const AttentionShape& shape, const PageRef& page,
                          const ExactSpan& destination) = 0;  // room for page.nTokens

  /// Softmax attention with an online softmax: nothing of size [tokens, tokens] is ever stored.
  /// Query row r attends to all of `history` and to the chunk's tokens [0, chunkOffset + r].
  /// Reads codes straight from the pages. Query head h belongs to kv head h / (nHeads/nKvHeads).
  virtual void attend(const AttentionShape& shape, float scoreScale,
                      const MatrixView& queries,  // [n, nHeads * headDim], after RoPE
                      const KvView& history,
                      const ExactSpan& chunk,         // keys and values of the chunk so far
                      std::int64_t chunkOffset,       // chunk token of query row 0
                      const MatrixView& output) = 0;  // [n, nHeads * headDim]

  // --- Steps ----------------------------------------------------------------------------------

  /// The operations until endStep() are a decode step, much like the step before: a device may hold
  /// them back and start them all at once. Memory they use must stay until then. What needs an
  /// answer (download, synchronize, argmax, topLogits) may be called inside, and starts them.
  virtual void beginStep() {}
  virtual void endStep() {}
};

}  // namespace longhand::kernels
