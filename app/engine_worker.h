#pragma once
// The one thread that owns the Engine. Commands go in through one queue and are carried out one
// after the other; each has exactly one reply (app/job.h).
//
//   EngineWorker worker;
//   Job load = worker.loadModel(folder, options, {}, [](const Outcome<ModelInfo>& loaded) { ... });
//
// All functions, replies and signals: the object's thread. No function waits, and no exception
// leaves the worker thread. Replies that are under way when the object dies are dropped.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <QObject>
#include <QString>

#include "app/engine_replies.h"
#include "app/job.h"
#include "app/quality_check.h"
#include "engine/engine.h"
#include "engine/text/chat_template.h"

namespace longhand::app {

/// What is to be encoded: a whole chat in the model's template.
struct ChatPrompt {
  std::string system;
  std::vector<engine::ChatTurn> turns;
};

class EngineWorker final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(EngineWorker)

 public:
  explicit EngineWorker(QObject* parent = nullptr);
  /// Cancels everything except the saving of sessions, and waits for the thread; takes as long as
  /// the engine needs to notice the stop, at most about a second, and as the disk needs.
  ~EngineWorker() override;

  using ByteProgress = Progress<std::uint64_t /*done*/, std::uint64_t /*total*/>;

  /// The model before stays until the new one is loaded, and if that fails; where memory cannot
  /// hold both it is released first -> modelReleased.
  Job loadModel(const QString& folder, const engine::EngineOptions& options, ByteProgress progress,
                Reply<ModelInfo> reply);
  /// Contents are forgotten.
  Job configureCache(const engine::KvCacheConfig& config, std::int64_t contextLength,
                     Reply<ConfiguredCache> reply);
  /// Contents are kept where Engine::convertCache can. Progress: pages, in bytes.
  Job convertCache(const engine::KvCacheConfig& config, std::int64_t contextLength,
                   ByteProgress progress, Reply<ConfiguredCache> reply);
  /// Without a model, nothing happens.
  void setThreads(int threads);
  /// Forgets the cache's contents and gives their memory back.
  void clearCache();
  /// Progress: of the text, in UTF-8.
  Job countTokens(const QString& text, ByteProgress progress, Reply<std::int64_t> reply);
  Job encodePrompt(ChatPrompt prompt, Reply<EncodedPrompt> reply);
  /// Reads ahead, so that a later generate() starts at once.
  Job prefill(std::vector<std::int32_t> prompt, Progress<const engine::PrefillProgress&> progress,
              Reply<PrefillOutcome> reply);
  /// `grew` is called with each piece of the answer; the result has the whole, also when cancelled.
  Job generate(std::vector<std::int32_t> prompt, const engine::GenerateOptions& options,
               Progress<const engine::PrefillProgress&> progress, Progress<const AnswerPiece&> grew,
               Reply<engine::GenerateResult> reply);

  /// Writes the cache to a file, unless that would have more than `mostBytes` bytes. Replies with
  /// its size when it is on the disk. Carried out even when the worker is being destroyed.
  Job saveSession(const QString& path, std::uint64_t mostBytes, Reply<std::uint64_t> reply);
  /// Puts a file's contents in place of the cache and replies with its tokens. When it fails, the
  /// cache is as it was, or empty.
  Job restoreSession(const QString& path, ByteProgress progress, Reply<std::int64_t> reply);

  /// Measures what presets lose on a text; the cache and its contents are not touched.
  Job checkQuality(QualityCheckRequest request, Progress<const QualityCheckProgress&> progress,
                   Reply<QualityCheckResult> reply);

 signals:
  /// A new model needed the memory of the one before; until it is loaded there is none.
  void modelReleased();
  void deviceRestarted(const longhand::app::DeviceRestart& restart);
  /// After each command, and 4 times a second during prefill and generate.
  void memoryReported(const longhand::app::MemoryNews& news);

 private:
  friend class Job;
  bool isAwaited(std::uint64_t command) const;
  void cancel(std::uint64_t command);
  void forget(std::uint64_t command);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhand::app
