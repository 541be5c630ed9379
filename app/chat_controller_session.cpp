// Caches of conversations, kept on disk: a document that was read once is not read again after a
// restart or a visit to another chat.
//
// When a cache is kept: loading a token costs its bytes (at 4 bits and 7 billion parameters 140
// KiB, or 0.3 ms from a slow SSD), computing it costs two operations a parameter (1 ms on a large
// GPU, 50 ms and more on a CPU). So loading wins always; but below Settings::keptMinTokens tokens
// both are quick, and the disk is spared. A kept file is written anew when as many tokens again are
// missing in it, and at least a sixteenth of all: until then these are computed again.
//
// When it is written: a second after the engine has become idle; before the cache is given to
// another conversation; and at the end of the program. New work in the same conversation stops the
// writing, which is begun again later.
#include <algorithm>
#include <filesystem>
#include <utility>

#include <QFile>
#include <QLoggingCategory>

#include "app/chat_controller_impl.h"
#include "engine/session/session_file.h"

namespace longhand::app {

using engine::ErrorCode;

namespace {

Q_LOGGING_CATEGORY(sessionLog, "longhand.session", QtInfoMsg)

constexpr int kIdleBeforeKeepingMs = 1000;
constexpr std::int64_t kRewriteFraction = 16;

const QString kNotKept = QStringLiteral(
    "The cache of this chat could not be kept on disk: after a restart it is read again.");

}  // namespace

void ChatController::Impl::connectSessionEvents() {
  sessionTimer.setSingleShot(true);
  sessionTimer.setInterval(kIdleBeforeKeepingMs);
  connect(&sessionTimer, &QTimer::timeout, &owner, [this] { guarded([this] { whenIdle(); }); });
  connect(worker.get(), &EngineWorker::sessionSaved, &owner,
          [this](const SessionSavedEvent& event) { onSessionSaved(event); });
  connect(worker.get(), &EngineWorker::sessionRestored, &owner,
          [this](const SessionRestoredEvent& event) { onSessionRestored(event); });
  connect(worker.get(), &EngineWorker::sessionProgressed, &owner,
          [this](const SessionProgressEvent& event) {
            if (restore && event.command == restore->command) {
              emit owner.restoreProgress(event.doneBytes, event.totalBytes);
            }
          });
}

void ChatController::Impl::cleanUpSessions() {
  if (!settings.keepsSessions) {
    sessionFolder.removeAll();
    return;
  }
  std::vector<std::int64_t> known;
  for (const Conversation& conversation : conversationStore.conversations()) {
    known.push_back(conversation.id);
  }
  sessionFolder.cleanUp(known);
  sessionFolder.enforceQuota(static_cast<std::uint64_t>(settings.sessionQuotaBytes));
}

void ChatController::Impl::whenIdle() {
  if (activity != Activity::kIdle || configure || presetSwitch || save || restore) return;
  if (isSaveDue()) {
    saveCache();
  } else {
    restoreCache();
  }
}

void ChatController::Impl::cacheBelongsTo(std::int64_t id, std::int64_t takenTokens) {
  if (id == cachedConversationId) return;
  cachedConversationId = id;
  unsavedTokens = takenTokens;
}

bool ChatController::Impl::isSaveDue() const {
  const std::int64_t missing = unsavedTokens - (save ? save->tokens : 0);
  return settings.keepsSessions && model && load == 0 && cachedConversationId != 0 &&
         missing >= std::max(settings.keptMinTokens, memory.cachedTokens / kRewriteFraction);
}

void ChatController::Impl::saveCache() {
  if (!isSaveDue()) return;
  try {
    sessionFolder.prepare();
  } catch (...) {
    unsavedTokens = 0;  // not every second again
    sayAboutSession(kNotKept, currentErrorText());
    return;
  }
  save = SessionSave{worker->saveSession(sessionFolder.path(cachedConversationId),
                                         static_cast<std::uint64_t>(settings.sessionQuotaBytes)),
                     cachedConversationId, unsavedTokens};
}

void ChatController::Impl::stopSaving(std::int64_t id) {
  if (!save || save->conversationId != id) return;
  worker->cancel(save->command);
  save->tokens = 0;  // due again
}

void ChatController::Impl::restoreCache() {
  const std::int64_t id = conversationId;
  if (!settings.keepsSessions || !model || load != 0 || id == 0 || id == refusedSessionOf ||
      id == cachedConversationId || !sessionFolder.contains(id)) {
    return;
  }
  if (currentBranch().empty() && currentDocuments().empty()) return;
  const QString path = sessionFolder.path(id);
  try {
    const engine::SessionInfo info = engine::readSessionInfo(QFile::encodeName(path).toStdString());
    if (info.cache != wantedCache().config) {
      refusedSessionOf = id;
      qCInfo(sessionLog) << "conversation" << id << "was kept with another preset: read again";
      return;
    }
  } catch (...) {
    refuseSession(id, currentErrorText());
    return;
  }
  saveCache();  // of the conversation before
  ensureCacheConfigured();
  restore = SessionRestore{worker->restoreSession(path), id};
  cacheBelongsTo(id);
  updateActivity();
}

void ChatController::Impl::refuseSession(std::int64_t id, const ErrorText& error) {
  refusedSessionOf = id;
  if (error.code == ErrorCode::kFileDamaged) sessionFolder.remove(id);
  sayAboutSession(QStringLiteral("The saved cache of this chat could not be used; what it held is "
                                 "read again."),
                  {error.code, error.message, {}});
}

void ChatController::Impl::sayAboutSession(const QString& what, const ErrorText& error) {
  qCInfo(sessionLog).noquote() << error.message << error.hint;
  const QString blank = error.hint.isEmpty() ? QString() : QStringLiteral(" ");
  emit owner.notice(what, error.message + blank + error.hint);
}

void ChatController::Impl::onSessionSaved(const SessionSavedEvent& event) {
  if (!save || event.command != save->command) return;
  const SessionSave done = *std::exchange(save, std::nullopt);
  if (done.conversationId == cachedConversationId) unsavedTokens -= done.tokens;
  if (done.conversationId == refusedSessionOf) refusedSessionOf = 0;
  const bool isStillThere = guarded([&] {
    const std::vector<Conversation> known = conversationStore.conversations();
    if (std::none_of(known.begin(), known.end(),
                     [&](const Conversation& c) { return c.id == done.conversationId; })) {
      sessionFolder.remove(done.conversationId);
    }
  });
  if (!isStillThere) return;
  sessionFolder.enforceQuota(static_cast<std::uint64_t>(settings.sessionQuotaBytes));
  emit owner.sessionSaved(done.conversationId);
  sessionTimer.start();  // there may be something to restore
}

void ChatController::Impl::onSessionRestored(const SessionRestoredEvent& event) {
  if (!restore || event.command != restore->command) return;
  const std::int64_t id = std::exchange(restore, std::nullopt)->conversationId;
  updateActivity();
  sessionFolder.touch(id);
  emit owner.sessionRestored(id, event.tokens);
}

bool ChatController::Impl::onSessionFailed(const CommandFailedEvent& event) {
  const bool isCancelled = event.error.code == ErrorCode::kCancelled;
  if (save && event.command == save->command) {
    const SessionSave failed = *std::exchange(save, std::nullopt);
    if (isCancelled) return true;
    if (failed.conversationId == cachedConversationId) unsavedTokens -= failed.tokens;
    sayAboutSession(kNotKept, event.error);
    return true;
  }
  if (restore && event.command == restore->command) {
    const std::int64_t id = std::exchange(restore, std::nullopt)->conversationId;
    updateActivity();
    if (id == cachedConversationId) cacheBelongsTo(0);
    if (!isCancelled) refuseSession(id, event.error);
    sessionTimer.start();
    return true;
  }
  return false;
}

// --- Slots --------------------------------------------------------------------------------------

void ChatController::applySessionSettings(bool keepsSessions, qint64 quotaBytes,
                                          qint64 keptMinTokens) {
  impl_->guarded([&] {
    Settings changed = impl_->settings;
    changed.keepsSessions = keepsSessions;
    changed.sessionQuotaBytes = quotaBytes;
    changed.keptMinTokens = keptMinTokens;
    impl_->settingsStore.save(changed);
    impl_->settings = changed;
    if (!keepsSessions) {
      if (impl_->save) impl_->worker->cancel(impl_->save->command);
      impl_->sessionFolder.removeAll();
    } else {
      impl_->sessionFolder.enforceQuota(static_cast<std::uint64_t>(quotaBytes));
      impl_->sessionTimer.start();
    }
    emit settingsChanged();
  });
}

void ChatController::cancelRestoring() {
  if (impl_->restore) impl_->worker->cancel(impl_->restore->command);
}

quint64 ChatController::sessionBytes() const { return impl_->sessionFolder.totalBytes(); }

}  // namespace longhand::app
