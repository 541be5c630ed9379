#include "app/preset_store.h"

#include <QSqlQuery>
#include <QVariant>

#include "app/database.h"
#include "app/error_text.h"
#include "engine/cache/cache_json.h"
#include "engine/cache/presets.h"

namespace longhand::app {

namespace {

// Ids of the user's own presets are this and the row's number, so that they never meet a built-in
// id.
const QString kUserPrefix = QStringLiteral("user-");

std::int64_t rowOf(const QString& id) {
  return id.startsWith(kUserPrefix) ? id.mid(kUserPrefix.size()).toLongLong() : 0;
}

PresetInfo builtIn(const engine::Preset& preset) {
  return {QString::fromStdString(preset.id), QString::fromStdString(preset.name),
          QString::fromStdString(preset.description), preset.cache, true};
}

/// Of a row of id, name and cache. Throws what cacheConfigFromJson does.
PresetInfo userPreset(const QSqlQuery& row) {
  const engine::KvCacheConfig cache = cacheConfigFromJson(row.value(2).toString());
  return {kUserPrefix + row.value(0).toString(), row.value(1).toString(),
          cacheConfigSummary(cache) + QLatin1Char('.'), cache, false};
}

}  // namespace

PresetStore::PresetStore(Database& database) : database_(database) {}

std::vector<PresetInfo> PresetStore::presets() const {
  std::vector<PresetInfo> result;
  for (const engine::Preset& preset : engine::builtInPresets()) result.push_back(builtIn(preset));
  QSqlQuery query = database_.prepare(
      QStringLiteral("SELECT id, name, cache FROM user_presets ORDER BY name, id"));
  database_.run(query);
  while (query.next()) {
    try {
      result.push_back(userPreset(query));
    } catch (const engine::Error&) {
      // One unreadable preset does not hide the others.
    }
  }
  return result;
}

std::optional<PresetInfo> PresetStore::preset(const QString& id) const {
  for (const engine::Preset& preset : engine::builtInPresets()) {
    if (id == QString::fromStdString(preset.id)) return builtIn(preset);
  }
  if (rowOf(id) == 0) return std::nullopt;
  QSqlQuery query =
      database_.prepare(QStringLiteral("SELECT id, name, cache FROM user_presets WHERE id = ?"));
  query.addBindValue(QVariant(qlonglong{rowOf(id)}));
  database_.run(query);
  try {
    return query.next() ? std::optional(userPreset(query)) : std::nullopt;
  } catch (const engine::Error&) {
    return std::nullopt;
  }
}

std::optional<PresetInfo> PresetStore::builtInWith(const engine::KvCacheConfig& cache) {
  for (const engine::Preset& preset : engine::builtInPresets()) {
    if (preset.cache == cache) return builtIn(preset);
  }
  return std::nullopt;
}

QString PresetStore::addUserPreset(const QString& name, const engine::KvCacheConfig& cache) {
  if (name.trimmed().isEmpty()) {
    throwError(engine::ErrorCode::kInvalidArgument, QStringLiteral("A preset needs a name."));
  }
  cache.validate();
  QSqlQuery query =
      database_.prepare(QStringLiteral("INSERT INTO user_presets (name, cache) VALUES (?, ?)"));
  query.addBindValue(name.trimmed());
  query.addBindValue(cacheConfigToJson(cache));
  database_.run(query);
  return kUserPrefix + query.lastInsertId().toString();
}

void PresetStore::removeUserPreset(const QString& id) {
  QSqlQuery query = database_.prepare(QStringLiteral("DELETE FROM user_presets WHERE id = ?"));
  query.addBindValue(QVariant(qlonglong{rowOf(id)}));
  database_.run(query);
}

QString cacheConfigToJson(const engine::KvCacheConfig& config) {
  return QString::fromStdString(engine::cacheConfigText(config));
}

engine::KvCacheConfig cacheConfigFromJson(const QString& json) {
  return engine::cacheConfigFromText(json.toStdString());
}

QString cacheConfigSummary(const engine::KvCacheConfig& config) {
  return QString::fromStdString(engine::cacheSummary(config));
}

}  // namespace longhand::app
