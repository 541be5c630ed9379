#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <optional>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/device/device_check.h"
#include "kernels/cuda/device/nvml.h"
#include "kernels/cuda/device/own_memory.h"
#include "kernels/cuda/device/staging.h"
#include "kernels/cuda/device/step_graph.h"
#include "kernels/cuda/device_rates.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/pages/kv_exact.h"
#include "kernels/cuda/pages/pack_page.h"
#include "kernels/cuda/top_logits.h"
#include "kernels/cuda/weights/matmul.h"
#include "kernels/cuda/weights/tiled_matmul.h"

namespace longhand::kernels {
namespace {

using namespace cuda;

/// The process has one context on the device, which all backends share and the last one takes away:
/// the driver's share of memory goes with it, and so do faults, which otherwise stay.
class SharedContext {
 public:
  explicit SharedContext(int device) : device_(device) { ++nUsers(); }
  SharedContext(const SharedContext&) = delete;
  SharedContext& operator=(const SharedContext&) = delete;
  ~SharedContext() {
    if (--nUsers() == 0 && cudaSetDevice(device_) != cudaErrorInsufficientDriver) cudaDeviceReset();
  }

 private:
  int device_;

  static std::atomic<int>& nUsers() {
    static std::atomic<int> users{0};
    return users;
  }
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaOptions& options, std::unique_ptr<SharedContext> context,
              std::unique_ptr<Nvml> nvml, DeviceFacts facts)
      : device_(options.device),
        context_(std::move(context)),
        nvml_(std::move(nvml)),
        facts_(std::move(facts)),
        usesStepGraphs_(options.usesStepGraphs) {}
  ~CudaBackend() override;

  /// False when the device has no room for the little that the backend itself needs.
  bool start(const TiledMatmulOptions& matmul, const StagingOptions& staging);

  std::string description() const override;
  bool usesHostMemory() const override { return false; }
  DeviceMemoryInfo memoryInfo() const override;
  OwnMemory ownMemory() const override {
    const std::size_t topBytes = topOnHost_ == nullptr ? 0 : kTopBytes;
    return {ownBytes_, staging_.pinnedBytes() + topBytes};
  }
  std::size_t allocationGranularity() const override { return std::size_t{2} << 20U; }
  double operationsPerSecond() const override;
  MachineRates measureRates() override {
    MachineRates rates = measureDeviceRates(tiledMatmul_.cublas(), operationsPerSecond(),
                                            facts_.nMultiprocessors, queue());
    checkLaunch();
    rates.computeMajor = facts_.major;
    rates.nMultiprocessors = facts_.nMultiprocessors;
    rates.clockHz = facts_.clockHz;
    return rates;
  }

  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* memory, std::size_t bytes) noexcept override;
  void upload(std::byte* destination, const std::byte* hostSource, std::size_t bytes) override {
    leaveStep();
    check(staging_.upload(destination, hostSource, bytes));
  }
  std::span<std::byte> stagingBuffer() override { return staging_.next(); }
  void download(std::byte* hostDestination, const std::byte* source, std::size_t bytes) override {
    transfer(hostDestination, source, bytes, cudaMemcpyDeviceToHost);
    check(cudaStreamSynchronize(stream_));
  }
  void copy(std::byte* destination, const std::byte* source, std::size_t bytes) override {
    transfer(destination, source, bytes, cudaMemcpyDeviceToDevice);
  }
  std::string synchronize() override;

  void embed(const WeightView& table, std::span<const std::int32_t> ids,
             const MatrixView& output) override;
  void rmsNorm(const MatrixView& input, const float* weight, float epsilon,
               const MatrixView& output) override {
    launchRmsNorm(input, weight, epsilon, output, queue());
    checkLaunch();
  }
  void matmul(const MatrixView& input, const WeightView& weight, const MatrixView& output,
              bool accumulate) override;
  void matmulEach(const MatrixView& input, std::span<const Projection> projections) override;
  void normMatmulEach(const MatrixView& input, const float* normWeight, float epsilon,
                      const MatrixView& normed, std::span<const Projection> projections) override;
  void normGateUp(const MatrixView& input, const float* normWeight, float epsilon,
                  const MatrixView& normed, const Projection& gate, const Projection& up) override;
  void rope(const MatrixView& heads, std::int64_t headDim, const float* cosSin) override {
    launchRope(heads, headDim, cosSin, queue());
    checkLaunch();
  }
  void siluMultiply(const MatrixView& gate, const MatrixView& up) override {
    launchSiluMultiply(gate, up, queue());
    checkLaunch();
  }
  std::int32_t argmax(const float* logits, std::int64_t count) override;
  std::int64_t topLogits(const float* logits, std::int64_t count,
                         std::span<ScoredToken> best) override;

  void storeExact(const AttentionShape& shape, const MatrixView& keys, const MatrixView& values,
                  const ExactSpan& span, std::int64_t firstToken) override {
    launchStoreExact(shape, keys, values, span, firstToken, queue());
    checkLaunch();
  }
  void ropeAndStore(const AttentionShape& shape, const MatrixView& queries, const MatrixView& keys,
                    const MatrixView& values, const float* cosSin, const ExactSpan& span,
                    std::int64_t firstToken) override {
    launchRopeAndStore(shape, queries, keys, values, cosSin, span, firstToken, queue());
    checkLaunch();
  }
  void copyExact(const AttentionShape& shape, const ExactSpan& source, std::int64_t sourceFirst,
                 const ExactSpan& destination, std::int64_t destinationFirst,
                 std::int64_t count) override {
    launchCopyExact(shape, source, sourceFirst, destination, destinationFirst, count, queue());
    checkLaunch();
  }
  void packPage(const AttentionShape& shape, std::span<const ExactSpan> source,
                const PageFormat& format, QuantSolver solver, std::byte* page) override {
    leaveStep();  // it also clears memory, and steps that pack are rare
    launchPackPage(shape, spanList(source), format, solver, page, queue());
    checkLaunch();
  }
  void unpackPage(const AttentionShape& shape, const PageRef& page,
                  const ExactSpan& destination) override {
    launchUnpackPage(shape, page, destination, queue());
    checkLaunch();
  }
  void attend(const AttentionShape& shape, float scoreScale, const MatrixView& queries,
              const KvView& history, const ExactSpan& chunk, std::int64_t chunkOffset,
              const MatrixView& output) override;

  void beginStep() override {
    if (usesStepGraphs_) step_.begin();
  }
  void endStep() override { check(step_.end(stream_)); }

 private:
  void transfer(std::byte* destination, const std::byte* source, std::size_t bytes,
                cudaMemcpyKind kind) {
    leaveStep();
    if (bytes > 0) check(cudaMemcpyAsync(destination, source, bytes, kind, stream_));
  }
  /// Keeps the first error until synchronize() reports it.
  void check(cudaError_t error) {
    if (error != cudaSuccess && fault_.empty()) fault_ = cudaGetErrorString(error);
  }
  /// Where launches go: to the stream, or to the step at hand.
  LaunchQueue queue() { return {stream_, step_.recorder()}; }
  /// Starts what the step at hand has gathered; for what is not a launch.
  void leaveStep() {
    if (step_.isOpen()) check(step_.leave(stream_));
  }
  /// One launch for products of a few tokens; false where no kernel does it.
  bool multiplyFew(const MatvecCall& call);
  void checkLaunch() { check(cudaGetLastError()); }
  static SpanList spanList(std::span<const ExactSpan> spans);

  int device_;
  std::unique_ptr<SharedContext> context_;  // goes after all that is of it
  std::unique_ptr<Nvml> nvml_;              // may be nullptr
  DeviceFacts facts_;
  bool usesStepGraphs_;
  StreamOwner ownedStream_;  // goes after all that uses it
  cudaStream_t stream_ = nullptr;
  std::string fault_;
  std::atomic<std::uint64_t> allocatedBytes_ = 0;  // with ownBytes_
  std::atomic<std::uint64_t> ownBytes_ = 0;
  Staging staging_;
  DeviceMemory ids_;           // [kIdsAtOnce] token ids of embed
  DeviceMemory argmaxResult_;  // one std::int32_t
  DeviceMemory partials_;      // of decode attention
  DeviceMemory counters_;      // likewise
  DecodeWorkspace decode_;
  PrefillWorkspace prefill_;  // its partials are matmul's scratch
  DeviceMemory topMemory_;    // of top_
  TopWorkspace top_;
  PinnedMemory topOnHost_;  // ScoredToken [kMostTopLogits]
  TiledMatmul tiledMatmul_;
  StepGraph step_;
};

/// Compute capability 9.0 and 10.x have 227 KiB for a block, 8.0 has 163, all others 99 or less.
constexpr std::size_t kLargeSharedBytes = std::size_t{224} << 10U;

bool CudaBackend::start(const TiledMatmulOptions& matmul, const StagingOptions& staging) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  ownedStream_.reset(stream_);
  ids_ = allocateDevice(kIdsBytes);
  argmaxResult_ = allocateDevice(sizeof(std::int32_t));
  decode_.nMultiprocessors = facts_.nMultiprocessors;
  decode_.nPartialFloats =
      kDecodeBlocksOnMultiprocessor * facts_.nMultiprocessors * kDecodePartialFloats;
  partials_ = allocateDevice(static_cast<std::size_t>(decode_.nPartialFloats) * sizeof(float));
  counters_ = allocateDevice(kDecodeCounterBytes);
  topMemory_ = allocateDevice(kTopWorkspaceBytes);
  if (topMemory_ == nullptr || ids_ == nullptr || argmaxResult_ == nullptr ||
      partials_ == nullptr || counters_ == nullptr || !tiledMatmul_.start(matmul, stream_)) {
    return false;
  }
  decode_.partials = static_cast<float*>(static_cast<void*>(partials_.get()));
  decode_.finished = static_cast<unsigned*>(static_cast<void*>(counters_.get()));
  check(cudaMemsetAsync(counters_.get(), 0, kDecodeCounterBytes, stream_));
  const std::span<std::byte> scratch = tiledMatmul_.scratch();
  prefill_ = {static_cast<float*>(static_cast<void*>(scratch.data())),
              std::ssize(scratch) / std::int64_t{sizeof(float)}, facts_.nMultiprocessors,
              facts_.mostSharedBytes >= kLargeSharedBytes};
  top_.partials = static_cast<std::uint64_t*>(static_cast<void*>(topMemory_.get()));
  top_.best = static_cast<ScoredToken*>(static_cast<void*>(topMemory_.get() + kTopPartialBytes));
  top_.finished =
      static_cast<unsigned*>(static_cast<void*>(topMemory_.get() + kTopPartialBytes + kTopBytes));
  check(cudaMemsetAsync(top_.finished, 0, sizeof(unsigned), stream_));
  topOnHost_ = allocatePinned(kTopBytes);
  staging_.start(staging, stream_);
  ownBytes_ = ownDeviceBytes(facts_.nMultiprocessors, tiledMatmul_.bytes());
  allocatedBytes_ += ownBytes_;
  return fault_.empty();
}

CudaBackend::~CudaBackend() {
  if (stream_ == nullptr) return;
  leaveStep();
  cudaStreamSynchronize(stream_);
}

std::string CudaBackend::description() const {
  return facts_.name + ", CUDA, compute capability " + std::to_string(facts_.major) + "." +
         std::to_string(facts_.minor);
}

DeviceMemoryInfo CudaBackend::memoryInfo() const {
  std::size_t freeBytes = 0;
  std::size_t totalBytes = 0;
  cudaSetDevice(device_);  // of the calling thread
  if (cudaMemGetInfo(&freeBytes, &totalBytes) != cudaSuccess) return {};
  freeBytes -= std::min(freeBytes, kDriverBytes);
  // With the context, where the driver says how much that is.
  const auto use = nvml_ == nullptr ? std::nullopt : nvml_->deviceUse(facts_.pciBusId);
  const std::uint64_t allocated = allocatedBytes_;
  return {totalBytes, freeBytes, use ? std::max(use->ownBytes, allocated) : allocated};
}

double CudaBackend::operationsPerSecond() const {
  // Tensor cores of the smallest of these devices do 512 multiply-adds a clock and multiprocessor
  // in F16; the tiles of prefill reach about 40 % of that.
  constexpr double kOperationsPerClock = 1024.0;
  return 0.4 * kOperationsPerClock * facts_.nMultiprocessors * facts_.clockHz;
}

std::byte* CudaBackend::allocate(std::size_t bytes) {
  std::byte* const memory = allocateDevice(bytes).release();
  if (memory != nullptr) {
    allocatedBytes_ += bytes;
  } else {
    checkLaunch();  // a broken device has no memory, either
  }
  return memory;
}

void CudaBackend::release(std::byte* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  leaveStep();
  cudaFree(memory);  // waits for what still uses it
  allocatedBytes_ -= bytes;
}

std::string CudaBackend::synchronize() {
  leaveStep();
  check(cudaStreamSynchronize(stream_));
  return fault_;
}

void CudaBackend::embed(const WeightView& table, std::span<const std::int32_t> ids,
                        const MatrixView& output) {
  assert(std::ssize(ids) == output.rows && table.cols == output.cols);
  if (output.rows <= kMostEmbedArguments) {
    launchEmbedFew(table, ids, output, queue());
    return checkLaunch();
  }
  std::byte* const staged = ids_.get();
  for (std::int64_t first = 0; first < output.rows; first += kIdsAtOnce) {
    const std::int64_t count = std::min(kIdsAtOnce, output.rows - first);
    const auto part = std::as_bytes(
        ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
    upload(staged, part.data(), part.size());
    launchEmbed(table, static_cast<const std::int32_t*>(static_cast<const void*>(staged)),
                output.slice(first, count), queue());
    checkLaunch();
  }
}

void CudaBackend::matmul(const MatrixView& input, const WeightView& weight,
                         const MatrixView& output, bool accumulate) {
  assert(input.rows == output.rows && input.cols == weight.cols && output.cols == weight.rows);
  const Projection projection[] = {{weight, output}};
  MatvecCall call{input, projection};
  call.accumulate = accumulate;
  if (multiplyFew(call)) return;
  if (input.rows > kMostMatvecTokens && tiledMatmul_.canMultiply(weight)) {
    leaveStep();
    tiledMatmul_.multiply(input, weight, output, accumulate);
  } else {
    launchPlainMatmul(input, weight, output, accumulate, queue());
  }
  checkLaunch();
}

bool CudaBackend::multiplyFew(const MatvecCall& call) {
  const MatvecDevice device{facts_.mostSharedBytes, facts_.nMultiprocessors};
  if (canNf4Matvec(call, device)) {
    launchNf4Matvec(call, device, queue());
  } else if (canRowMatvec(call)) {
    launchRowMatvec(call, queue());
  } else {
    return false;
  }
  checkLaunch();
  return true;
}

void CudaBackend::matmulEach(const MatrixView& input, std::span<const Projection> projections) {
  if (!multiplyFew({input, projections})) Backend::matmulEach(input, projections);
}

void CudaBackend::normMatmulEach(const MatrixView& input, const float* normWeight, float epsilon,
                                 const MatrixView& normed,
                                 std::span<const Projection> projections) {
  if (!multiplyFew({input, projections, normWeight, epsilon})) {
    Backend::normMatmulEach(input, normWeight, epsilon, normed, projections);
  }
}

void CudaBackend::normGateUp(const MatrixView& input, const float* normWeight, float epsilon,
                             const MatrixView& normed, const Projection& gate,
                             const Projection& up) {
  const Projection both[] = {gate, up};
  MatvecCall call{input, both, normWeight, epsilon};
  call.isGated = true;
  if (!multiplyFew(call)) {
    Backend::normGateUp(input, normWeight, epsilon, normed, gate, up);
  }
}

std::int64_t CudaBackend::topLogits(const float* logits, std::int64_t count,
                                    std::span<ScoredToken> best) {
  if (best.empty() || count == 0) return 0;
  if (best.size() > std::size_t{kMostTopLogits}) return Backend::topLogits(logits, count, best);
  launchTopLogits(logits, count, static_cast<int>(best.size()), top_, queue());
  checkLaunch();
  const void* const source = top_.best;
  const std::span<std::byte> bytes = std::as_writable_bytes(best);
  std::byte* const arrival = topOnHost_ == nullptr ? bytes.data() : topOnHost_.get();
  download(arrival, static_cast<const std::byte*>(source), bytes.size());
  if (arrival != bytes.data()) std::memcpy(bytes.data(), arrival, bytes.size());
  const auto isMissing = [](const ScoredToken& token) { return token.id < 0; };
  return std::ranges::find_if(best, isMissing) - best.begin();
}

std::int32_t CudaBackend::argmax(const float* logits, std::int64_t count) {
  std::int32_t result = -1;
  launchArgmax(logits, count, static_cast<std::int32_t*>(static_cast<void*>(argmaxResult_.get())),
               queue());
  checkLaunch();
  download(std::as_writable_bytes(std::span(&result, 1)).data(), argmaxResult_.get(),
           sizeof result);
  return result;
}

SpanList CudaBackend::spanList(std::span<const ExactSpan> spans) {
  SpanList list;
  for (const ExactSpan& span : spans) {
    if (span.nTokens == 0) continue;
    assert(list.nSpans < kMostSpans);
    list.spans[list.nSpans++] = span;
  }
  return list;
}

void CudaBackend::attend(const AttentionShape& shape, float scoreScale, const MatrixView& queries,
                         const KvView& history, const ExactSpan& chunk, std::int64_t chunkOffset,
                         const MatrixView& output) {
  assert(chunkOffset >= 0 && chunkOffset + queries.rows <= chunk.nTokens);
  if (queries.rows == 0) return;
  AttentionJob job;
  job.pages = history.pages;
  job.nPages = static_cast<int>(history.nPages);
  job.nPagedTokens = history.nPagedTokens;
  job.exact = spanList(history.exact);
  assert(job.exact.nSpans < kMostSpans);
  job.exact.spans[job.exact.nSpans++] = chunk;
  job.chunkOffset = chunkOffset;
  job.nHeads = static_cast<int>(shape.nHeads);
  job.nKvHeads = static_cast<int>(shape.nKvHeads);
  job.headDim = static_cast<int>(shape.headDim);
  job.scoreScale = scoreScale;
  job.queries = queries;
  job.output = output;
  if (canDecode(job)) {
    launchDecodeAttention(job, decode_, queue());
  } else if (canPrefill(job)) {
    launchPrefillAttention(job, prefill_, queue());
  } else {
    launchPlainAttention(job, queue());
  }
  checkLaunch();
}

}  // namespace

std::unique_ptr<Backend> createCudaBackend(const CudaOptions& options, std::string& reason) {
  DeviceFacts facts;
  auto nvml = Nvml::load();
  auto context = std::make_unique<SharedContext>(options.device);
  if (!checkDevice(options.device, options.leastFreeBytes, nvml.get(), facts, reason)) {
    return nullptr;
  }
  const std::string name = facts.name;
  const bool isHopperOrNewer = facts.major >= 9;
  auto backend =
      std::make_unique<CudaBackend>(options, std::move(context), std::move(nvml), std::move(facts));
  TiledMatmulOptions matmul = options.matmul;
  if (isHopperOrNewer) matmul.workspaceBytes = std::max(matmul.workspaceBytes, kHopperCublasBytes);
  if (!backend->start(matmul, options.staging)) {
    reason = name + " has no memory left.";
    return nullptr;
  }
  return backend;
}

}  // namespace longhand::kernels
