#include "engine/cache/presets.h"

#include <set>

#include "engine/base/error.h"
#include "engine/cache/cache_json.h"
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

Preset readPreset(const json& object) {
  if (!object.is_object()) throw Error(ErrorCode::kFileDamaged, "it is no object");
  return {textOf(object, "id"), textOf(object, "name"), textOf(object, "description"),
          readCacheConfig(object, {"id", "name", "description"})};
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
