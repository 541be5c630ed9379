// loadModel: opens the files, checks every tensor, then brings one weight after the other into the
// backend's memory. At no time is there a second copy of more than one weight.

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/model/loaded_model.h"
#include "engine/model/model.h"
#include "engine/model/model_reader.h"
#include "engine/model/parallel_load.h"
#include "engine/model/weight_converter.h"
#include "engine/model/weight_format.h"
#include "engine/model/weight_specs.h"

namespace longhand::engine {
namespace {

using kernels::DataType;
using kernels::WeightView;

/// A weight on its way: what it is, where it comes from, what it becomes.
struct Transfer {
  WeightSpec spec;
  SourceTensor source;
  WeightTarget target;
  bool isMapped = false;  // used straight from the file
};

bool isAligned(const SourceTensor& source) {
  const std::size_t alignment =
      kernels::isQuantized(source.view.type) ? 1 : kernels::bytesOf(source.view.type, 1);
  return reinterpret_cast<std::uintptr_t>(source.view.data) % alignment == 0;
}

/// The format of the linear weights as the files have them: that of the first one.
WeightTarget sourceFormat(const std::vector<Transfer>& transfers) {
  const auto linear = std::find_if(
      transfers.begin(), transfers.end(),
      [](const Transfer& transfer) { return transfer.spec.role == WeightRole::kLinear; });
  return targetOf(linear->source.view);
}

std::vector<Transfer> planTransfers(const ModelReader& reader, WeightFormat format,
                                    bool usesHostMemory) {
  std::vector<Transfer> transfers;
  for (WeightSpec& spec : weightSpecs(reader.config())) {
    SourceTensor source = reader.tensor(spec);
    transfers.push_back({std::move(spec), std::move(source), {}, false});
  }
  const bool isQuantized = sourceFormat(transfers).type == DataType::kNf4;
  const bool quantizes = !isQuantized && autoQuantizes(reader.config());
  const WeightFormat wanted =
      format == WeightFormat::kAuto && quantizes ? WeightFormat::kNf4 : format;
  for (Transfer& transfer : transfers) {
    const WeightTarget source = targetOf(transfer.source.view);
    transfer.target =
        chooseTarget(formatOfSpec(wanted, transfer.spec, isQuantized), transfer.spec, source);
    // Norms are small, and always copied: so their floats are aligned on every backend.
    transfer.isMapped = usesHostMemory && transfer.spec.role != WeightRole::kNorm &&
                        transfer.target == source && isAligned(transfer.source);
  }
  return transfers;
}

/// Of the weights that have to be allocated, as opposed to mapped.
std::vector<std::uint64_t> sizesToAllocate(const std::vector<Transfer>& transfers) {
  std::vector<std::uint64_t> sizes;
  for (const Transfer& transfer : transfers) {
    if (transfer.isMapped) continue;
    const WeightSpec& spec = transfer.spec;
    sizes.push_back(weightLayout(transfer.target, spec.rows, spec.cols).totalBytes);
  }
  return sizes;
}

bool isCopy(const SourceTensor& source, const float* values) {
  return std::any_of(source.tables.begin(), source.tables.end(),
                     [&](const std::vector<float>& table) { return table.data() == values; });
}

/// Uses a weight where it lies in the file. Small tables of NF4 are shared between weights.
WeightView useMapped(const SourceTensor& source, LoadedModel& model) {
  WeightView view = source.view;
  prefetchMapped(source.bytes);
  std::uint64_t mapped = source.bytes.size();
  if (view.type == DataType::kNf4) {
    const WeightLayout layout = weightLayout(targetOf(view), view.rows, view.cols);
    const auto nBlocks = static_cast<std::size_t>(layout.nBlocks);
    const auto floats = [&](const float* values, std::size_t count) -> const float* {
      if (isCopy(source, values)) return model.table({values, count});
      mapped += count * sizeof(float);
      return values;
    };
    view.codebook = model.table({view.codebook, 16});
    if (view.absmax != nullptr) {
      view.absmax = floats(view.absmax, nBlocks);
    } else {
      mapped += nBlocks;
      view.nestedAbsmax = floats(view.nestedAbsmax, static_cast<std::size_t>(layout.nNestedBlocks));
      view.nestedCodebook = model.table({view.nestedCodebook, 256});
    }
  }
  model.countMapped(mapped);
  return view;
}

/// Brings numbers or codes to a device as they are, straight from the file: several threads fill a
/// piece, which is also when the file is read, while the device fetches the one before.
void streamData(const Transfer& transfer, std::size_t bytes, std::byte* memory, LoadedModel& model,
                ChunkRunner& runner) {
  constexpr std::size_t kChunkBytes = std::size_t{1} << 20U;
  const std::span<const std::byte> source = transfer.source.bytes.first(bytes);
  model.stream(memory, bytes, [&](std::size_t first, std::span<std::byte> piece) {
    const std::span<const std::byte> from = source.subspan(first, piece.size());
    runner.run(static_cast<std::int64_t>((piece.size() + kChunkBytes - 1) / kChunkBytes),
               piece.size(), [&](std::int64_t chunk) {
                 const std::size_t start = static_cast<std::size_t>(chunk) * kChunkBytes;
                 const std::size_t count = std::min(kChunkBytes, piece.size() - start);
                 std::memcpy(piece.data() + start, from.data() + start, count);
               });
  });
  const std::uint64_t rest =
      transfer.source.fileBytes - std::min<std::uint64_t>(transfer.source.fileBytes, bytes);
  runner.advance(rest);
  forgetMapped(transfer.source.bytes);
}

/// A weight that the device has in the very format of the file.
WeightView copyToDevice(const Transfer& transfer, std::byte* memory, LoadedModel& model,
                        ChunkRunner& runner) {
  const WeightSpec& spec = transfer.spec;
  const WeightView& from = transfer.source.view;
  const WeightLayout layout = weightLayout(transfer.target, spec.rows, spec.cols);
  if (from.type == DataType::kNf4) {
    const auto upload = [&](std::size_t offset, const void* source, std::size_t bytes) {
      model.upload(memory + offset, {static_cast<const std::byte*>(source), bytes});
    };
    const auto nBlocks = static_cast<std::size_t>(layout.nBlocks);
    if (from.absmax != nullptr) {
      upload(layout.absmaxOffset, from.absmax, nBlocks * sizeof(float));
    } else {
      upload(layout.absmaxOffset, from.absmaxCodes, nBlocks);
      upload(layout.nestedOffset, from.nestedAbsmax,
             static_cast<std::size_t>(layout.nNestedBlocks) * sizeof(float));
    }
  }
  streamData(transfer, layout.dataBytes, memory, model, runner);
  WeightView view = viewOf(transfer.target, spec.rows, spec.cols, memory);
  view.codebook = from.codebook;
  view.nestedCodebook = from.nestedCodebook;
  view.nestedOffset = from.nestedOffset;
  return view;
}

/// Makes a weight in the backend's memory. `staging` is kept from one weight to the next.
WeightView makeWeight(const Transfer& transfer, LoadedModel& model, ChunkRunner& runner,
                      std::vector<std::byte>& staging) {
  const WeightSpec& spec = transfer.spec;
  const std::size_t bytes = weightLayout(transfer.target, spec.rows, spec.cols).totalBytes;
  std::byte* memory = model.allocate(bytes);
  WeightView view;
  if (model.backend().usesHostMemory()) {
    view = convertWeight(transfer.source, transfer.target, memory, runner);
  } else if (spec.role != WeightRole::kNorm && transfer.target == targetOf(transfer.source.view)) {
    view = copyToDevice(transfer, memory, model, runner);
  } else {
    staging.resize(std::max(staging.size(), bytes));
    const WeightView onHost =
        convertWeight(transfer.source, transfer.target, staging.data(), runner);
    model.upload(memory, std::span(staging).first(bytes));
    view = viewOf(transfer.target, spec.rows, spec.cols, memory);
    view.codebook = onHost.codebook;
    view.nestedCodebook = onHost.nestedCodebook;
    view.nestedOffset = onHost.nestedOffset;
  }
  if (view.codebook != nullptr) view.codebook = model.table({view.codebook, 16});
  if (view.nestedCodebook != nullptr) view.nestedCodebook = model.table({view.nestedCodebook, 256});
  return view;
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
class Fingerprint {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      value_ = (value_ ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3U;
    }
  }
  void add(std::int64_t number) {
    const auto bits = static_cast<std::uint64_t>(number);
    for (unsigned shift = 0; shift < 64; shift += 8) add8(bits >> shift);
  }
  void add(const std::string& text) {
    add(static_cast<std::int64_t>(text.size()));
    add(std::as_bytes(std::span(text)));
  }
  std::uint64_t value() const { return value_; }

 private:
  void add8(std::uint64_t byte) { value_ = (value_ ^ (byte & 0xffU)) * 0x100000001b3U; }

  std::uint64_t value_ = 0xcbf29ce484222325U;
};

/// Of names, shapes, types, and of each tensor 8 runs of 64 bytes: a few MiB of a 13 GiB file.
std::uint64_t fingerprintOf(const std::vector<Transfer>& transfers, const ModelConfig& config) {
  constexpr std::size_t kRunBytes = 64;
  constexpr std::size_t kRuns = 8;
  Fingerprint fingerprint;
  for (const std::int64_t number : {config.nHeads, config.nKvHeads, config.headDim}) {
    fingerprint.add(number);
  }
  for (const Transfer& transfer : transfers) {
    fingerprint.add(transfer.spec.name);
    fingerprint.add(transfer.spec.rows);
    fingerprint.add(transfer.spec.cols);
    fingerprint.add(static_cast<std::int64_t>(transfer.source.view.type));
    fingerprint.add(static_cast<std::int64_t>(transfer.target.type));
    fingerprint.add(static_cast<std::int64_t>(transfer.target.doubleQuantization));
    const std::span<const std::byte> bytes = transfer.source.bytes;
    const std::size_t run = std::min(kRunBytes, bytes.size());
    for (std::size_t i = 0; i < kRuns; ++i) {
      fingerprint.add(bytes.subspan((bytes.size() - run) / (kRuns - 1) * i, run));
    }
  }
  return fingerprint.value();
}

}  // namespace

std::unique_ptr<Model> loadModel(const std::filesystem::path& folder, WeightFormat format,
                                 kernels::Backend& backend, MemoryLedger& ledger,
                                 const LoadProgress& progress, std::stop_token stop) {
  std::unique_ptr<ModelReader> reader = openModelReader(folder);
  const std::vector<Transfer> transfers = planTransfers(*reader, format, backend.usesHostMemory());
  const std::uint64_t fingerprint = fingerprintOf(transfers, reader->config());

  std::uint64_t totalBytes = 0;
  for (const Transfer& transfer : transfers) totalBytes += transfer.source.fileBytes;
  ChunkRunner runner(totalBytes, progress, std::move(stop));
  auto model = std::make_unique<LoadedModel>(reader->config(), backend, ledger);
  const std::vector<std::uint64_t> sizes = sizesToAllocate(transfers);
  model->checkRoom(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}));
  model->reserve(sizes);
  WeightFormat loadedFormat = WeightFormat::kAuto;
  std::vector<std::byte> staging;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    if (i + 1 < transfers.size() && !transfers[i + 1].isMapped) {
      prefetchMapped(transfers[i + 1].source.bytes);  // the disk works ahead
    }
    if (transfer.isMapped) {
      model->place(transfer.spec, useMapped(transfer.source, *model));
      runner.advance(transfer.source.fileBytes);
    } else {
      model->place(transfer.spec, makeWeight(transfer, *model, runner, staging));
    }
    if (transfer.spec.role == WeightRole::kLinear && loadedFormat == WeightFormat::kAuto) {
      loadedFormat = formatOf(transfer.target);
    }
  }
  model->keep(std::move(reader));
  model->finish(loadedFormat, fingerprint);
  runner.finish();
  return model;
}

std::uint64_t weightBytesOf(const std::filesystem::path& folder, WeightFormat format) {
  const std::unique_ptr<ModelReader> reader = openModelReader(folder);
  std::uint64_t bytes = 0;
  for (const Transfer& transfer : planTransfers(*reader, format, /*usesHostMemory=*/true)) {
    bytes += weightLayout(transfer.target, transfer.spec.rows, transfer.spec.cols).totalBytes;
  }
  return bytes;
}

}  // namespace longhand::engine
