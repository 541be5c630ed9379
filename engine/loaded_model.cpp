#include "engine/loaded_model.h"

#include <algorithm>

#include "engine/error.h"
#include "engine/message_text.h"

namespace longhand::engine {
namespace {

constexpr const char* kMemoryHint = "Close other programs, or take NF4 weights or a smaller model.";

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

std::byte* LoadedModel::allocate(std::size_t bytes) {
  try {
    buffers_.emplace_back(backend_, ledger_, MemoryCategory::kWeights, bytes);
  } catch (const Error& error) {
    throw Error(error.code(), "The weights of " + config_.name + " do not fit. " + error.message(),
                kMemoryHint);
  }
  weightBytes_ += bytes;
  return buffers_.back().data();
}

void LoadedModel::upload(std::byte* destination, std::span<const std::byte> source) {
  backend_.upload(destination, source.data(), source.size());
  const std::string fault = backend_.synchronize();
  if (!fault.empty()) {
    throw Error(ErrorCode::kDevice, "The weights could not be copied to the device: " + fault);
  }
}

const float* LoadedModel::table(std::span<const float> values) {
  for (const auto& [known, address] : tables_) {
    if (std::equal(known.begin(), known.end(), values.begin(), values.end())) return address;
  }
  std::byte* memory = allocate(values.size_bytes());
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
  if (config_.tiedEmbeddings) lmHead_ = embedding_;
  weightFormat_ = format;
  fingerprint_ = fingerprint;
}

}  // namespace longhand::engine
