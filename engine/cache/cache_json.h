#pragma once
// The one form in which cache settings are written for others: an object of JSON with the names of
// cache_fields.h. In presets.json, in the database and in what the program prints with --json.

#include <initializer_list>
#include <string>
#include <string_view>

#include "engine/cache/kv_cache_config.h"

#include <nlohmann/json_fwd.hpp>

namespace longhand::engine {

/// All settings but exactType.
nlohmann::json writeCacheConfig(const KvCacheConfig& config);
/// What the object does not say is the default; exactType always is. `others` are keys that may
/// stand beside the settings. Throws Error kFileDamaged with a sentence that names the key.
KvCacheConfig readCacheConfig(const nlohmann::json& object,
                              std::initializer_list<std::string_view> others = {});

/// Likewise as text, on one line.
std::string cacheConfigText(const KvCacheConfig& config);
KvCacheConfig cacheConfigFromText(std::string_view text);

}  // namespace longhand::engine
