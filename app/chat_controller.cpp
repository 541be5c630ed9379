#include "app/chat_controller.h"

#include <algorithm>
#include <utility>

#include <QDir>
#include <QFile>

#include "app/chat_controller_impl.h"

namespace longhand::app {

using engine::ErrorCode;

namespace {

// A deleted conversation can be brought back for this long.
constexpr int kKeepDeletedDays = 30;
// Twice a second, so that with the time a commit takes no second is lost.
constexpr int kStoreIntervalMs = 500;

std::unique_ptr<Database> openDatabase(const ControllerPaths& paths) {
  const bool isNew = !QDir(paths.dataFolder).exists();
  if (!QDir().mkpath(paths.dataFolder)) {
    throwError(ErrorCode::kFileUnreadable,
               QStringLiteral("%1: the folder cannot be made.").arg(paths.dataFolder),
               QStringLiteral("Check its permissions, or choose another data folder."));
  }
  if (isNew) {  // chats are private; a folder that was there is somebody's choice
    QFile::setPermissions(paths.dataFolder, QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
  }
  return std::make_unique<Database>(ChatController::databasePath(paths));
}

}  // namespace

ChatController::Impl::Impl(ChatController& controller, const ControllerPaths& controllerPaths)
    : owner(controller),
      paths(controllerPaths),
      database(openDatabase(controllerPaths)),
      conversationStore(*database),
      documentStore(*database),
      settingsStore(*database),
      presetStore(*database),
      settings(settingsStore.load()),
      presetId(settings.presetId),
      demo(readDemoModel(controllerPaths.demoFolder)),
      cache(*this, QDir(controllerPaths.dataFolder).filePath(QStringLiteral("sessions"))),
      worker(std::make_unique<EngineWorker>()) {
  conversationStore.recoverInterrupted();
  conversationStore.purgeDeleted(QDateTime::currentDateTime().addDays(-kKeepDeletedDays));
  documentStore.purgeUnused();
  if (!preset(presetId)) presetId = Settings().presetId;
  storeTimer.setInterval(kStoreIntervalMs);
  connectStoreTimer();
  connectEngineEvents();
  connectDocumentEvents();
  cache.cleanUp();
}

ChatController::Impl::~Impl() {
  cache.save();    // the worker finishes it
  worker.reset();  // stops and joins; replies that are still queued die with it
  storeInterruptedAnswer();
}

bool ChatController::Impl::guarded(const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (...) {
    reportError(currentErrorText());
    return false;
  }
}

void ChatController::Impl::reportError(const ErrorText& error) {
  emit owner.errorOccurred(error.message, error.hint);
}

void ChatController::Impl::updateActivity() {
  Activity now = Activity::kIdle;
  if (answer) {
    now = Activity::kAnswering;
  } else if (reading) {
    now = Activity::kReading;
  } else if (load.isUnderWay()) {
    now = Activity::kLoadingModel;
  } else if (presetSwitch) {
    now = Activity::kSwitchingPreset;
  } else if (cache.isRestoring()) {
    now = Activity::kRestoring;
  } else if (qualityCheck) {
    now = Activity::kCheckingQuality;
  }
  if (now == activity) return;
  activity = now;
  if (now == Activity::kIdle) cache.wakeSoon();
  emit owner.activityChanged(now);
}

std::vector<Message> ChatController::Impl::currentBranch() const {
  if (conversationId == 0) return {};
  std::vector<Message> branch = conversationStore.activeBranch(conversationId);
  if (answer && answer->message.id != 0) {
    for (Message& message : branch) {
      if (message.id == answer->message.id) message.text = answer->message.text;
    }
  }
  return branch;
}

std::vector<Document> ChatController::Impl::currentDocuments() const {
  return conversationId == 0 ? std::vector<Document>{} : documentStore.documentsOf(conversationId);
}

std::int64_t ChatController::Impl::ensureConversation() {
  if (conversationId == 0) {
    conversationId = conversationStore.createConversation(presetId);
    storeCacheChoice();
    conversationStore.setDraft(conversationId, std::exchange(settings.newChatDraft, QString()));
    settings.lastConversationId = conversationId;
    settingsStore.save(settings);
    emit owner.conversationListChanged();
  }
  return conversationId;
}

void ChatController::Impl::storeCacheChoice() {
  if (conversationId == 0) return;
  conversationStore.setPreset(conversationId, presetId);
  conversationStore.setContextLength(conversationId, settings.contextLength);
  if (presetId == QString::fromUtf16(kCustomPresetId)) {
    conversationStore.setCustomCache(conversationId, settings.customCache);
  }
}

void ChatController::Impl::openConversation(std::int64_t id) {
  // Reading ahead is for the open conversation only; an answer goes on.
  if (reading && id != conversationId) owner.cancelReading();
  if (!answer) cache.cancelRestoringOfOthers(id);
  stopQualityCheck(QStringLiteral("The check was stopped: another chat was opened."));
  if (id != 0) {
    const Conversation conversation = conversationStore.conversation(id);
    presetId = preset(conversation.presetId) ? conversation.presetId : settings.presetId;
    settings.contextLength = conversation.contextLength;
    if (conversation.customCache) settings.customCache = *conversation.customCache;
  } else {
    presetId = settings.presetId;
    if (conversationId != 0) settings.contextLength = 0;  // what one document needed stays with it
  }
  conversationId = id;
  settings.lastConversationId = id;
  settingsStore.save(settings);
  emit owner.conversationOpened(id);
  emit owner.documentsChanged();
  setUsedTokens(knownTokens());
  measureContext();
  recountDocuments();
  refreshPendingDocument();
  cache.wakeSoon();
}

ChatController::ChatController(const ControllerPaths& paths, QObject* parent)
    : QObject(parent), impl_(std::make_unique<Impl>(*this, paths)) {}

ChatController::~ChatController() = default;

QString ChatController::databasePath(const ControllerPaths& paths) {
  return QDir(paths.dataFolder).filePath(QStringLiteral("longhand.sqlite"));
}

// --- Queries ------------------------------------------------------------------------------------

std::vector<Conversation> ChatController::conversations() const {
  std::vector<Conversation> result;
  impl_->guarded([&] { result = impl_->conversationStore.conversations(); });
  return result;
}

std::int64_t ChatController::currentConversation() const { return impl_->conversationId; }

std::vector<Message> ChatController::messages() const {
  std::vector<Message> result;
  impl_->guarded([&] { result = impl_->currentBranch(); });
  return result;
}

std::vector<Document> ChatController::documents() const {
  std::vector<Document> result;
  impl_->guarded([&] { result = impl_->currentDocuments(); });
  return result;
}

std::vector<SearchHit> ChatController::searchResults(const QString& text) const {
  std::vector<SearchHit> result;
  impl_->guarded([&] { result = impl_->conversationStore.search(text); });
  return result;
}

std::vector<PresetInfo> ChatController::presets() const {
  std::vector<PresetInfo> result;
  impl_->guarded([&] { result = impl_->presets(); });
  return result;
}

QString ChatController::currentPreset() const { return impl_->presetId; }

QString ChatController::draft() const {
  QString result;
  impl_->guarded([&] {
    result = impl_->conversationId != 0
                 ? impl_->conversationStore.conversation(impl_->conversationId).draft
                 : impl_->settings.newChatDraft;
  });
  return result;
}

engine::KvCacheConfig ChatController::currentCacheConfig() const {
  return impl_->wantedCache().config;
}

const Settings& ChatController::settings() const { return impl_->settings; }
std::optional<ModelInfo> ChatController::model() const { return impl_->model; }
std::optional<DemoModel> ChatController::demo() const { return impl_->demo; }

std::vector<ModelEntry> ChatController::availableModels() const {
  std::vector<ModelEntry> models;
  if (impl_->demo) {
    models.push_back({impl_->demo->folder, QDir(impl_->demo->folder).dirName(), true});
  }
  const std::vector<ModelEntry> own = listModels(impl_->paths.modelsFolder);
  models.insert(models.end(), own.begin(), own.end());
  return models;
}

Activity ChatController::activity() const { return impl_->activity; }

ContextState ChatController::contextState() const {
  return {impl_->usedTokens, impl_->allowedContext(),
          impl_->model ? impl_->model->config.trainedLength : 0,
          impl_->cache.isOf(impl_->conversationId) ? impl_->memory.forgottenTokens : 0};
}

bool ChatController::isContextRead() const {
  // The last token of an answer, and what closes its turn, are computed with the next question.
  constexpr std::int64_t kTurnEndTokens = 8;
  return impl_->cache.isOf(impl_->conversationId) && !impl_->reading && impl_->usedTokens > 0 &&
         impl_->memory.cachedTokens + kTurnEndTokens >= impl_->usedTokens;
}

const engine::MemoryReport& ChatController::memory() const { return impl_->memory; }

std::vector<PresetForecast> ChatController::forecast(std::int64_t contextTokens) const {
  std::vector<PresetForecast> result;
  if (!impl_->model) return result;
  impl_->guarded(
      [&] { result = forecastPresets(impl_->forecastRequest(contextTokens), impl_->presets()); });
  return result;
}

// --- Conversations ------------------------------------------------------------------------------

void ChatController::start() {
  impl_->guarded([this] {
    const std::vector<Conversation> known = impl_->conversationStore.conversations();
    const std::int64_t last = impl_->settings.lastConversationId;
    const bool isKnown = std::any_of(known.begin(), known.end(),
                                     [&](const Conversation& c) { return c.id == last; });
    if (last != 0 && !isKnown) impl_->settings.contextLength = 0;  // it was that chat's
    impl_->openConversation(isKnown ? last : 0);
    emit conversationListChanged();
    impl_->loadModel(impl_->settings.modelFolder, impl_->settings.weights);
  });
}

void ChatController::newConversation() {
  impl_->guarded([this] { impl_->openConversation(0); });
}

void ChatController::selectConversation(qint64 id) {
  impl_->guarded([&] { impl_->openConversation(id); });
}

void ChatController::renameConversation(qint64 id, const QString& title) {
  impl_->guarded([&] {
    impl_->conversationStore.setTitle(id, title.simplified());
    emit conversationListChanged();
  });
}

void ChatController::setPinned(qint64 id, bool pinned) {
  impl_->guarded([&] {
    impl_->conversationStore.setPinned(id, pinned);
    emit conversationListChanged();
  });
}

void ChatController::deleteConversation(qint64 id) {
  impl_->guarded([&] {
    if (impl_->answer && impl_->answer->conversationId == id) stop();
    impl_->conversationStore.deleteConversation(id);
    impl_->cache.remove(id);
    if (impl_->cache.isOf(id)) impl_->cache.belongsTo(0);
    impl_->deletedIds.push_back(id);
    if (id == impl_->conversationId) {
      const std::vector<Conversation> left = impl_->conversationStore.conversations();
      impl_->openConversation(left.empty() ? 0 : left.front().id);
    }
    emit conversationListChanged();
  });
}

void ChatController::undoDelete() {
  impl_->guarded([this] {
    if (impl_->deletedIds.empty()) return;
    const std::int64_t id = impl_->deletedIds.back();
    impl_->deletedIds.pop_back();
    impl_->conversationStore.restoreConversation(id);
    emit conversationListChanged();
    impl_->openConversation(id);
  });
}

void ChatController::search(const QString& text) {
  impl_->guarded([&] { emit searchFinished(text, impl_->conversationStore.search(text)); });
}

void ChatController::saveDraft(const QString& text) {
  impl_->guarded([&] {
    if (impl_->conversationId != 0) {
      impl_->conversationStore.setDraft(impl_->conversationId, text);
    } else if (text != impl_->settings.newChatDraft) {
      impl_->settings.newChatDraft = text;
      impl_->settingsStore.save(impl_->settings);
    }
  });
}

void ChatController::applySessionSettings(bool keepsSessions, qint64 quotaBytes,
                                          qint64 keptMinTokens) {
  impl_->guarded([&] {
    Settings changed = impl_->settings;
    changed.keepsSessions = keepsSessions;
    changed.sessionQuotaBytes = quotaBytes;
    changed.keptMinTokens = keptMinTokens;
    impl_->settingsStore.save(changed);
    impl_->settings = changed;
    impl_->cache.applySettings();
    emit settingsChanged();
  });
}

void ChatController::cancelRestoring() { impl_->cache.cancelRestoring(); }

quint64 ChatController::sessionBytes() const { return impl_->cache.folder().totalBytes(); }

void ChatController::saveWindowLayout(const QByteArray& geometry, const QByteArray& state) {
  impl_->guarded([&] {
    impl_->settings.windowGeometry = geometry;
    impl_->settings.windowState = state;
    impl_->settingsStore.save(impl_->settings);
  });
}

}  // namespace longhand::app
