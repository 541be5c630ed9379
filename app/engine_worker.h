#pragma once
// The one thread that owns the Engine. Commands go in through one queue and are carried out one
// after the other; each ends with exactly one event: its result, or CommandFailedEvent (setThreads
// and clearCache have no result).
//
//   EngineWorker worker;
//   connect(&worker, &EngineWorker::modelLoaded, this, ...);
//   worker.loadModel(folder, options);
//
// All functions and all signals: the object's thread. No function waits, and no exception leaves
// the worker thread. Events that are under way when the object dies are dropped.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <QObject>
#include <QString>

#include "app/events.h"
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

  /// -> modelLoadProgressed..., modelLoaded. The model before stays until the new one is loaded,
  /// and if that fails; where memory cannot hold both it is released first -> modelReleased.
  CommandId loadModel(const QString& folder, const engine::EngineOptions& options);
  /// -> cacheConfigured. Contents are forgotten.
  CommandId configureCache(const engine::KvCacheConfig& config, std::int64_t contextLength);
  /// -> convertProgressed..., cacheConfigured. Contents are kept where Engine::convertCache can.
  CommandId convertCache(const engine::KvCacheConfig& config, std::int64_t contextLength);
  CommandId setThreads(int threads);
  /// Forgets the cache's contents and gives their memory back.
  CommandId clearCache();
  /// -> tokenCountProgressed..., tokensCounted.
  CommandId countTokens(const QString& text);
  /// -> promptEncoded.
  CommandId encodePrompt(ChatPrompt prompt);
  /// Reads ahead, so that a later generate() starts at once -> prefillProgressed...,
  /// prefillFinished.
  CommandId prefill(std::vector<std::int32_t> prompt);
  /// -> prefillProgressed..., answerGrew..., answerFinished (also when cancelled).
  CommandId generate(std::vector<std::int32_t> prompt, const engine::GenerateOptions& options);

  /// Writes the cache to a file, unless that would have more than `mostBytes` bytes ->
  /// sessionProgressed..., sessionSaved.
  CommandId saveSession(const QString& path, std::uint64_t mostBytes);
  /// Puts a file's contents in place of the cache -> sessionProgressed..., sessionRestored. When it
  /// fails, the cache is as it was, or empty.
  CommandId restoreSession(const QString& path);

  /// Measures what presets lose on a text; the cache and its contents are not touched ->
  /// qualityProgressed..., qualityChecked.
  CommandId checkQuality(QualityCheckRequest request);

  /// Takes effect at once on the running command; a waiting one will fail with kCancelled.
  void cancel(CommandId command);
  void cancelAll();

 signals:
  void modelLoadProgressed(const longhand::app::LoadProgressEvent& event);
  void modelLoaded(const longhand::app::ModelLoadedEvent& event);
  void modelReleased(const longhand::app::ModelReleasedEvent& event);
  void deviceRestarted(const longhand::app::DeviceRestartedEvent& event);
  void commandFailed(const longhand::app::CommandFailedEvent& event);
  void cacheConfigured(const longhand::app::CacheConfiguredEvent& event);
  void convertProgressed(const longhand::app::ConvertProgressEvent& event);
  void tokenCountProgressed(const longhand::app::TokenCountProgressEvent& event);
  void tokensCounted(const longhand::app::TokensCountedEvent& event);
  void promptEncoded(const longhand::app::PromptEncodedEvent& event);
  void prefillProgressed(const longhand::app::PrefillProgressEvent& event);
  void prefillFinished(const longhand::app::PrefillFinishedEvent& event);
  void answerGrew(const longhand::app::AnswerGrewEvent& event);
  void answerFinished(const longhand::app::AnswerFinishedEvent& event);
  void sessionProgressed(const longhand::app::SessionProgressEvent& event);
  void sessionSaved(const longhand::app::SessionSavedEvent& event);
  void sessionRestored(const longhand::app::SessionRestoredEvent& event);
  void qualityProgressed(const longhand::app::QualityProgressEvent& event);
  void qualityChecked(const longhand::app::QualityCheckedEvent& event);
  /// After each command, and 4 times a second during prefill and generate.
  void memoryReported(const longhand::app::MemoryEvent& event);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhand::app
