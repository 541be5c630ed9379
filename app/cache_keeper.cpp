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
#include "app/cache_keeper.h"

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

CacheKeeper::CacheKeeper(ChatController::Impl& chat, const QString& folder)
    : chat_(chat), folder_(folder) {
  timer_.setSingleShot(true);
  timer_.setInterval(kIdleBeforeKeepingMs);
  QObject::connect(&timer_, &QTimer::timeout, &timer_,
                   [this] { chat_.guarded([this] { whenIdle(); }); });
}

bool CacheKeeper::hasModel() const { return chat_.model && !chat_.load.isUnderWay(); }

// --- What the cache is --------------------------------------------------------------------------

void CacheKeeper::configure(const CacheChoice& wanted) {
  // Later commands take the result of both for granted.
  if (configuration_) configuration_->job.detach();
  configuration_.emplace();
  configuration_->previous = std::exchange(choice_, wanted);
  configuration_->job = chat_.worker->configureCache(
      wanted.config, chat_.allowedContext(),
      [this](const Outcome<ConfiguredCache>& done) { chat_.guarded([&] { onConfigured(done); }); });
  belongsTo(0);
}

void CacheKeeper::onConfigured(const Outcome<ConfiguredCache>& configured) {
  const CacheChoice previous = std::exchange(configuration_, std::nullopt)->previous;
  if (configured) {
    if (chat_.model) chat_.model->contextLength = configured->contextLength;
    return;
  }
  choice_ = previous;
  chat_.refuseWork(configured.error());
}

void CacheKeeper::ensureConfigured() {
  const CacheChoice wanted = chat_.wantedCache();
  if (wanted != choice_) configure(wanted);
}

void CacheKeeper::prepare() {
  stopSaving(chat_.conversationId);
  if (ownerId_ != chat_.conversationId) save();
  ensureConfigured();
  restore();
}

void CacheKeeper::belongsTo(std::int64_t id, std::int64_t takenTokens) {
  if (id == ownerId_) return;
  ownerId_ = id;
  unsavedTokens_ = takenTokens;
}

// --- On disk ------------------------------------------------------------------------------------

void CacheKeeper::cleanUp() {
  if (!chat_.settings.keepsSessions) {
    folder_.removeAll();
    return;
  }
  std::vector<std::int64_t> known;
  for (const Conversation& conversation : chat_.conversationStore.conversations()) {
    known.push_back(conversation.id);
  }
  folder_.cleanUp(known);
  folder_.enforceQuota(static_cast<std::uint64_t>(chat_.settings.sessionQuotaBytes));
}

void CacheKeeper::whenIdle() {
  if (chat_.activity != Activity::kIdle || chat_.presetSwitch) return;
  if (configuration_ || save_ || restore_) return;
  if (isSaveDue()) {
    save();
  } else {
    restore();
  }
}

bool CacheKeeper::isSaveDue() const {
  const std::int64_t missing = unsavedTokens_ - (save_ ? save_->tokens : 0);
  return chat_.settings.keepsSessions && hasModel() && ownerId_ != 0 &&
         missing >=
             std::max(chat_.settings.keptMinTokens, chat_.memory.cachedTokens / kRewriteFraction);
}

void CacheKeeper::save() {
  if (!isSaveDue()) return;
  try {
    folder_.prepare();
  } catch (...) {
    unsavedTokens_ = 0;  // not every second again
    say(kNotKept, currentErrorText());
    return;
  }
  if (save_) save_->job.detach();  // of another chat, or of fewer tokens: worth its file still
  save_.emplace();
  save_->conversationId = ownerId_;
  save_->tokens = unsavedTokens_;
  save_->job = chat_.worker->saveSession(
      folder_.path(ownerId_), static_cast<std::uint64_t>(chat_.settings.sessionQuotaBytes),
      [this](const Outcome<std::uint64_t>& bytes) { onSaved(bytes); });
}

void CacheKeeper::stopSaving(std::int64_t id) {
  if (!save_ || save_->conversationId != id) return;
  save_->job.cancel();
  save_->tokens = 0;  // due again
}

void CacheKeeper::restore() {
  const std::int64_t id = chat_.conversationId;
  if (!chat_.settings.keepsSessions || !hasModel() || id == 0 || id == refusedId_ ||
      id == ownerId_ || !folder_.contains(id)) {
    return;
  }
  if (chat_.currentBranch().empty() && chat_.currentDocuments().empty()) return;
  const QString path = folder_.path(id);
  try {
    const engine::SessionInfo info = engine::readSessionInfo(QFile::encodeName(path).toStdString());
    if (info.cache != chat_.wantedCache().config) {
      refusedId_ = id;
      qCInfo(sessionLog) << "conversation" << id << "was kept with another preset: read again";
      return;
    }
  } catch (...) {
    refuse(id, currentErrorText());
    return;
  }
  save();  // of the conversation before
  ensureConfigured();
  restore_.emplace();
  restore_->conversationId = id;
  restore_->job = chat_.worker->restoreSession(
      path,
      [this](std::uint64_t done, std::uint64_t total) {
        emit chat_.owner.restoreProgress(done, total);
      },
      [this](const Outcome<std::int64_t>& tokens) { onRestored(tokens); });
  belongsTo(id);
  chat_.updateActivity();
}

void CacheKeeper::refuse(std::int64_t id, const ErrorText& error) {
  refusedId_ = id;
  if (error.code == ErrorCode::kFileDamaged) folder_.remove(id);
  say(QStringLiteral("The saved cache of this chat could not be used; what it held is "
                     "read again."),
      {error.code, error.message, {}});
}

void CacheKeeper::say(const QString& what, const ErrorText& error) {
  qCInfo(sessionLog).noquote() << error.message << error.hint;
  const QString blank = error.hint.isEmpty() ? QString() : QStringLiteral(" ");
  emit chat_.owner.notice(what, error.message + blank + error.hint);
}

void CacheKeeper::onSaved(const Outcome<std::uint64_t>& bytes) {
  const Save done = *std::exchange(save_, std::nullopt);
  if (bytes.isCancelled()) return;
  if (done.conversationId == ownerId_) unsavedTokens_ -= done.tokens;
  if (!bytes) {
    say(kNotKept, bytes.error());
    return;
  }
  if (done.conversationId == refusedId_) refusedId_ = 0;
  const bool isStillThere = chat_.guarded([&] {
    const std::vector<Conversation> known = chat_.conversationStore.conversations();
    if (std::none_of(known.begin(), known.end(),
                     [&](const Conversation& c) { return c.id == done.conversationId; })) {
      folder_.remove(done.conversationId);
    }
  });
  if (!isStillThere) return;
  folder_.enforceQuota(static_cast<std::uint64_t>(chat_.settings.sessionQuotaBytes));
  emit chat_.owner.sessionSaved(done.conversationId);
  timer_.start();  // there may be something to restore
}

void CacheKeeper::onRestored(const Outcome<std::int64_t>& tokens) {
  const std::int64_t id = std::exchange(restore_, std::nullopt)->conversationId;
  chat_.updateActivity();
  if (tokens) {
    folder_.touch(id);
    emit chat_.owner.sessionRestored(id, *tokens);
    return;
  }
  if (id == ownerId_) belongsTo(0);
  if (!tokens.isCancelled()) refuse(id, tokens.error());
  timer_.start();
}

void CacheKeeper::cancelRestoring() {
  if (restore_) restore_->job.cancel();
}

void CacheKeeper::cancelRestoringOfOthers(std::int64_t id) {
  if (restore_ && restore_->conversationId != id) restore_->job.cancel();
}

void CacheKeeper::remove(std::int64_t id) {
  stopSaving(id);
  folder_.remove(id);
}

void CacheKeeper::applySettings() {
  if (!chat_.settings.keepsSessions) {
    if (save_) save_->job.cancel();
    folder_.removeAll();
  } else {
    folder_.enforceQuota(static_cast<std::uint64_t>(chat_.settings.sessionQuotaBytes));
    timer_.start();
  }
}

}  // namespace longhand::app
