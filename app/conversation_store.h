#pragma once
// Conversations and their messages in the database. The messages of a conversation form a tree: an
// edited question or a regenerated answer is a sibling of the old one, and the conversation
// remembers the leaf of the branch that is shown.
//
// Every function throws engine::Error kDatabase. Thread: the database's.

#include <cstdint>
#include <optional>
#include <vector>

#include <QDateTime>
#include <QString>

#include "engine/cache/kv_cache_config.h"

namespace longhand::app {

class Database;

enum class MessageRole { kUser, kAssistant };

/// kStreaming is only ever seen while the answer is written; after a crash the next start turns it
/// into kStopped.
enum class MessageState { kComplete, kStreaming, kStopped, kFailed };

/// How an answer came about. All zero for user messages.
struct MessageStatistics {
  std::int64_t promptTokens = 0;
  std::int64_t reusedTokens = 0;  // of the prompt: found in the cache, not computed again
  std::int64_t answerTokens = 0;
  double firstTokenSeconds = 0.0;       // from sending to the first token
  double tokensPerSecond = 0.0;         // of the tokens after the first
  double prefillTokensPerSecond = 0.0;  // over computed tokens

  bool operator==(const MessageStatistics&) const = default;
};

struct Message {
  std::int64_t id = 0;
  std::int64_t conversationId = 0;
  std::int64_t parentId = 0;  // 0: first message of its branch
  MessageRole role = MessageRole::kUser;
  QString text;
  std::vector<std::int32_t> tokens;        // of a finished answer: the model's ids, without EOS
  std::uint64_t tokenizerFingerprint = 0;  // of the tokenizer that `tokens` belong to
  MessageState state = MessageState::kComplete;
  QString stopReason;  // engine::stopReasonName, "interrupted" (after a crash), or an error
  MessageStatistics statistics;
  QDateTime created;
  int siblingIndex = 0;                  // place among the alternatives, oldest first
  std::vector<std::int64_t> siblingIds;  // all alternatives, this message included
};

struct Conversation {
  std::int64_t id = 0;
  QString title;         // empty until the first question
  QString documentName;  // file name of its first document: stands for a title that is empty
  QDateTime created;
  QDateTime updated;
  QString presetId;
  bool pinned = false;
  std::int64_t activeLeafId = 0;                     // 0: no message yet
  QString draft;                                     // what stands in the composer
  std::int64_t contextLength = 0;                    // 0: the model's trained length
  std::optional<engine::KvCacheConfig> customCache;  // its own values of the preset "custom"
};

/// One place where the searched text was found.
struct SearchHit {
  std::int64_t conversationId = 0;
  std::int64_t messageId = 0;  // 0: the title matched
  QString title;
  QString snippet;  // plain text around the match
};

class ConversationStore {
 public:
  /// `database` must outlive the store.
  explicit ConversationStore(Database& database);

  // --- Conversations --------------------------------------------------------------------------

  std::int64_t createConversation(const QString& presetId);
  /// Throws kInvalidArgument when there is none of this id.
  Conversation conversation(std::int64_t id) const;
  /// Those not deleted: pinned ones first, then the latest changed.
  std::vector<Conversation> conversations() const;
  void setTitle(std::int64_t id, const QString& title);
  void setPreset(std::int64_t id, const QString& presetId);
  void setContextLength(std::int64_t id, std::int64_t contextLength);
  void setCustomCache(std::int64_t id, const engine::KvCacheConfig& cache);
  void setPinned(std::int64_t id, bool pinned);
  void setDraft(std::int64_t id, const QString& draft);
  /// Hides the conversation; restoreConversation brings it back until it is purged.
  void deleteConversation(std::int64_t id);
  void restoreConversation(std::int64_t id);
  /// Removes for ever what was deleted before `before`. Returns how many.
  int purgeDeleted(const QDateTime& before);

  // --- Messages -------------------------------------------------------------------------------

  /// Adds a complete user message below `parentId` (0: at the root) and makes it the active leaf.
  std::int64_t addUserMessage(std::int64_t conversationId, std::int64_t parentId,
                              const QString& text);
  /// Adds an empty streaming answer below a user message and makes it the active leaf.
  std::int64_t addAnswer(std::int64_t conversationId, std::int64_t parentId);
  /// Stores what has streamed so far. The ids follow with finishAnswer.
  void updateStreaming(std::int64_t messageId, const QString& text);
  /// Stores the end of an answer: text, tokens with their tokenizer, state (not kStreaming), stop
  /// reason and statistics of `answer`, under its id.
  void finishAnswer(const Message& answer);
  /// Throws kInvalidArgument when there is none of this id.
  Message message(std::int64_t id) const;
  /// From the root to the active leaf.
  std::vector<Message> activeBranch(std::int64_t conversationId) const;
  /// From the root to `messageId`.
  std::vector<Message> branchTo(std::int64_t messageId) const;
  /// Makes the branch through `messageId` the active one, down to its newest leaf.
  void selectBranch(std::int64_t messageId);
  /// Turns answers that a crash has interrupted into kStopped ("interrupted"). Returns how many.
  int recoverInterrupted();

  // --- Search ---------------------------------------------------------------------------------

  /// Titles first (or the document's name, where that stands for one), then messages, the newest
  /// first. Substring match without regard to case, in any script. An empty text finds nothing.
  std::vector<SearchHit> search(const QString& text, int limit = 100) const;

 private:
  Message readMessage(std::int64_t id) const;
  void touch(std::int64_t conversationId, std::int64_t activeLeafId);

  Database& database_;
};

}  // namespace longhand::app
