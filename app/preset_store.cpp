#include "app/preset_store.h"

#include <QJsonDocument>
#include <QJsonObject>
#include <QSqlQuery>
#include <QVariant>

#include "app/database.h"
#include "app/error_text.h"
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
  QJsonObject object;
  object.insert(u"key_bits", config.keyNbits);
  object.insert(u"value_bits", config.valueNbits);
  object.insert(u"group_size", config.groupSize);
  object.insert(u"residual_length", qint64{config.residualLength});
  object.insert(u"sink_length", qint64{config.sinkLength});
  object.insert(u"sliding_window", qint64{config.slidingWindow});
  object.insert(u"first_layers", config.firstLayers);
  object.insert(u"first_layers_key_bits", config.firstLayersKeyNbits);
  object.insert(u"first_layers_value_bits", config.firstLayersValueNbits);
  object.insert(u"scheme", config.scheme == kernels::QuantScheme::kSymmetric
                               ? QStringLiteral("symmetric")
                               : QStringLiteral("asymmetric"));
  object.insert(u"solver", config.solver == kernels::QuantSolver::kHqq ? QStringLiteral("hqq")
                                                                       : QStringLiteral("minmax"));
  return QString::fromUtf8(QJsonDocument(object).toJson(QJsonDocument::Compact));
}

engine::KvCacheConfig cacheConfigFromJson(const QString& json) {
  QJsonParseError error;
  const QJsonDocument document = QJsonDocument::fromJson(json.toUtf8(), &error);
  if (!document.isObject()) {
    throwError(engine::ErrorCode::kFileDamaged,
               QStringLiteral("Cache settings are not readable (%1).").arg(error.errorString()));
  }
  const QJsonObject object = document.object();
  engine::KvCacheConfig config;
  config.keyNbits = object.value(u"key_bits").toInt(config.keyNbits);
  config.valueNbits = object.value(u"value_bits").toInt(config.valueNbits);
  config.groupSize = object.value(u"group_size").toInt(config.groupSize);
  config.residualLength = object.value(u"residual_length").toInteger(config.residualLength);
  config.sinkLength = object.value(u"sink_length").toInteger(config.sinkLength);
  config.slidingWindow = object.value(u"sliding_window").toInteger(config.slidingWindow);
  config.firstLayers = object.value(u"first_layers").toInt(config.firstLayers);
  config.firstLayersKeyNbits =
      object.value(u"first_layers_key_bits").toInt(config.firstLayersKeyNbits);
  config.firstLayersValueNbits =
      object.value(u"first_layers_value_bits").toInt(config.firstLayersValueNbits);
  if (object.value(u"scheme").toString() == QStringLiteral("symmetric")) {
    config.scheme = kernels::QuantScheme::kSymmetric;
  }
  if (object.value(u"solver").toString() == QStringLiteral("hqq")) {
    config.solver = kernels::QuantSolver::kHqq;
  }
  config.validate();
  return config;
}

QString cacheConfigSummary(const engine::KvCacheConfig& config) {
  const bool isExact = config.keyNbits == 16 && config.valueNbits == 16;
  const QString window = config.slidingWindow > 0
                             ? QStringLiteral(", window of %1 tokens").arg(config.slidingWindow)
                             : QString();
  if (isExact && config.firstLayers == 0) return QStringLiteral("16 bits, exact") + window;
  QString summary = QStringLiteral("K%1 V%2, groups of %3, residual %4")
                        .arg(config.keyNbits)
                        .arg(config.valueNbits)
                        .arg(config.groupSize)
                        .arg(config.residualLength);
  if (config.firstLayers > 0) {
    summary += QStringLiteral(", first %1 layers K%2 V%3")
                   .arg(config.firstLayers)
                   .arg(config.firstLayersKeyNbits)
                   .arg(config.firstLayersValueNbits);
  }
  return summary + window;
}

}  // namespace longhand::app
