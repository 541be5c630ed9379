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

void ChatController::Impl::connectSessionTimer() {
  sessionTimer.setSingleShot(true);
  sessionTimer.setInterval(kIdleBeforeKeepingMs);
  connect(&sessionTimer, &QTimer::timeout, &owner, [this] { guarded([this] { whenIdle(); }); });
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
  return settings.keepsSessions && model && !load.isUnderWay() && cachedConversationId != 0 &&
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
  if (save) save->job.detach();  // of another chat, or of fewer tokens: it is still worth its file
  save.emplace();
  save->conversationId = cachedConversationId;
  save->tokens = unsavedTokens;
  save->job =
      worker->saveSession(sessionFolder.path(cachedConversationId),
                          static_cast<std::uint64_t>(settings.sessionQuotaBytes),
                          [this](const Outcome<std::uint64_t>& bytes) { onSessionSaved(bytes); });
}

void ChatController::Impl::stopSaving(std::int64_t id) {
  if (!save || save->conversationId != id) return;
  save->job.cancel();
  save->tokens = 0;  // due again
}

void ChatController::Impl::restoreCache() {
  const std::int64_t id = conversationId;
  if (!settings.keepsSessions || !model || load.isUnderWay() || id == 0 || id == refusedSessionOf ||
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
  restore.emplace();
  restore->conversationId = id;
  restore->job = worker->restoreSession(
      path,
      [this](std::uint64_t done, std::uint64_t total) { emit owner.restoreProgress(done, total); },
      [this](const Outcome<std::int64_t>& tokens) { onSessionRestored(tokens); });
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

void ChatController::Impl::onSessionSaved(const Outcome<std::uint64_t>& bytes) {
  const SessionSave done = *std::exchange(save, std::nullopt);
  if (bytes.isCancelled()) return;
  if (done.conversationId == cachedConversationId) unsavedTokens -= done.tokens;
  if (!bytes) {
    sayAboutSession(kNotKept, bytes.error());
    return;
  }
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

void ChatController::Impl::onSessionRestored(const Outcome<std::int64_t>& tokens) {
  const std::int64_t id = std::exchange(restore, std::nullopt)->conversationId;
  updateActivity();
  if (tokens) {
    sessionFolder.touch(id);
    emit owner.sessionRestored(id, *tokens);
    return;
  }
  if (id == cachedConversationId) cacheBelongsTo(0);
  if (!tokens.isCancelled()) refuseSession(id, tokens.error());
  sessionTimer.start();
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
      if (impl_->save) impl_->save->job.cancel();
      impl_->sessionFolder.removeAll();
    } else {
      impl_->sessionFolder.enforceQuota(static_cast<std::uint64_t>(quotaBytes));
      impl_->sessionTimer.start();
    }
    emit settingsChanged();
  });
}

void ChatController::cancelRestoring() {
  if (impl_->restore) impl_->restore->job.cancel();
}

quint64 ChatController::sessionBytes() const { return impl_->sessionFolder.totalBytes(); }

}  // namespace longhand::app
