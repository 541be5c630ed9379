#pragma once
// What the user has chosen, kept in the database.

#include <cstdint>

#include <QByteArray>
#include <QString>
#include <QStringList>

#include "engine/cache/kv_cache_config.h"
#include "engine/model/model.h"
#include "engine/sampler.h"

namespace longhand::app {

class Database;

/// Id of the preset that stands for Settings::customCache.
inline constexpr char16_t kCustomPresetId[] = u"custom";

struct Settings {
  QString modelFolder;  // empty: the bundled model
  engine::WeightFormat weights = engine::WeightFormat::kAuto;
  QString presetId = QStringLiteral("quality");  // of new conversations
  engine::KvCacheConfig customCache;             // the preset "custom", last used
  /// Of the open conversation; 0: the model's trained length, with which each new chat begins.
  std::int64_t contextLength = 0;
  engine::SamplerConfig sampler;
  std::int64_t maxAnswerTokens = 0;  // 0: until the context is full
  int threads = 0;                   // 0: all cores this process may use
  bool keepsSessions = true;         // caches of long chats are kept on disk
  std::int64_t sessionQuotaBytes = std::int64_t{10} << 30U;
  std::int64_t keptMinTokens = 1024;  // shorter chats are quicker read again than worth a file
  std::int64_t lastConversationId = 0;
  QString newChatDraft;  // what stands in the composer of a chat that is not stored yet
  QByteArray windowGeometry;
  QByteArray windowState;
};

class SettingsStore {
 public:
  /// `database` must outlive the store.
  explicit SettingsStore(Database& database);

  /// Values that are missing or out of range become the defaults; `reset` (may be null) gets the
  /// keys of the latter. Throws kDatabase.
  Settings load(QStringList* reset = nullptr) const;
  /// Throws kInvalidArgument for values out of range (nothing is stored then), kDatabase.
  void save(const Settings& settings);

 private:
  Database& database_;
};

/// As engine::weightFormatName(): for people and the database.
QString weightFormatName(engine::WeightFormat format);

}  // namespace longhand::app
