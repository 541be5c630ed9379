#include "app/settings.h"

#include <exception>
#include <functional>
#include <utility>

#include <QHash>
#include <QSqlQuery>
#include <QVariant>

#include "app/database.h"
#include "app/error_text.h"
#include "app/preset_store.h"
#include "engine/model/weight_names.h"

namespace longhand::app {

namespace {

constexpr int kMaxThreads = 1024;
constexpr std::int64_t kMaxSessionQuotaBytes = std::int64_t{1} << 50U;

void checkRange(const QString& what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throwError(engine::ErrorCode::kInvalidArgument,
             QStringLiteral("%1 is %2; it must be between %3 and %4.")
                 .arg(what)
                 .arg(value)
                 .arg(least)
                 .arg(most));
}

void checkContextLength(std::int64_t value) {
  checkRange(QStringLiteral("The context length"), value, 0, engine::kMaxContextLength);
}
void checkMaxAnswerTokens(std::int64_t value) {
  checkRange(QStringLiteral("The largest number of tokens of an answer"), value, 0,
             engine::kMaxContextLength);
}
void checkThreads(std::int64_t value) {
  checkRange(QStringLiteral("The number of threads"), value, 0, kMaxThreads);
}

void checkSessionQuota(std::int64_t value) {
  checkRange(QStringLiteral("The disk space for chats"), value, 0, kMaxSessionQuotaBytes);
}
void checkKeptMinTokens(std::int64_t value) {
  checkRange(QStringLiteral("The smallest number of tokens that is kept on disk"), value, 1,
             engine::kMaxContextLength);
}

engine::WeightFormat weightFormatFromName(const QString& name) {
  const auto format = engine::weightFormatOf(name.toStdString());
  if (format) return *format;
  throwError(engine::ErrorCode::kInvalidArgument,
             QStringLiteral("There is no weight format \"%1\".").arg(name));
}

std::int64_t toInteger(const QVariant& value) {
  bool ok = false;
  const qlonglong number = value.toLongLong(&ok);
  if (!ok) throwError(engine::ErrorCode::kInvalidArgument, QStringLiteral("Not a number."));
  return number;
}

double toReal(const QVariant& value) {
  bool ok = false;
  const double number = value.toDouble(&ok);
  if (!ok) throwError(engine::ErrorCode::kInvalidArgument, QStringLiteral("Not a number."));
  return number;
}

/// The sampler with one value replaced, checked.
engine::SamplerConfig withSampler(engine::SamplerConfig sampler,
                                  const std::function<void(engine::SamplerConfig&)>& change) {
  change(sampler);
  sampler.validate();
  return sampler;
}

}  // namespace

SettingsStore::SettingsStore(Database& database) : database_(database) {}

Settings SettingsStore::load(QStringList* reset) const {
  QHash<QString, QVariant> stored;
  QSqlQuery query = database_.prepare(QStringLiteral("SELECT key, value FROM settings"));
  database_.run(query);
  while (query.next()) stored.insert(query.value(0).toString(), query.value(1));

  Settings settings;
  // A value that is out of range costs that value, not the others.
  const auto read = [&](const char16_t* key, const std::function<void(const QVariant&)>& take) {
    const QString name = QString::fromUtf16(key);
    const auto found = stored.constFind(name);
    if (found == stored.constEnd()) return;
    try {
      take(*found);
    } catch (const engine::Error&) {
      if (reset != nullptr) reset->append(name);
    }
  };
  const auto readSampler = [&](const char16_t* key, auto member) {
    read(key, [&](const QVariant& value) {
      settings.sampler = withSampler(settings.sampler, [&](engine::SamplerConfig& sampler) {
        using Value = std::remove_reference_t<decltype(sampler.*member)>;
        if constexpr (std::is_floating_point_v<Value>) {
          sampler.*member = toReal(value);
        } else {
          sampler.*member = static_cast<Value>(toInteger(value));
        }
      });
    });
  };

  read(u"model_folder", [&](const QVariant& v) { settings.modelFolder = v.toString(); });
  read(u"weights",
       [&](const QVariant& v) { settings.weights = weightFormatFromName(v.toString()); });
  read(u"preset_id", [&](const QVariant& v) { settings.presetId = v.toString(); });
  read(u"custom_cache",
       [&](const QVariant& v) { settings.customCache = cacheConfigFromJson(v.toString()); });
  read(u"context_length", [&](const QVariant& v) {
    checkContextLength(toInteger(v));
    settings.contextLength = toInteger(v);
  });
  readSampler(u"temperature", &engine::SamplerConfig::temperature);
  readSampler(u"top_k", &engine::SamplerConfig::topK);
  readSampler(u"top_p", &engine::SamplerConfig::topP);
  readSampler(u"min_p", &engine::SamplerConfig::minP);
  readSampler(u"repetition_penalty", &engine::SamplerConfig::repetitionPenalty);
  readSampler(u"repetition_window", &engine::SamplerConfig::repetitionWindow);
  readSampler(u"seed", &engine::SamplerConfig::seed);
  read(u"max_answer_tokens", [&](const QVariant& v) {
    checkMaxAnswerTokens(toInteger(v));
    settings.maxAnswerTokens = toInteger(v);
  });
  read(u"threads", [&](const QVariant& v) {
    checkThreads(toInteger(v));
    settings.threads = static_cast<int>(toInteger(v));
  });
  read(u"keep_sessions", [&](const QVariant& v) { settings.keepsSessions = toInteger(v) != 0; });
  read(u"session_quota_bytes", [&](const QVariant& v) {
    checkSessionQuota(toInteger(v));
    settings.sessionQuotaBytes = toInteger(v);
  });
  read(u"kept_min_tokens", [&](const QVariant& v) {
    checkKeptMinTokens(toInteger(v));
    settings.keptMinTokens = toInteger(v);
  });
  read(u"last_conversation_id",
       [&](const QVariant& v) { settings.lastConversationId = toInteger(v); });
  read(u"new_chat_draft", [&](const QVariant& v) { settings.newChatDraft = v.toString(); });
  read(u"window_geometry", [&](const QVariant& v) { settings.windowGeometry = v.toByteArray(); });
  read(u"window_state", [&](const QVariant& v) { settings.windowState = v.toByteArray(); });
  return settings;
}

void SettingsStore::save(const Settings& settings) {
  settings.customCache.validate();
  settings.sampler.validate();
  checkContextLength(settings.contextLength);
  checkMaxAnswerTokens(settings.maxAnswerTokens);
  checkThreads(settings.threads);
  checkSessionQuota(settings.sessionQuotaBytes);
  checkKeptMinTokens(settings.keptMinTokens);

  const engine::SamplerConfig& sampler = settings.sampler;
  const std::vector<std::pair<QString, QVariant>> values = {
      {QStringLiteral("model_folder"), settings.modelFolder},
      {QStringLiteral("weights"), app::weightFormatName(settings.weights)},
      {QStringLiteral("preset_id"), settings.presetId},
      {QStringLiteral("custom_cache"), cacheConfigToJson(settings.customCache)},
      {QStringLiteral("context_length"), qlonglong{settings.contextLength}},
      {QStringLiteral("temperature"), sampler.temperature},
      {QStringLiteral("top_k"), sampler.topK},
      {QStringLiteral("top_p"), sampler.topP},
      {QStringLiteral("min_p"), sampler.minP},
      {QStringLiteral("repetition_penalty"), sampler.repetitionPenalty},
      {QStringLiteral("repetition_window"), sampler.repetitionWindow},
      // SQLite has signed integers only: the same 64 bits.
      {QStringLiteral("seed"), static_cast<qlonglong>(sampler.seed)},
      {QStringLiteral("max_answer_tokens"), qlonglong{settings.maxAnswerTokens}},
      {QStringLiteral("threads"), settings.threads},
      {QStringLiteral("keep_sessions"), settings.keepsSessions ? 1 : 0},
      {QStringLiteral("session_quota_bytes"), qlonglong{settings.sessionQuotaBytes}},
      {QStringLiteral("kept_min_tokens"), qlonglong{settings.keptMinTokens}},
      {QStringLiteral("last_conversation_id"), qlonglong{settings.lastConversationId}},
      {QStringLiteral("new_chat_draft"), settings.newChatDraft},
      {QStringLiteral("window_geometry"), settings.windowGeometry},
      {QStringLiteral("window_state"), settings.windowState},
  };
  database_.transaction([&] {
    for (const auto& [key, value] : values) {
      QSqlQuery query = database_.prepare(
          QStringLiteral("INSERT INTO settings (key, value) VALUES (?, ?) "
                         "ON CONFLICT (key) DO UPDATE SET value = excluded.value"));
      query.addBindValue(key);
      query.addBindValue(value);
      database_.run(query);
    }
  });
}

QString weightFormatName(engine::WeightFormat format) {
  return QString::fromStdString(engine::weightFormatName(format));
}

}  // namespace longhand::app
