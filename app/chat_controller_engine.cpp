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
  connect(worker.get(), &EngineWorker::modelReleased, &owner, [this] { model.reset(); });
  connect(worker.get(), &EngineWorker::deviceRestarted, &owner,
          [this](const DeviceRestart& restart) { onDeviceRestarted(restart); });
  connect(worker.get(), &EngineWorker::memoryReported, &owner,
          [this](const MemoryNews& news) { onMemoryReported(news); });
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

  loadChoice = {modelFolder, weights, wantedCache(), cache.choice()};
  engine::EngineOptions options;
  options.weights = weights;
  options.cache = loadChoice.cache.config;
  options.contextLength = loadChoice.cache.contextLength;
  options.threads = settings.threads;
  options.backend = "auto";
  options.cudaPlugin = QFile::encodeName(paths.cudaPlugin).toStdString();
  cache.setChoice(loadChoice.cache);
  load = worker->loadModel(
      modelFolder, options,
      [this](std::uint64_t done, std::uint64_t total) { emit owner.modelLoading(done, total); },
      [this](const Outcome<ModelInfo>& loaded) { guarded([&] { onModelLoaded(loaded); }); });
  updateActivity();
  emit owner.modelLoading(0, 0);
}

void ChatController::Impl::onModelLoaded(const Outcome<ModelInfo>& loaded) {
  if (!loaded) {
    if (cache.choice() == loadChoice.cache) cache.setChoice(loadChoice.previousCache);
    updateActivity();
    emit owner.modelFailed(loaded.error().message, loaded.error().hint);
    return;
  }
  model = *loaded;
  cache.belongsTo(0);
  cache.forgetRefusal();
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

void ChatController::Impl::onDeviceRestarted(const DeviceRestart& restart) {
  // What is being computed is computed again; whatever else was in the cache is gone.
  if ((!answer && !reading) || !restart.isReady) {
    cache.belongsTo(0);
    cache.wakeSoon();  // it may have been kept on disk
  }
  if (model) {
    model->backendDescription = restart.backendDescription;
    model->whyNotDevice = restart.whyNotDevice;
  }
  emit owner.deviceChanged();
  emit owner.notice(restart.sentence, {});
}

void ChatController::Impl::onMemoryReported(const MemoryNews& news) {
  const bool forgetsMore = news.report.forgottenTokens != memory.forgottenTokens;
  memory = news.report;
  if (news.contents) contents = news.contents;
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
  cache.prepare();
  reading.emplace();
  reading->conversationId = conversationId;
  reading->encode = worker->encodePrompt(
      buildPrompt(currentDocuments(), currentBranch(), std::nullopt, model->tokenizerFingerprint),
      [this](const Outcome<EncodedPrompt>& prompt) { guarded([&] { onReadingEncoded(prompt); }); });
  updateActivity();
}

void ChatController::Impl::onReadingEncoded(const Outcome<EncodedPrompt>& prompt) {
  if (!prompt) {
    failReading(prompt.error());
    return;
  }
  const auto nTokens = static_cast<std::int64_t>(prompt->tokens.size());
  setUsedTokens(nTokens);
  if (const std::optional<ErrorText> refusal = contextRefusal(nTokens)) {
    failReading(*refusal);
    return;
  }
  reading->prefill = worker->prefill(
      prompt->tokens,
      [this](const engine::PrefillProgress& progress) { emit owner.prefillProgress(progress); },
      [this](const Outcome<PrefillOutcome>& outcome) { onPrefillFinished(outcome); });
  cache.belongsTo(reading->conversationId, prompt->reusableTokens);
}

void ChatController::Impl::onPrefillFinished(const Outcome<PrefillOutcome>& outcome) {
  if (!outcome) {
    failReading(outcome.error());
    return;
  }
  if (outcome->progress.tokensPerSecond > 0.0) {
    lastPrefillTokensPerSecond = outcome->progress.tokensPerSecond;
  }
  cache.computed(outcome->progress.tokensDone);
  endReading(outcome->isCancelled);
}

void ChatController::Impl::refuseWork(const ErrorText& error) {
  if (answer && !answer->generate.isUnderWay()) {
    refuseAnswer(error);
  } else {
    if (reading) endReading(true);
    reportError(error);
  }
}

void ChatController::Impl::failReading(const ErrorText& error) {
  endReading(true);
  if (error.code != ErrorCode::kCancelled) reportError(error);
}

void ChatController::Impl::endReading(bool isCancelled) {
  reading.reset();
  updateActivity();
  emit owner.prefillFinished(isCancelled);
}

void ChatController::Impl::measureContext() {
  measure = {};
  if (isAnsweringHere() || !model || load.isUnderWay()) return;
  const std::vector<Document> documents = currentDocuments();
  const std::vector<Message> branch = currentBranch();
  if (documents.empty() && branch.empty()) {
    setUsedTokens(0);
    refreshPendingDocument();
    releaseEmptyCache();
    return;
  }
  measure = worker->encodePrompt(
      buildPrompt(documents, branch, std::nullopt, model->tokenizerFingerprint),
      [this](const Outcome<EncodedPrompt>& prompt) {
        if (!prompt || isAnsweringHere()) return;
        guarded([&] {
          setUsedTokens(static_cast<std::int64_t>(prompt->tokens.size()));
          refreshPendingDocument();
        });
      });
}

void ChatController::Impl::releaseEmptyCache() {
  if (!cache.isOf(conversationId) || answer || reading) return;
  cache.save();  // the document may come back
  worker->clearCache();
  cache.belongsTo(0);
}

std::int64_t ChatController::Impl::knownTokens() const {
  if (isAnsweringHere() && answer->generate.isUnderWay()) return tokensOf(answer->message);
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

void ChatController::cancelLoading() { impl_->load.cancel(); }

void ChatController::readDocument() {
  impl_->guarded([this] { impl_->beginReading(); });
}

void ChatController::readAgain() {
  impl_->guarded([this] {
    impl_->requireReadyToAnswer();
    const CacheChoice wanted = impl_->wantedCache();
    if (impl_->reading) cancelReading();
    impl_->cache.stopSaving(impl_->conversationId);
    if (impl_->cache.isOf(impl_->conversationId)) {
      impl_->cache.remove(impl_->conversationId);  // else it would be restored
    }
    impl_->cache.configure(wanted);
    impl_->beginReading();
  });
}

void ChatController::cancelReading() {
  if (!impl_->reading) return;
  if (impl_->reading->prefill.isUnderWay()) {
    impl_->reading->prefill.cancel();
  } else {
    impl_->endReading(true);
  }
}

}  // namespace longhand::app
