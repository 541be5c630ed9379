#pragma once
// What the engine's thread tells the others: results of commands, and news of the device and of
// memory. Immutable values that cross threads.

#include <cstdint>
#include <optional>
#include <vector>

#include <QString>

#include "engine/engine.h"

namespace longhand::app {

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

struct ConfiguredCache {
  engine::KvCacheConfig config;
  std::int64_t contextLength = 0;
  engine::CacheConversion conversion;  // of configureCache: nothing is kept
};

struct EncodedPrompt {
  std::vector<std::int32_t> tokens;
  std::int64_t reusableTokens = 0;  // of them: in the cache already
};

struct PrefillOutcome {
  engine::PrefillProgress progress;  // at its end, with the rate over all of it
  bool isCancelled = false;          // what was read so far may be kept or not
};

/// Some tokens more of an answer; about 30 of these come a second.
struct AnswerPiece {
  QString text;  // to append
  std::int64_t newTokens = 0;
};

/// The device failed and was started again, or the CPU goes on. Commands that compute go on, too.
struct DeviceRestart {
  QString sentence;  // for people
  QString backendDescription;
  QString whyNotDevice;
  bool isReady = true;  // false: the model is loaded again by the next command, with an empty cache
};

struct MemoryNews {
  engine::MemoryReport report;
  std::optional<engine::CacheContents> contents;  // between commands; while one runs there is none
};

}  // namespace longhand::app
