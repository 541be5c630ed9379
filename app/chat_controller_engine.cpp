// Model, context, reading ahead.
#include <algorithm>
#include <utility>

#include <QFile>
#include <QLocale>

#include "app/chat_controller_impl.h"
#include "engine/memory_plan.h"

namespace longhand::app {

using engine::ErrorCode;

namespace {

/// "70,400".
QString grouped(std::int64_t count) { return QLocale(QLocale::English).toString(qlonglong{count}); }

}  // namespace

void ChatController::Impl::connectEngineEvents() {
  EngineWorker* engineWorker = worker.get();
  connect(engineWorker, &EngineWorker::modelLoadProgressed, &owner,
          [this](const LoadProgressEvent& event) {
            if (event.command == load) emit owner.modelLoading(event.doneBytes, event.totalBytes);
          });
  connect(engineWorker, &EngineWorker::modelReleased, &owner,
          [this](const ModelReleasedEvent& /*event*/) { model.reset(); });
  connect(engineWorker, &EngineWorker::modelLoaded, &owner,
          [this](const ModelLoadedEvent& event) { guarded([&] { onModelLoaded(event); }); });
  connect(engineWorker, &EngineWorker::deviceRestarted, &owner,
          [this](const DeviceRestartedEvent& event) { onDeviceRestarted(event); });
  connect(engineWorker, &EngineWorker::commandFailed, &owner,
          [this](const CommandFailedEvent& event) { guarded([&] { onCommandFailed(event); }); });
  connect(engineWorker, &EngineWorker::promptEncoded, &owner,
          [this](const PromptEncodedEvent& event) { guarded([&] { onPromptEncoded(event); }); });
  connect(engineWorker, &EngineWorker::prefillProgressed, &owner,
          [this](const PrefillProgressEvent& event) {
            const bool isOurs = (answer && event.command == answer->generate) ||
                                (reading && event.command == reading->prefill);
            if (isOurs) emit owner.prefillProgress(event.progress);
          });
  connect(engineWorker, &EngineWorker::prefillFinished, &owner,
          [this](const PrefillFinishedEvent& event) { onPrefillFinished(event); });
  connect(
      engineWorker, &EngineWorker::cacheConfigured, &owner,
      [this](const CacheConfiguredEvent& event) { guarded([&] { onCacheConfigured(event); }); });
  connect(engineWorker, &EngineWorker::convertProgressed, &owner,
          [this](const ConvertProgressEvent& event) {
            if (presetSwitch && event.command == presetSwitch->configure) {
              emit owner.convertProgress(event.doneBytes, event.totalBytes);
            }
          });
  connect(engineWorker, &EngineWorker::tokensCounted, &owner,
          [this](const TokensCountedEvent& event) { guarded([&] { onTokensCounted(event); }); });
  connect(engineWorker, &EngineWorker::memoryReported, &owner,
          [this](const MemoryEvent& event) { onMemoryReported(event); });
}

// --- Model --------------------------------------------------------------------------------------

void ChatController::Impl::loadModel(const QString& folder, engine::WeightFormat weights) {
  QString modelFolder = folder;
  if (modelFolder.isEmpty()) modelFolder = demo ? demo->folder : QString();
  if (modelFolder.isEmpty()) {
    emit owner.modelFailed(
        QStringLiteral("No model is chosen, and the bundled one is not there."),
        QStringLiteral("Choose the folder of a Llama model in Hugging Face format."));
    return;
  }
  if (answer || reading) owner.stop();
  stopQualityCheck(QStringLiteral("The check was stopped: another model is being loaded."));
  if (load != 0) worker->cancel(load);

  loadChoice = {modelFolder, weights, wantedCache(), engineCache};
  engine::EngineOptions options;
  options.weights = weights;
  options.cache = loadChoice.cache.config;
  options.contextLength = loadChoice.cache.contextLength;
  options.threads = settings.threads;
  options.backend = "auto";
  options.cudaPlugin = QFile::encodeName(paths.cudaPlugin).toStdString();
  engineCache = loadChoice.cache;
  load = worker->loadModel(modelFolder, options);
  updateActivity();
  emit owner.modelLoading(0, 0);
}

void ChatController::Impl::onModelLoaded(const ModelLoadedEvent& event) {
  if (event.command != load) return;  // another one is on its way
  load = 0;
  model = event.model;
  cacheBelongsTo(0);
  refusedSessionOf = 0;
  lastPrefillTokensPerSecond = 0.0;
  const bool isBundled = demo && loadChoice.folder == demo->folder;
  settings.modelFolder = isBundled ? QString() : loadChoice.folder;
  settings.weights = loadChoice.weights;
  guarded([this] { settingsStore.save(settings); });
  updateActivity();
  emit owner.modelLoaded(*model);
  measureContext();
  recountDocuments();
  if (pending) countPendingDocument();
}

void ChatController::Impl::onDeviceRestarted(const DeviceRestartedEvent& event) {
  // What is being computed is computed again; whatever else was in the cache is gone.
  if ((!answer && !reading) || !event.isReady) {
    cacheBelongsTo(0);
    sessionTimer.start();  // it may have been kept on disk
  }
  if (model) {
    model->backendDescription = event.backendDescription;
    model->whyNotDevice = event.whyNotDevice;
  }
  emit owner.deviceChanged();
  emit owner.notice(event.sentence, {});
}

// --- Events of several origins ------------------------------------------------------------------

void ChatController::Impl::onCommandFailed(const CommandFailedEvent& event) {
  const CommandId id = event.command;
  if (onSessionFailed(event) || onQualityFailed(event)) return;
  std::erase_if(recounts, [id](const Recount& recount) { return recount.command == id; });
  if (id == load) {
    load = 0;
    if (engineCache == loadChoice.cache) engineCache = loadChoice.previousCache;
    updateActivity();
    emit owner.modelFailed(event.error.message, event.error.hint);
  } else if (answer && id == answer->encode) {
    refuseAnswer(event.error);
  } else if (answer && id == answer->generate) {
    if (event.error.code == ErrorCode::kCancelled) {
      endAnswer(MessageState::kStopped, QStringLiteral("cancelled"));
    } else {
      endAnswer(MessageState::kFailed, event.error.message);
      reportError(event.error);
    }
  } else if (reading && (id == reading->encode || id == reading->prefill)) {
    endReading(true);
    if (event.error.code != ErrorCode::kCancelled) reportError(event.error);
  } else if (configure && id == configure->command) {
    engineCache = configure->previous;
    configure.reset();
    if (answer && answer->generate == 0) {
      refuseAnswer(event.error);
    } else {
      if (reading) endReading(true);
      reportError(event.error);
    }
  } else if (presetSwitch && id == presetSwitch->configure) {
    undoSwitch();
    if (event.error.code == ErrorCode::kCancelled) {
      emit owner.notice(QStringLiteral("The preset was not switched: you have cancelled it."),
                        event.error.hint);
    } else {
      reportError(event.error);
    }
  } else if (pending && id == pending->count) {
    showPendingDocument();  // without a count
  }
}

void ChatController::Impl::onPromptEncoded(const PromptEncodedEvent& event) {
  if (answer && event.command == answer->encode) {
    onAnswerEncoded(event);
  } else if (reading && event.command == reading->encode) {
    onReadingEncoded(event);
  } else if (event.command == measure) {
    measure = 0;
    if (isAnsweringHere()) return;
    setUsedTokens(static_cast<std::int64_t>(event.tokens.size()));
    refreshPendingDocument();
  }
}

void ChatController::Impl::onMemoryReported(const MemoryEvent& event) {
  const bool forgetsMore = event.report.forgottenTokens != memory.forgottenTokens;
  memory = event.report;
  if (event.contents) contents = event.contents;
  if (forgetsMore) emit owner.contextStateChanged(owner.contextState());
  emit owner.memoryChanged(memory);
}

// --- Context and reading ahead ------------------------------------------------------------------

void ChatController::Impl::beginReading() {
  requireReadyToAnswer();
  if (conversationId == 0) {
    throwError(ErrorCode::kInvalidArgument, QStringLiteral("There is nothing to read yet."),
               QStringLiteral("Open a document first."));
  }
  if (reading) owner.cancelReading();
  stopQualityCheck(QStringLiteral("The check was stopped: the context is being read."));
  prepareCache();
  reading = Reading{worker->encodePrompt(buildPrompt(currentDocuments(), currentBranch(),
                                                     std::nullopt, model->tokenizerFingerprint)),
                    0, conversationId};
  updateActivity();
}

void ChatController::Impl::onReadingEncoded(const PromptEncodedEvent& event) {
  const auto nTokens = static_cast<std::int64_t>(event.tokens.size());
  setUsedTokens(nTokens);
  if (const std::optional<ErrorText> refusal = contextRefusal(nTokens)) {
    endReading(true);
    reportError(*refusal);
    return;
  }
  reading->prefill = worker->prefill(event.tokens);
  cacheBelongsTo(reading->conversationId, event.reusableTokens);
}

void ChatController::Impl::onPrefillFinished(const PrefillFinishedEvent& event) {
  if (event.progress.tokensPerSecond > 0.0) {
    lastPrefillTokensPerSecond = event.progress.tokensPerSecond;
  }
  if (reading && event.command == reading->prefill) {
    unsavedTokens += event.progress.tokensDone;
    endReading(event.cancelled);
  }
}

void ChatController::Impl::endReading(bool isCancelled) {
  reading.reset();
  updateActivity();
  emit owner.prefillFinished(isCancelled);
}

void ChatController::Impl::measureContext() {
  if (measure != 0) worker->cancel(std::exchange(measure, 0));
  if (isAnsweringHere() || !model || load != 0) return;
  const std::vector<Document> documents = currentDocuments();
  const std::vector<Message> branch = currentBranch();
  if (documents.empty() && branch.empty()) {
    setUsedTokens(0);
    refreshPendingDocument();
    releaseEmptyCache();
    return;
  }
  measure = worker->encodePrompt(
      buildPrompt(documents, branch, std::nullopt, model->tokenizerFingerprint));
}

void ChatController::Impl::releaseEmptyCache() {
  if (conversationId == 0 || cachedConversationId != conversationId || answer || reading) return;
  saveCache();  // the document may come back
  worker->clearCache();
  cacheBelongsTo(0);
}

std::int64_t ChatController::Impl::knownTokens() const {
  if (isAnsweringHere() && answer->generate != 0) return tokensOf(answer->message);
  const std::vector<Message> branch = currentBranch();
  for (auto message = branch.rbegin(); message != branch.rend(); ++message) {
    if (message->role == MessageRole::kAssistant && message->statistics.promptTokens > 0) {
      return tokensOf(*message);
    }
  }
  std::int64_t tokens = 0;
  for (const Document& document : currentDocuments()) {
    tokens += std::max<std::int64_t>(0, document.tokenCount);
  }
  return tokens;
}

void ChatController::Impl::setUsedTokens(std::int64_t tokens) {
  usedTokens = tokens;
  emit owner.contextStateChanged(owner.contextState());
}

std::optional<ErrorText> ChatController::Impl::contextRefusal(std::int64_t promptTokens) const {
  const std::int64_t allowed = allowedContext();
  if (promptTokens + kAnswerRoomTokens <= allowed) return std::nullopt;
  return ErrorText{
      ErrorCode::kContextFull,
      QStringLiteral("The chat with its documents has %1 tokens; the context of %2 holds %3 and an "
                     "answer of %4.")
          .arg(grouped(promptTokens), grouped(allowed),
               grouped(std::max<std::int64_t>(0, allowed - kAnswerRoomTokens)),
               grouped(kAnswerRoomTokens)),
      QStringLiteral("Choose a longer context in the settings, take a shorter document, or begin a "
                     "new chat. The model was trained for %1 tokens.")
          .arg(grouped(model ? model->config.trainedLength : 0))};
}

ForecastRequest ChatController::Impl::forecastRequest(std::int64_t contextTokens) const {
  ForecastRequest request;
  request.model = model->config;
  request.weights = model->weights;
  request.weightBytes = model->weightBytes;
  request.backendBytes = memory.backend.deviceBytes;
  request.contextTokens = contextTokens;
  request.budgetBytes = memory.device.freeBytes + memory.use.total();
  return request;
}

// --- Slots ------------------------------------------------------------------------------------

void ChatController::applySampling(const engine::SamplerConfig& sampler, qint64 maxAnswerTokens) {
  impl_->guarded([&] {
    Settings changed = impl_->settings;
    changed.sampler = sampler;
    changed.maxAnswerTokens = maxAnswerTokens;
    impl_->settingsStore.save(changed);
    impl_->settings = changed;
    emit settingsChanged();
  });
}

void ChatController::setThreads(int threads) {
  impl_->guarded([&] {
    Settings changed = impl_->settings;
    changed.threads = threads;
    impl_->settingsStore.save(changed);
    impl_->settings = changed;
    if (impl_->model) impl_->worker->setThreads(threads);
    emit settingsChanged();
  });
}

void ChatController::loadModel(const QString& folder, engine::WeightFormat weights) {
  impl_->guarded([&] { impl_->loadModel(folder, weights); });
}

void ChatController::cancelLoading() {
  if (impl_->load != 0) impl_->worker->cancel(impl_->load);
}

void ChatController::readDocument() {
  impl_->guarded([this] { impl_->beginReading(); });
}

void ChatController::readAgain() {
  impl_->guarded([this] {
    impl_->requireReadyToAnswer();
    const Impl::CacheChoice wanted = impl_->wantedCache();
    if (impl_->reading) cancelReading();
    impl_->stopSaving(impl_->conversationId);
    if (impl_->cachedConversationId == impl_->conversationId) {
      impl_->sessionFolder.remove(impl_->conversationId);  // else it would be restored
    }
    impl_->configure = Impl::Configuration{
        impl_->worker->configureCache(wanted.config, impl_->allowedContext()), impl_->engineCache};
    impl_->engineCache = wanted;
    impl_->cacheBelongsTo(0);
    impl_->beginReading();
  });
}

void ChatController::cancelReading() {
  if (!impl_->reading) return;
  if (impl_->reading->prefill != 0) {
    impl_->worker->cancel(impl_->reading->prefill);
  } else {
    impl_->worker->cancel(impl_->reading->encode);
    impl_->endReading(true);
  }
}

}  // namespace longhand::app
