#include "engine/cache/presets.h"

#include <cstdint>
#include <initializer_list>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/cache/presets_json.h"

#include <nlohmann/json.hpp>

namespace longhand::engine {
namespace {

using nlohmann::json;

[[noreturn]] void throwDamaged(std::string_view fileName, const std::string& what) {
  throw Error(ErrorCode::kFileDamaged, std::string(fileName) + ": " + what + ".",
              "Correct the file, or delete it to go on without it.");
}

std::string textOf(const json& preset, const char* key) {
  const auto found = preset.find(key);
  if (found == preset.end() || !found->is_string() ||
      found->get_ref<const std::string&>().empty()) {
    throw Error(ErrorCode::kFileDamaged, std::string("\"") + key + "\" is missing or no text");
  }
  return found->get<std::string>();
}

template <typename Integer>
void readNumber(const json& value, const std::string& key, Integer& target) {
  if (!value.is_number_integer()) {
    throw Error(ErrorCode::kFileDamaged, "\"" + key + "\" is no whole number");
  }
  const auto number = value.get<std::int64_t>();
  if (!std::in_range<Integer>(number)) {
    throw Error(ErrorCode::kFileDamaged, "\"" + key + "\" is out of range");
  }
  target = static_cast<Integer>(number);
}

template <typename Value>
Value readChoice(const json& value, const std::string& key,
                 std::initializer_list<std::pair<std::string_view, Value>> choices) {
  for (const auto& [name, choice] : choices) {
    if (value.is_string() && value.get_ref<const std::string&>() == name) return choice;
  }
  throw Error(ErrorCode::kFileDamaged, "\"" + key + "\" has an unknown value");
}

void readField(const std::string& key, const json& value, KvCacheConfig& cache) {
  if (key == "key_bits") {
    readNumber(value, key, cache.keyNbits);
  } else if (key == "value_bits") {
    readNumber(value, key, cache.valueNbits);
  } else if (key == "group_size") {
    readNumber(value, key, cache.groupSize);
  } else if (key == "residual_length") {
    readNumber(value, key, cache.residualLength);
  } else if (key == "sink_length") {
    readNumber(value, key, cache.sinkLength);
  } else if (key == "sliding_window") {
    readNumber(value, key, cache.slidingWindow);
  } else if (key == "first_layers") {
    readNumber(value, key, cache.firstLayers);
  } else if (key == "first_layers_key_bits") {
    readNumber(value, key, cache.firstLayersKeyNbits);
  } else if (key == "first_layers_value_bits") {
    readNumber(value, key, cache.firstLayersValueNbits);
  } else if (key == "scheme") {
    cache.scheme =
        readChoice<kernels::QuantScheme>(value, key,
                                         {{"asymmetric", kernels::QuantScheme::kAsymmetric},
                                          {"symmetric", kernels::QuantScheme::kSymmetric}});
  } else if (key == "solver") {
    cache.solver = readChoice<kernels::QuantSolver>(
        value, key,
        {{"minmax", kernels::QuantSolver::kMinMax}, {"hqq", kernels::QuantSolver::kHqq}});
  } else if (key != "id" && key != "name" && key != "description") {
    throw Error(ErrorCode::kFileDamaged, "\"" + key + "\" is no setting of a preset");
  }
}

Preset readPreset(const json& object) {
  if (!object.is_object()) throw Error(ErrorCode::kFileDamaged, "it is no object");
  Preset preset{textOf(object, "id"), textOf(object, "name"), textOf(object, "description"), {}};
  for (const auto& [key, value] : object.items()) readField(key, value, preset.cache);
  preset.cache.validate();
  return preset;
}

}  // namespace

std::vector<Preset> parsePresets(std::string_view text, std::string_view fileName) {
  const json root = json::parse(text, nullptr, false);
  if (root.is_discarded()) throwDamaged(fileName, "this is no JSON");
  if (!root.is_object() || !root.contains("presets") || !root["presets"].is_array()) {
    throwDamaged(fileName, "the list \"presets\" is missing");
  }
  std::vector<Preset> presets;
  std::set<std::string> ids;
  for (const json& object : root["presets"]) {
    const std::string place = "preset " + std::to_string(presets.size() + 1) + ": ";
    try {
      presets.push_back(readPreset(object));
    } catch (const Error& error) {
      std::string reason = error.message();
      if (reason.ends_with('.')) reason.pop_back();
      throwDamaged(fileName, place + reason);
    }
    if (!ids.insert(presets.back().id).second) {
      throwDamaged(fileName, place + "the id \"" + presets.back().id + "\" stands twice");
    }
  }
  return presets;
}

const std::vector<Preset>& builtInPresets() {
  static const std::vector<Preset> presets = parsePresets(kPresetsJson, "presets.json");
  return presets;
}

const Preset& presetById(std::string_view id) {
  std::string known;
  for (const Preset& preset : builtInPresets()) {
    if (preset.id == id) return preset;
    known += (known.empty() ? "" : ", ") + preset.id;
  }
  throw Error(ErrorCode::kInvalidArgument, "There is no preset \"" + std::string(id) + "\".",
              "Presets: " + known + ".");
}

}  // namespace longhand::engine
