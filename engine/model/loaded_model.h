#pragma once
// The Model that loaders fill: it owns the backend's buffers and the mappings its weights lie in.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/memory_ledger.h"
#include "engine/model/model.h"
#include "engine/model/model_reader.h"
#include "engine/model/weight_specs.h"

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
  /// Takes the memory of all that allocate() will be asked for (and a little for tables) at once,
  /// in one piece: a device rounds each piece up to its granularity. Throws Error kOutOfMemory;
  /// nothing is taken then. Does nothing on a CPU, where memory costs nothing until it is written.
  void reserve(std::span<const std::uint64_t> sizes);
  /// Backend memory of this model: of what was reserved, as long as there is some. Throws Error
  /// kOutOfMemory.
  std::byte* allocate(std::size_t bytes);
  /// Copies host bytes into backend memory; the source may go when this returns. Faults are
  /// reported by finish().
  void upload(std::byte* destination, std::span<const std::byte> source);
  /// The same piece by piece: `fill` writes the bytes from `first` on to memory from which they
  /// travel to a device while the next piece is filled.
  using FillPiece = std::function<void(std::size_t first, std::span<std::byte> piece)>;
  void stream(std::byte* destination, std::size_t bytes, const FillPiece& fill);
  /// A small table in backend memory. Equal tables are kept once.
  const float* table(std::span<const float> values);
  /// Counts bytes of a mapping that the weights use as they are.
  void countMapped(std::uint64_t bytes);
  /// The mappings live as long as the model.
  void keep(std::unique_ptr<ModelReader> reader) { reader_ = std::move(reader); }

  /// Puts a weight where its spec says. For a norm, `view.data` are floats.
  void place(const WeightSpec& spec, const kernels::WeightView& view);
  /// Says what the whole model is. The head becomes the embedding where they are tied. Throws Error
  /// kDevice when not all uploads went well.
  void finish(WeightFormat format, std::uint64_t fingerprint);

 private:
  std::byte* takeBuffer(std::size_t bytes);

  kernels::Backend& backend_;
  MemoryLedger& ledger_;
  std::vector<BackendBuffer> buffers_;
  std::byte* reserved_ = nullptr;  // what is left of reserve()
  std::size_t reservedBytes_ = 0;
  std::vector<std::pair<std::vector<float>, const float*>> tables_;
  std::unique_ptr<ModelReader> reader_;
  std::uint64_t mappedBytes_ = 0;
};

}  // namespace longhand::engine
