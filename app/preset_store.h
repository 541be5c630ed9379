#pragma once
// All presets the user can choose: the built-in ones, the user's own, and "custom".

#include <optional>
#include <vector>

#include <QString>

#include "engine/cache/kv_cache_config.h"

namespace longhand::app {

class Database;

struct PresetInfo {
  QString id;
  QString name;
  QString description;  // one sentence: what it is for and what it costs
  engine::KvCacheConfig cache;
  bool builtIn = true;
};

class PresetStore {
 public:
  /// `database` must outlive the store.
  explicit PresetStore(Database& database);

  /// Built-in ones in the order of presets.json, then the user's own by name; unreadable ones
  /// are left out. Throws kDatabase.
  std::vector<PresetInfo> presets() const;
  /// One of them; nothing where there is none. Asks the database for the user's own only.
  std::optional<PresetInfo> preset(const QString& id) const;
  /// The built-in one with these values; nothing where there is none.
  static std::optional<PresetInfo> builtInWith(const engine::KvCacheConfig& cache);
  /// Stores one of the user's own and returns its new id. Throws kInvalidArgument for an empty name
  /// or values out of range, kDatabase.
  QString addUserPreset(const QString& name, const engine::KvCacheConfig& cache);
  void removeUserPreset(const QString& id);

 private:
  Database& database_;
};

/// JSON of a cache config, for the database. The keys are the field names of presets.json.
QString cacheConfigToJson(const engine::KvCacheConfig& config);
/// Throws kFileDamaged for what is no JSON, unknown or out of range.
engine::KvCacheConfig cacheConfigFromJson(const QString& json);

/// "K4 V2, groups of 64, residual 128": for people.
QString cacheConfigSummary(const engine::KvCacheConfig& config);

}  // namespace longhand::app
