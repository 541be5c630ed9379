#include "engine/model/hf_model_reader.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/error_words.h"
#include "engine/model/bnb_tensor.h"

#include <nlohmann/json.hpp>

namespace longhand::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kIndexLimitBytes = 100U << 20U;
constexpr const char* kIncompleteHint = "Download the model again, with all its files.";

bool fileExists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The files `model-*.safetensors` of a folder, sorted.
std::vector<fs::path> shardsOf(const fs::path& folder) {
  std::vector<fs::path> shards;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("model-") && name.ends_with(".safetensors")) {
      shards.push_back(entry.path());
    }
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

/// n of "model-00001-of-0000n.safetensors".
std::optional<std::size_t> shardCountOf(const std::string& name) {
  const std::size_t at = name.find("-of-");
  if (at == std::string::npos) return std::nullopt;
  std::size_t count = 0;
  const char* first = name.data() + at + 4;
  const auto [end, error] = std::from_chars(first, name.data() + name.size(), count);
  if (error != std::errc{} || end == first) return std::nullopt;
  return count;
}

[[noreturn]] void throwNoWeights(const fs::path& folder) {
  std::string found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".bin") || name.ends_with(".gguf") || name.ends_with(".pth")) found = name;
  }
  throw Error(ErrorCode::kFileNotFound,
              "The folder " + folder.string() + " has no model.safetensors" +
                  (found.empty() ? "." : "; its " + found + " is of a format not read here."),
              "Get the model as .safetensors files.");
}

/// file name of each tensor, as model.safetensors.index.json says.
std::map<std::string, std::string> readIndex(const fs::path& path) {
  const auto refuse = [&](const std::string& reason) -> Error {
    return {ErrorCode::kFileDamaged, path.string() + " " + reason + ".", kIncompleteHint};
  };
  const auto json =
      nlohmann::json::parse(readTextFile(path, kIndexLimitBytes), nullptr, /*exceptions=*/false);
  if (!json.is_object()) throw refuse("is not a JSON object");
  const auto weightMap = json.find("weight_map");
  if (weightMap == json.end() || !weightMap->is_object()) throw refuse("has no weight_map");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : weightMap->items()) {
    if (!file.is_string()) throw refuse("names no file for tensor " + quotedName(tensor));
    const auto name = file.get<std::string>();
    // A file of the folder itself: nothing outside it may be opened in its name.
    if (name.empty() || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      throw refuse("names " + quotedName(name) + ", which is no file of the folder");
    }
    files.emplace(tensor, name);
  }
  return files;
}

std::string whereText(const HfModelReader::Place& place, const std::string& name) {
  return place.file->fileName() + ": tensor " + quotedName(name);
}

std::optional<kernels::DataType> plainType(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return kernels::DataType::kF32;
    case TensorType::kF16:
      return kernels::DataType::kF16;
    case TensorType::kBF16:
      return kernels::DataType::kBF16;
    default:
      return std::nullopt;
  }
}

}  // namespace

HfModelReader::HfModelReader(const fs::path& folder) : config_(readModelConfig(folder)) {
  const fs::path single = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  if (fileExists(single)) {
    files_.emplace_back(single);
    for (const auto& [name, tensor] : files_[0].tensors()) add(name, files_[0], tensor);
  } else if (fileExists(index)) {
    openIndexed(folder, index);
  } else {
    openShards(folder);
  }
  refuseUnknownWeights();
}

void HfModelReader::openIndexed(const fs::path& folder, const fs::path& indexPath) {
  const auto fileOfTensor = readIndex(indexPath);
  std::set<std::string> names;
  for (const auto& [tensor, file] : fileOfTensor) names.insert(file);
  files_.reserve(names.size());  // places point to the elements
  for (const std::string& name : names) {
    if (!fileExists(folder / name)) {
      throw Error(ErrorCode::kFileNotFound,
                  "The folder " + folder.string() + " lacks " + quotedName(name) +
                      ", which its model.safetensors.index.json lists.",
                  kIncompleteHint);
    }
    files_.emplace_back(folder / name);
  }
  for (const auto& [tensor, fileName] : fileOfTensor) {
    const auto file =
        std::find_if(files_.begin(), files_.end(),
                     [&name = fileName](const SafetensorsFile& f) { return f.fileName() == name; });
    const FileTensor* found = file->find(tensor);
    if (found == nullptr) {
      throw Error(ErrorCode::kFileDamaged,
                  file->fileName() + ": tensor " + quotedName(tensor) +
                      " is missing, though model.safetensors.index.json lists it there.",
                  kIncompleteHint);
    }
    add(tensor, *file, *found);
  }
}

void HfModelReader::openShards(const fs::path& folder) {
  const std::vector<fs::path> shards = shardsOf(folder);
  if (shards.empty()) throwNoWeights(folder);
  const auto count = shardCountOf(shards.front().filename().string());
  if (count && *count != shards.size()) {
    throw Error(ErrorCode::kFileNotFound,
                "The folder " + folder.string() + " has " + std::to_string(shards.size()) +
                    " of the " + std::to_string(*count) + " files of " +
                    quotedName(shards.front().filename().string()) + ".",
                kIncompleteHint);
  }
  files_.reserve(shards.size());
  for (const fs::path& path : shards) files_.emplace_back(path);
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, tensor] : file.tensors()) add(name, file, tensor);
  }
}

void HfModelReader::add(const std::string& name, const SafetensorsFile& file,
                        const FileTensor& tensor) {
  const auto [place, isNew] = places_.try_emplace(name, Place{&file, &tensor});
  if (!isNew) {
    throw Error(ErrorCode::kFileDamaged,
                file.fileName() + ": tensor " + quotedName(name) + " stands in " +
                    place->second.file->fileName() + " as well.",
                kIncompleteHint);
  }
}

HfModelReader::Place HfModelReader::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? Place{} : found->second;
}

/// Extra tensors are ignored (buffers such as rotary_emb.inv_freq), but not those that would make
/// the model compute something else than its files mean.
void HfModelReader::refuseUnknownWeights() const {
  constexpr std::string_view kLayers = "model.layers.";
  for (const auto& [name, place] : places_) {
    const bool isOfModel = name.starts_with("model.") || name.starts_with("lm_head.");
    if (isOfModel && name.ends_with(".bias")) {
      throw Error(ErrorCode::kUnsupportedModel,
                  whereText(place, name) + " is a bias, which is not supported.",
                  "Longhand runs Llama models (Llama 1 and 2, TinyLlama and their kin).");
    }
    if (!name.starts_with(kLayers) || !name.ends_with(".weight")) continue;
    std::int64_t layer = -1;
    std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
    if (layer >= config_.nLayers) {
      throw Error(ErrorCode::kFileDamaged,
                  whereText(place, name) + " belongs to a layer beyond the " +
                      std::to_string(config_.nLayers) + " of config.json (num_hidden_layers).",
                  "Check that config.json belongs to these files.");
    }
  }
}

SourceTensor HfModelReader::tensor(const WeightSpec& spec) const {
  const Place place = find(spec.name);
  if (place.tensor == nullptr) {
    const std::string file = files_.size() == 1 ? files_[0].fileName() : "The model's files";
    throw Error(ErrorCode::kFileDamaged,
                file + ": tensor " + quotedName(spec.name) + " is missing.", kIncompleteHint);
  }
  const std::string where = whereText(place, spec.name);
  const auto find = [this, &spec](const char* suffix) -> const FileTensor* {
    return this->find(spec.name + suffix).tensor;
  };
  if (isBnbTensor(find)) {
    if (spec.role != WeightRole::kLinear) {
      throw Error(ErrorCode::kUnsupportedModel,
                  where + " is quantized to 4 bits; embeddings, norms and lm_head must not be.");
    }
    return readBnbTensor(*place.tensor, find, spec, where);
  }
  const auto type = plainType(place.tensor->type);
  if (!type) {
    throw Error(ErrorCode::kUnsupportedModel,
                where + " is of type " + tensorTypeName(place.tensor->type) +
                    "; supported are F32, F16, BF16 and bitsandbytes NF4.",
                "Get the model in 16 bits.");
  }
  const std::vector<std::int64_t> expected =
      spec.role == WeightRole::kNorm ? std::vector{spec.cols} : std::vector{spec.rows, spec.cols};
  if (place.tensor->shape != expected) {
    throw Error(ErrorCode::kFileDamaged,
                where + " has the shape " + shapeText(place.tensor->shape) + " instead of " +
                    shapeText(expected) + ".",
                "Check that config.json belongs to these files.");
  }
  SourceTensor source;
  source.view.type = *type;
  source.view.rows = spec.rows;
  source.view.cols = spec.cols;
  source.view.data = place.tensor->data.data();
  source.bytes = place.tensor->data;
  source.fileBytes = place.tensor->data.size();
  source.where = where;
  return source;
}

std::unique_ptr<ModelReader> openModelReader(const fs::path& folder) {
  return std::make_unique<HfModelReader>(folder);
}

}  // namespace longhand::engine
