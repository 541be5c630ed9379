#pragma once
// The Model that loaders fill: it owns the backend's buffers and the mappings its weights lie in.

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/memory_ledger.h"
#include "engine/model.h"
#include "engine/model_reader.h"
#include "engine/weight_specs.h"

namespace longhand::engine {

class LoadedModel final : public Model {
 public:
  LoadedModel(const ModelConfig& config, kernels::Backend& backend, MemoryLedger& ledger);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;
  ~LoadedModel() override;

  kernels::Backend& backend() const { return backend_; }
  /// Throws Error kOutOfMemory when the backend has less than these bytes free: where memory is
  /// promised before it is there, as on Linux, allocate() alone would notice too late.
  void checkRoom(std::uint64_t bytes) const;
  /// Backend memory of this model. Throws Error kOutOfMemory.
  std::byte* allocate(std::size_t bytes);
  /// Copies host bytes into backend memory; waits until the source may go. Throws kDevice.
  void upload(std::byte* destination, std::span<const std::byte> source);
  /// A small table in backend memory. Equal tables are kept once.
  const float* table(std::span<const float> values);
  /// Counts bytes of a mapping that the weights use as they are.
  void countMapped(std::uint64_t bytes);
  /// The mappings live as long as the model.
  void keep(std::unique_ptr<ModelReader> reader) { reader_ = std::move(reader); }

  /// Puts a weight where its spec says. For a norm, `view.data` are floats.
  void place(const WeightSpec& spec, const kernels::WeightView& view);
  /// Says what the whole model is. The head becomes the embedding where they are tied.
  void finish(WeightFormat format, std::uint64_t fingerprint);

 private:
  kernels::Backend& backend_;
  MemoryLedger& ledger_;
  std::vector<BackendBuffer> buffers_;
  std::vector<std::pair<std::vector<float>, const float*>> tables_;
  std::unique_ptr<ModelReader> reader_;
  std::uint64_t mappedBytes_ = 0;
};

}  // namespace longhand::engine
