#include "engine/model/loaded_model.h"

#include <algorithm>
#include <utility>

#include "engine/base/device_fault.h"
#include "engine/base/error.h"
#include "engine/base/error_words.h"
#include "kernels/rounding.h"

namespace longhand::engine {
namespace {

constexpr std::size_t kAlignmentBytes = 64;  // of what is carved from reserved memory
constexpr std::size_t kPieceBytes = std::size_t{16} << 20U;
constexpr const char* kMemoryHint = "Close other programs, or take NF4 weights or a smaller model.";

std::size_t aligned(std::size_t bytes) { return kernels::roundUp(bytes, kAlignmentBytes); }

}  // namespace

LoadedModel::LoadedModel(const ModelConfig& config, kernels::Backend& backend, MemoryLedger& ledger)
    : backend_(backend), ledger_(ledger) {
  config_ = config;
  layers_.resize(static_cast<std::size_t>(config.nLayers));
}

LoadedModel::~LoadedModel() { ledger_.subtract(MemoryCategory::kWeights, mappedBytes_); }

void LoadedModel::checkRoom(std::uint64_t bytes) const {
  const std::uint64_t free = backend_.memoryInfo().freeBytes;
  if (bytes <= free) return;
  throw Error(ErrorCode::kOutOfMemory,
              "The weights of " + config_.name + " need " + bytesText(bytes) + " of memory, and " +
                  bytesText(free) + " are free.",
              kMemoryHint);
}

void LoadedModel::reserve(std::span<const std::uint64_t> sizes) {
  if (backend_.usesHostMemory()) return;
  std::uint64_t bytes = 0;
  for (const std::uint64_t size : sizes) bytes += aligned(size);
  if (bytes == 0) return;
  reserved_ = takeBuffer(bytes);
  reservedBytes_ = bytes;
}

std::byte* LoadedModel::allocate(std::size_t bytes) {
  const std::size_t rounded = aligned(bytes);
  if (rounded > reservedBytes_) {
    std::byte* const memory = takeBuffer(bytes);
    weightBytes_ += bytes;
    return memory;
  }
  weightBytes_ += rounded;
  reservedBytes_ -= rounded;
  return std::exchange(reserved_, reserved_ + rounded);
}

std::byte* LoadedModel::takeBuffer(std::size_t bytes) {
  try {
    buffers_.emplace_back(backend_, ledger_, MemoryCategory::kWeights, bytes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    throw Error(error.code(), "The weights of " + config_.name + " do not fit. " + error.message(),
                kMemoryHint);
  }
  return buffers_.back().data();
}

void LoadedModel::upload(std::byte* destination, std::span<const std::byte> source) {
  backend_.upload(destination, source.data(), source.size());
}

void LoadedModel::stream(std::byte* destination, std::size_t bytes, const FillPiece& fill) {
  std::vector<std::byte> own;  // where the backend has no buffers for this
  for (std::size_t first = 0; first < bytes;) {
    std::span<std::byte> room = backend_.stagingBuffer();
    if (room.empty()) {
      own.resize(std::min(bytes, kPieceBytes));
      room = own;
    }
    const std::span<std::byte> piece = room.first(std::min(room.size(), bytes - first));
    fill(first, piece);
    backend_.upload(destination + first, piece.data(), piece.size());
    first += piece.size();
  }
}

const float* LoadedModel::table(std::span<const float> values) {
  for (const auto& [known, address] : tables_) {
    if (std::equal(known.begin(), known.end(), values.begin(), values.end())) return address;
  }
  std::byte* memory = takeBuffer(values.size_bytes());  // what was reserved is the weights'
  weightBytes_ += values.size_bytes();
  upload(memory, std::as_bytes(values));
  const auto* address = static_cast<const float*>(static_cast<const void*>(memory));
  tables_.emplace_back(std::vector<float>(values.begin(), values.end()), address);
  return address;
}

void LoadedModel::countMapped(std::uint64_t bytes) {
  ledger_.add(MemoryCategory::kWeights, bytes);
  mappedBytes_ += bytes;
  weightBytes_ += bytes;
}

void LoadedModel::place(const WeightSpec& spec, const kernels::WeightView& view) {
  const auto* floats = static_cast<const float*>(static_cast<const void*>(view.data));
  switch (spec.role) {
    case WeightRole::kEmbedding:
      embedding_ = view;
      break;
    case WeightRole::kHead:
      lmHead_ = view;
      break;
    case WeightRole::kLinear:
      layers_[static_cast<std::size_t>(spec.layer)].*spec.matrix = view;
      break;
    case WeightRole::kNorm:
      if (spec.layer < 0) {
        finalNorm_ = floats;
      } else {
        layers_[static_cast<std::size_t>(spec.layer)].*spec.norm = floats;
      }
      break;
  }
}

void LoadedModel::finish(WeightFormat format, std::uint64_t fingerprint) {
  requireNoFault(backend_, "The weights could not be copied to the device");
  if (config_.tiedEmbeddings) lmHead_ = embedding_;
  weightFormat_ = format;
  fingerprint_ = fingerprint;
}

}  // namespace longhand::engine
