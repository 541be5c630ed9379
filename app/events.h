#pragma once
// What the engine's thread tells the others. Immutable values; they cross threads by queued
// signals. Every event names the command it answers.

#include <cstdint>
#include <optional>
#include <vector>

#include <QMetaType>
#include <QString>

#include "app/error_text.h"
#include "app/quality_check.h"
#include "engine/engine.h"

namespace longhand::app {

/// Number of a command given to the EngineWorker; never 0, never used twice.
using CommandId = std::uint64_t;

struct ModelInfo {
  QString folder;
  QString name;  // for people
  engine::ModelConfig config;
  engine::WeightFormat weights = engine::WeightFormat::kAuto;
  std::uint64_t weightBytes = 0;
  std::uint64_t tokenizerFingerprint = 0;
  QString backendDescription;      // "CPU, AVX-512, 2 threads"
  QString whyNotDevice;            // one sentence why no graphics card is used; or empty
  std::int64_t contextLength = 0;  // allowed now; config.trainedLength is what it was trained for
  bool isDemo = false;
};

struct LoadProgressEvent {
  CommandId command = 0;
  std::uint64_t doneBytes = 0;
  std::uint64_t totalBytes = 0;
};

struct ModelLoadedEvent {
  CommandId command = 0;
  ModelInfo model;
};

/// The device failed and was started again, or the CPU goes on. Commands that compute go on, too.
struct DeviceRestartedEvent {
  QString sentence;  // for people
  QString backendDescription;
  QString whyNotDevice;
  bool isReady = true;  // false: the model is loaded again by the next command, with an empty cache
};

/// A command that ended without its result. Cancelling a command that gives no partial result ends
/// it with the code kCancelled.
struct CommandFailedEvent {
  CommandId command = 0;
  ErrorText error;
};

struct CacheConfiguredEvent {
  CommandId command = 0;
  engine::KvCacheConfig config;
  std::int64_t contextLength = 0;
  engine::CacheConversion conversion;  // of configureCache: nothing is kept
};

struct TokenCountProgressEvent {
  CommandId command = 0;
  std::uint64_t doneBytes = 0;  // of the text, in UTF-8
  std::uint64_t totalBytes = 0;
};

struct TokensCountedEvent {
  CommandId command = 0;
  std::int64_t tokens = 0;
};

struct PromptEncodedEvent {
  CommandId command = 0;
  std::vector<std::int32_t> tokens;
  std::int64_t reusableTokens = 0;  // of them: in the cache already
};

struct PrefillProgressEvent {
  CommandId command = 0;
  engine::PrefillProgress progress;
};

struct PrefillFinishedEvent {
  CommandId command = 0;
  engine::PrefillProgress progress;  // at its end, with the rate over all of it
  bool cancelled = false;            // what was read so far may be kept or not
};

/// Some tokens more; about 30 of these come a second.
struct AnswerGrewEvent {
  CommandId command = 0;
  QString text;  // to append
  std::int64_t newTokens = 0;
};

/// A new model needed the memory of the one before; until it is loaded there is none.
struct ModelReleasedEvent {
  CommandId command = 0;
};

/// The cache is in its file, on the disk.
struct SessionSavedEvent {
  CommandId command = 0;
  std::uint64_t bytes = 0;
};

/// The cache is that of the file.
struct SessionRestoredEvent {
  CommandId command = 0;
  std::int64_t tokens = 0;
};

struct SessionProgressEvent {
  CommandId command = 0;
  std::uint64_t doneBytes = 0;
  std::uint64_t totalBytes = 0;
};

/// Of convertCache: pages, in bytes.
struct ConvertProgressEvent {
  CommandId command = 0;
  std::uint64_t doneBytes = 0;
  std::uint64_t totalBytes = 0;
};

struct QualityProgressEvent {
  CommandId command = 0;
  QualityCheckProgress progress;
};

struct QualityCheckedEvent {
  CommandId command = 0;
  QualityCheckResult result;
};

struct AnswerFinishedEvent {
  CommandId command = 0;
  engine::GenerateResult result;  // its text and tokens are the whole answer
};

struct MemoryEvent {
  engine::MemoryReport report;
  std::optional<engine::CacheContents> contents;  // between commands; while one runs there is none
};

}  // namespace longhand::app

Q_DECLARE_METATYPE(longhand::app::ErrorText)
Q_DECLARE_METATYPE(longhand::app::ModelInfo)
Q_DECLARE_METATYPE(longhand::app::LoadProgressEvent)
Q_DECLARE_METATYPE(longhand::app::ModelLoadedEvent)
Q_DECLARE_METATYPE(longhand::app::DeviceRestartedEvent)
Q_DECLARE_METATYPE(longhand::app::CommandFailedEvent)
Q_DECLARE_METATYPE(longhand::app::CacheConfiguredEvent)
Q_DECLARE_METATYPE(longhand::app::TokenCountProgressEvent)
Q_DECLARE_METATYPE(longhand::app::TokensCountedEvent)
Q_DECLARE_METATYPE(longhand::app::PromptEncodedEvent)
Q_DECLARE_METATYPE(longhand::app::PrefillProgressEvent)
Q_DECLARE_METATYPE(longhand::app::PrefillFinishedEvent)
Q_DECLARE_METATYPE(longhand::app::AnswerGrewEvent)
Q_DECLARE_METATYPE(longhand::app::AnswerFinishedEvent)
Q_DECLARE_METATYPE(longhand::app::SessionSavedEvent)
Q_DECLARE_METATYPE(longhand::app::SessionRestoredEvent)
Q_DECLARE_METATYPE(longhand::app::SessionProgressEvent)
Q_DECLARE_METATYPE(longhand::app::ModelReleasedEvent)
Q_DECLARE_METATYPE(longhand::app::ConvertProgressEvent)
Q_DECLARE_METATYPE(longhand::app::QualityProgressEvent)
Q_DECLARE_METATYPE(longhand::app::QualityCheckedEvent)
Q_DECLARE_METATYPE(longhand::app::MemoryEvent)
