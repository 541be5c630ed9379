#pragma once
// What the engine's cache is and whose tokens it holds: configured in front of what needs it, kept
// on disk, and brought back from there. A part of ChatController::Impl.
//
// The worker carries out commands in order, so what is said here is what will be true once the
// queued commands are done.

#include <cstdint>
#include <optional>
#include <vector>

#include <QTimer>

#include "app/chat_controller.h"
#include "app/engine_replies.h"
#include "app/job.h"
#include "app/session_folder.h"

namespace longhand::app {

/// What a cache is made for.
struct CacheChoice {
  engine::KvCacheConfig config;
  std::int64_t contextLength = 0;  // 0: the model's trained length

  bool operator==(const CacheChoice&) const = default;
};

class CacheKeeper {
 public:
  /// `chat` must outlive the keeper.
  CacheKeeper(ChatController::Impl& chat, const QString& folder);

  const SessionFolder& folder() const { return folder_; }
  /// Removes what is left of earlier runs.
  void cleanUp();
  /// After the settings of the caches on disk have changed.
  void applySettings();
  /// Some time later, when nothing else is to do: keeps the cache, or gets one back.
  void wakeSoon() { timer_.start(); }

  // --- What the cache is ----------------------------------------------------------------------

  const CacheChoice& choice() const { return choice_; }
  /// Somebody else has queued the command that makes it so.
  void setChoice(const CacheChoice& choice) { choice_ = choice; }
  /// Queues a configureCache, which forgets the contents.
  void configure(const CacheChoice& wanted);
  /// Queues what must happen before the open conversation's tokens are computed: the cache is
  /// configured, comes from disk where it is there, and the one before is kept.
  void prepare();

  // --- Whose tokens it holds ------------------------------------------------------------------

  /// False for the conversation 0, the new one.
  bool isOf(std::int64_t id) const { return id != 0 && ownerId_ == id; }
  /// The cache's tokens are, or will be, those of this conversation (0: of none). `takenTokens`:
  /// how many it takes over from the one before, such as those of a document that both begin with.
  void belongsTo(std::int64_t id, std::int64_t takenTokens = 0);
  void computed(std::int64_t tokens) { unsavedTokens_ += tokens; }
  /// Its contents have other settings than the file, and are this much.
  void converted(std::int64_t tokens) { unsavedTokens_ = tokens; }

  // --- On disk --------------------------------------------------------------------------------

  bool isRestoring() const { return restore_.has_value(); }
  void cancelRestoring();
  /// Another conversation was opened.
  void cancelRestoringOfOthers(std::int64_t id);
  /// Files that were refused may be tried again: the model or the cache is another one.
  void forgetRefusal() { refusedId_ = 0; }
  /// Queues the saving of the cache where it is due.
  void save();
  void stopSaving(std::int64_t id);
  /// Removes the file of a conversation.
  void remove(std::int64_t id);

 private:
  /// A configureCache under way.
  struct Configuration {
    Job job;
    CacheChoice previous;
  };

  /// A cache that is being written to disk.
  struct Save {
    Job job;
    std::int64_t conversationId = 0;
    std::int64_t tokens = 0;  // of unsavedTokens_
  };

  /// A cache that is being read from disk.
  struct Restore {
    Job job;
    std::int64_t conversationId = 0;
  };

  /// Queues a configureCache where the open conversation wants another cache.
  void ensureConfigured();
  void onConfigured(const Outcome<ConfiguredCache>& configured);
  void whenIdle();
  bool isSaveDue() const;
  void onSaved(const Outcome<std::uint64_t>& bytes);
  /// Queues the restoring of the open conversation's cache where there is a file and it is needed.
  void restore();
  void onRestored(const Outcome<std::int64_t>& tokens);
  void refuse(std::int64_t id, const ErrorText& error);
  void say(const QString& what, const ErrorText& error);
  bool hasModel() const;

  ChatController::Impl& chat_;
  SessionFolder folder_;
  CacheChoice choice_;
  std::optional<Configuration> configuration_;
  std::int64_t ownerId_ = 0;        // conversation whose tokens are in the cache
  std::int64_t unsavedTokens_ = 0;  // computed in it since it was last saved or restored
  std::optional<Save> save_;
  std::optional<Restore> restore_;
  std::int64_t refusedId_ = 0;  // conversation whose file was refused: not tried again
  QTimer timer_;
};

}  // namespace longhand::app
