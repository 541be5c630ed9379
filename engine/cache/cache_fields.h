#pragma once
// The settings of the KV cache as a table: names, limits and one line of meaning of each. Files,
// databases, the options of the program and KvCacheConfig::validate() go through it, so that a
// setting has one name and one range everywhere.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/cache/kv_cache_config.h"

namespace longhand::engine {

/// One setting. Its value is a number; a setting with `names` is written as the name of that index.
struct CacheField {
  std::string_view name;        // "residual_length": in JSON; "--residual-length" as an option
  std::string_view words;       // "residual length": in sentences
  std::string_view meaning;     // for --help
  std::string_view unit;        // of the option's value: "TOKENS"; "": a plain number
  std::span<const int> values;  // all there are; empty: 0 to `most`
  std::span<const std::string_view> names;  // likewise
  std::int64_t most = 0;
  std::int64_t (*get)(const KvCacheConfig& config) = nullptr;
  void (*set)(KvCacheConfig& config, std::int64_t value) = nullptr;  // of a value without fault

  /// Why `value` is refused: "must be 32, 64 or 128, not 5"; "" when it is none.
  std::string faultOf(std::int64_t value) const;
  /// Of a setting with `names`; nothing for an unknown one.
  std::optional<std::int64_t> valueOf(std::string_view valueName) const;
  /// "hqq", "128": as files and options spell it.
  std::string textOf(std::int64_t value) const;
  /// "minmax or hqq": what it may be.
  std::string choices() const;
};

/// All settings but exactType, which follows from the weights and is no one's choice.
std::span<const CacheField> cacheFields();

/// "bits of keys 8 instead of 4, solver hqq instead of minmax": what differs, for people.
std::string cacheDifferences(const KvCacheConfig& config, const KvCacheConfig& other);

}  // namespace longhand::engine
