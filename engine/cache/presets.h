#pragma once
// The presets of resources/presets.json, which is compiled into the engine.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/kv_cache_config.h"

namespace longhand::engine {

struct Preset {
  std::string id;           // "quality": for options and files
  std::string name;         // "Quality"
  std::string description;  // one sentence: what it is for and what it costs
  KvCacheConfig cache;
};

/// In the order of the file. The default is the one called `kDefaultPresetId`.
const std::vector<Preset>& builtInPresets();
inline constexpr std::string_view kDefaultPresetId = "quality";
/// Throws Error kInvalidArgument with the list of ids.
const Preset& presetById(std::string_view id);
/// Presets of a JSON text in the same form (the user's own). Throws kFileDamaged.
std::vector<Preset> parsePresets(std::string_view json, std::string_view fileName);

}  // namespace longhand::engine
