#include "app/conversation_store.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include <QSqlQuery>
#include <QStringList>
#include <QVariant>

#include "app/database.h"
#include "app/error_text.h"
#include "app/preset_store.h"

namespace longhand::app {

namespace {

// Written to the database: never rename.
const QString& stateName(MessageState state) {
  static const QString names[] = {QStringLiteral("complete"), QStringLiteral("streaming"),
                                  QStringLiteral("stopped"), QStringLiteral("failed")};
  return names[static_cast<std::size_t>(state)];
}

MessageState stateFromName(const QString& name) {
  for (const MessageState state :
       {MessageState::kStreaming, MessageState::kStopped, MessageState::kFailed}) {
    if (name == stateName(state)) return state;
  }
  return MessageState::kComplete;
}

/// Little-endian 32 bit ids.
QByteArray tokensToBlob(const std::vector<std::int32_t>& tokens) {
  QByteArray blob(static_cast<qsizetype>(tokens.size() * sizeof(std::int32_t)), Qt::Uninitialized);
  if (!tokens.empty()) std::memcpy(blob.data(), tokens.data(), tokens.size() * 4);
  return blob;
}

std::vector<std::int32_t> tokensFromBlob(const QByteArray& blob) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(blob.size()) / sizeof(std::int32_t));
  if (!tokens.empty()) std::memcpy(tokens.data(), blob.constData(), tokens.size() * 4);
  return tokens;
}

QVariant idOrNull(std::int64_t id) {
  return id != 0 ? QVariant(qlonglong{id}) : QVariant(QMetaType::fromType<qlonglong>());
}

QVariant idValue(std::int64_t id) { return QVariant(qlonglong{id}); }

QDateTime timeValue(const QVariant& milliseconds) {
  return QDateTime::fromMSecsSinceEpoch(milliseconds.toLongLong());
}

qint64 nowMs() { return QDateTime::currentMSecsSinceEpoch(); }

/// NULL and an empty string are different to SQLite, and a null QString is bound as NULL.
QString notNull(const QString& text) { return text.isNull() ? QStringLiteral("") : text; }

template <typename... Values>
QSqlQuery runQuery(const Database& database, const QString& sql, Values&&... values) {
  QSqlQuery query = database.prepare(sql);
  (query.addBindValue(QVariant(std::forward<Values>(values))), ...);
  database.run(query);
  return query;
}

const QString kConversationColumns = QStringLiteral(
    "id, title, created_ms, updated_ms, preset_id, pinned, active_leaf_id, draft, "
    "context_length, custom_cache, coalesce((SELECT file_name FROM conversation_documents "
    "JOIN documents ON documents.id = document_id WHERE conversation_id = conversations.id "
    "ORDER BY position LIMIT 1), '') AS document_name");

Conversation readConversation(const QSqlQuery& row) {
  Conversation conversation;
  conversation.id = row.value(0).toLongLong();
  conversation.title = row.value(1).toString();
  conversation.created = timeValue(row.value(2));
  conversation.updated = timeValue(row.value(3));
  conversation.presetId = row.value(4).toString();
  conversation.pinned = row.value(5).toInt() != 0;
  conversation.activeLeafId = row.value(6).toLongLong();
  conversation.draft = row.value(7).toString();
  conversation.contextLength = std::max<qint64>(0, row.value(8).toLongLong());
  if (const QString cache = row.value(9).toString(); !cache.isEmpty()) {
    try {
      conversation.customCache = cacheConfigFromJson(cache);
    } catch (const engine::Error&) {
      // Damaged: as if the chat had none.
    }
  }
  conversation.documentName = row.value(10).toString();
  return conversation;
}

/// Some 40 characters on either side of the match, on one line.
QString snippetAround(const QString& text, const QString& needle) {
  constexpr qsizetype kMargin = 40;
  const qsizetype at = std::max<qsizetype>(0, text.indexOf(needle, 0, Qt::CaseInsensitive));
  const qsizetype first = std::max<qsizetype>(0, at - kMargin);
  const qsizetype length = at - first + needle.size() + kMargin;
  QString snippet = text.mid(first, length).simplified();
  if (first > 0) snippet.prepend(QStringLiteral("…"));
  if (first + length < text.size()) snippet.append(QStringLiteral("…"));
  return snippet;
}

/// The condition that finds `text` in `column`, and what to bind to it. Trigrams need three
/// characters; shorter words (most Chinese ones) are looked for one row after the other.
std::pair<QString, QString> searchCondition(const QString& text, const QString& index,
                                            const QString& table, const QString& column) {
  if (text.toUcs4().size() >= 3) {
    QString phrase = text;
    phrase.replace(QLatin1Char('"'), QStringLiteral("\"\""));
    return {QStringLiteral("%1.id IN (SELECT rowid FROM %2 WHERE %2 MATCH ?)").arg(table, index),
            QLatin1Char('"') + phrase + QLatin1Char('"')};
  }
  QString pattern = text;
  pattern.replace(QLatin1Char('\\'), QStringLiteral("\\\\"));
  pattern.replace(QLatin1Char('%'), QStringLiteral("\\%"));
  pattern.replace(QLatin1Char('_'), QStringLiteral("\\_"));
  return {QStringLiteral("%1.%2 LIKE ? ESCAPE '\\'").arg(table, column),
          QLatin1Char('%') + pattern + QLatin1Char('%')};
}

}  // namespace

ConversationStore::ConversationStore(Database& database) : database_(database) {}

std::int64_t ConversationStore::createConversation(const QString& presetId) {
  const qint64 now = nowMs();
  const QSqlQuery query =
      runQuery(database_,
               QStringLiteral("INSERT INTO conversations (created_ms, updated_ms, preset_id) "
                              "VALUES (?, ?, ?)"),
               now, now, notNull(presetId));
  return query.lastInsertId().toLongLong();
}

Conversation ConversationStore::conversation(std::int64_t id) const {
  QSqlQuery query = runQuery(
      database_,
      QStringLiteral("SELECT %1 FROM conversations WHERE id = ?").arg(kConversationColumns),
      idValue(id));
  if (!query.next()) {
    throwError(engine::ErrorCode::kInvalidArgument,
               QStringLiteral("There is no conversation number %1.").arg(id));
  }
  return readConversation(query);
}

std::vector<Conversation> ConversationStore::conversations() const {
  QSqlQuery query =
      runQuery(database_, QStringLiteral("SELECT %1 FROM conversations WHERE deleted_ms IS NULL "
                                         "ORDER BY pinned DESC, updated_ms DESC, id DESC")
                              .arg(kConversationColumns));
  std::vector<Conversation> result;
  while (query.next()) result.push_back(readConversation(query));
  return result;
}

void ConversationStore::setTitle(std::int64_t id, const QString& title) {
  runQuery(database_, QStringLiteral("UPDATE conversations SET title = ? WHERE id = ?"),
           notNull(title), idValue(id));
}

void ConversationStore::setPreset(std::int64_t id, const QString& presetId) {
  runQuery(database_, QStringLiteral("UPDATE conversations SET preset_id = ? WHERE id = ?"),
           notNull(presetId), idValue(id));
}

void ConversationStore::setContextLength(std::int64_t id, std::int64_t contextLength) {
  runQuery(database_, QStringLiteral("UPDATE conversations SET context_length = ? WHERE id = ?"),
           idValue(contextLength), idValue(id));
}

void ConversationStore::setCustomCache(std::int64_t id, const engine::KvCacheConfig& cache) {
  runQuery(database_, QStringLiteral("UPDATE conversations SET custom_cache = ? WHERE id = ?"),
           cacheConfigToJson(cache), idValue(id));
}

void ConversationStore::setPinned(std::int64_t id, bool pinned) {
  runQuery(database_, QStringLiteral("UPDATE conversations SET pinned = ? WHERE id = ?"),
           pinned ? 1 : 0, idValue(id));
}

void ConversationStore::setDraft(std::int64_t id, const QString& draft) {
  runQuery(database_, QStringLiteral("UPDATE conversations SET draft = ? WHERE id = ?"),
           notNull(draft), idValue(id));
}

void ConversationStore::deleteConversation(std::int64_t id) {
  runQuery(database_, QStringLiteral("UPDATE conversations SET deleted_ms = ? WHERE id = ?"),
           nowMs(), idValue(id));
}

void ConversationStore::restoreConversation(std::int64_t id) {
  runQuery(database_, QStringLiteral("UPDATE conversations SET deleted_ms = NULL WHERE id = ?"),
           idValue(id));
}

int ConversationStore::purgeDeleted(const QDateTime& before) {
  const QSqlQuery query =
      runQuery(database_, QStringLiteral("DELETE FROM conversations WHERE deleted_ms < ?"),
               before.toMSecsSinceEpoch());
  return query.numRowsAffected();
}

void ConversationStore::touch(std::int64_t conversationId, std::int64_t activeLeafId) {
  runQuery(database_,
           QStringLiteral("UPDATE conversations SET updated_ms = ?, active_leaf_id = ? "
                          "WHERE id = ?"),
           nowMs(), idValue(activeLeafId), idValue(conversationId));
}

std::int64_t ConversationStore::addUserMessage(std::int64_t conversationId, std::int64_t parentId,
                                               const QString& text) {
  std::int64_t id = 0;
  database_.transaction([&] {
    id = runQuery(database_,
                  QStringLiteral("INSERT INTO messages (conversation_id, parent_id, role, text, "
                                 "state, created_ms) VALUES (?, ?, 'user', ?, 'complete', ?)"),
                  idValue(conversationId), idOrNull(parentId), notNull(text), nowMs())
             .lastInsertId()
             .toLongLong();
    touch(conversationId, id);
  });
  return id;
}

std::int64_t ConversationStore::addAnswer(std::int64_t conversationId, std::int64_t parentId) {
  std::int64_t id = 0;
  database_.transaction([&] {
    id = runQuery(database_,
                  QStringLiteral("INSERT INTO messages (conversation_id, parent_id, role, text, "
                                 "state, created_ms) VALUES (?, ?, 'assistant', '', 'streaming', "
                                 "?)"),
                  idValue(conversationId), idOrNull(parentId), nowMs())
             .lastInsertId()
             .toLongLong();
    touch(conversationId, id);
  });
  return id;
}

void ConversationStore::updateStreaming(std::int64_t messageId, const QString& text) {
  runQuery(database_,
           QStringLiteral("UPDATE messages SET text = ? WHERE id = ? AND state = 'streaming'"),
           notNull(text), idValue(messageId));
}

void ConversationStore::finishAnswer(const Message& answer) {
  const MessageStatistics& statistics = answer.statistics;
  runQuery(database_,
           QStringLiteral("UPDATE messages SET text = ?, tokens = ?, tokenizer_fingerprint = ?, "
                          "state = ?, stop_reason = ?, prompt_tokens = ?, reused_tokens = ?, "
                          "answer_tokens = ?, first_token_seconds = ?, tokens_per_second = ?, "
                          "prefill_tokens_per_second = ? WHERE id = ?"),
           notNull(answer.text), tokensToBlob(answer.tokens),
           // SQLite has signed integers only: the same 64 bits.
           static_cast<qlonglong>(answer.tokenizerFingerprint), stateName(answer.state),
           notNull(answer.stopReason), idValue(statistics.promptTokens),
           idValue(statistics.reusedTokens), idValue(statistics.answerTokens),
           statistics.firstTokenSeconds, statistics.tokensPerSecond,
           statistics.prefillTokensPerSecond, idValue(answer.id));
}

Message ConversationStore::message(std::int64_t id) const {
  Message message = readMessage(id);
  QSqlQuery siblings = runQuery(database_,
                                QStringLiteral("SELECT id FROM messages WHERE conversation_id = ? "
                                               "AND parent_id IS ? ORDER BY id"),
                                idValue(message.conversationId), idOrNull(message.parentId));
  while (siblings.next()) message.siblingIds.push_back(siblings.value(0).toLongLong());
  const auto self = std::find(message.siblingIds.begin(), message.siblingIds.end(), id);
  message.siblingIndex = static_cast<int>(std::distance(message.siblingIds.begin(), self));
  return message;
}

Message ConversationStore::readMessage(std::int64_t id) const {
  QSqlQuery row = runQuery(
      database_,
      QStringLiteral("SELECT conversation_id, parent_id, role, text, tokens, state, stop_reason, "
                     "created_ms, prompt_tokens, reused_tokens, answer_tokens, "
                     "first_token_seconds, tokens_per_second, prefill_tokens_per_second, "
                     "tokenizer_fingerprint FROM messages WHERE id = ?"),
      idValue(id));
  if (!row.next()) {
    throwError(engine::ErrorCode::kInvalidArgument,
               QStringLiteral("There is no message number %1.").arg(id));
  }
  Message message;
  message.id = id;
  message.conversationId = row.value(0).toLongLong();
  message.parentId = row.value(1).toLongLong();
  message.role = row.value(2).toString() == QStringLiteral("user") ? MessageRole::kUser
                                                                   : MessageRole::kAssistant;
  message.text = row.value(3).toString();
  message.tokens = tokensFromBlob(row.value(4).toByteArray());
  message.state = stateFromName(row.value(5).toString());
  message.stopReason = row.value(6).toString();
  message.created = timeValue(row.value(7));
  message.statistics.promptTokens = row.value(8).toLongLong();
  message.statistics.reusedTokens = row.value(9).toLongLong();
  message.statistics.answerTokens = row.value(10).toLongLong();
  message.statistics.firstTokenSeconds = row.value(11).toDouble();
  message.statistics.tokensPerSecond = row.value(12).toDouble();
  message.statistics.prefillTokensPerSecond = row.value(13).toDouble();
  message.tokenizerFingerprint = static_cast<std::uint64_t>(row.value(14).toLongLong());
  return message;
}

std::vector<Message> ConversationStore::activeBranch(std::int64_t conversationId) const {
  const std::int64_t leaf = conversation(conversationId).activeLeafId;
  return leaf == 0 ? std::vector<Message>{} : branchTo(leaf);
}

std::vector<Message> ConversationStore::branchTo(std::int64_t messageId) const {
  std::vector<Message> branch;
  for (std::int64_t id = messageId; id != 0; id = branch.back().parentId) {
    branch.push_back(message(id));
  }
  std::reverse(branch.begin(), branch.end());
  return branch;
}

void ConversationStore::selectBranch(std::int64_t messageId) {
  const std::int64_t conversationId = readMessage(messageId).conversationId;
  std::int64_t leaf = messageId;
  for (;;) {
    QSqlQuery child = runQuery(database_,
                               QStringLiteral("SELECT max(id) FROM messages "
                                              "WHERE conversation_id = ? AND parent_id = ?"),
                               idValue(conversationId), idValue(leaf));
    if (!child.next() || child.value(0).isNull()) break;
    leaf = child.value(0).toLongLong();
  }
  // Looking at another branch is no change of the conversation: its place in the list stays.
  runQuery(database_, QStringLiteral("UPDATE conversations SET active_leaf_id = ? WHERE id = ?"),
           idValue(leaf), idValue(conversationId));
}

int ConversationStore::recoverInterrupted() {
  return runQuery(database_,
                  QStringLiteral("UPDATE messages SET state = 'stopped', "
                                 "stop_reason = 'interrupted' WHERE state = 'streaming'"))
      .numRowsAffected();
}

std::vector<SearchHit> ConversationStore::search(const QString& text, int limit) const {
  const QString needle = text.trimmed();
  std::vector<SearchHit> hits;
  if (needle.isEmpty()) return hits;

  const auto [titleCondition, titleValue] =
      searchCondition(needle, QStringLiteral("title_search"), QStringLiteral("conversations"),
                      QStringLiteral("title"));
  QSqlQuery titles =
      runQuery(database_,
               QStringLiteral("SELECT id, title FROM conversations WHERE deleted_ms IS NULL "
                              "AND %1 ORDER BY updated_ms DESC, id DESC LIMIT ?")
                   .arg(titleCondition),
               titleValue, limit);
  while (titles.next()) {
    const QString title = titles.value(1).toString();
    hits.push_back({titles.value(0).toLongLong(), 0, title, snippetAround(title, needle)});
  }
  for (const Conversation& each : conversations()) {
    const bool isFound = each.title.isEmpty() && std::ssize(hits) < limit &&
                         each.documentName.contains(needle, Qt::CaseInsensitive);
    if (isFound) hits.push_back({each.id, 0, each.documentName, each.documentName});
  }

  const auto [textCondition, textValue] = searchCondition(
      needle, QStringLiteral("message_search"), QStringLiteral("messages"), QStringLiteral("text"));
  QSqlQuery messages =
      runQuery(database_,
               QStringLiteral("SELECT messages.conversation_id, messages.id, conversations.title, "
                              "messages.text FROM messages "
                              "JOIN conversations ON conversations.id = messages.conversation_id "
                              "WHERE conversations.deleted_ms IS NULL AND %1 "
                              "ORDER BY messages.id DESC LIMIT ?")
                   .arg(textCondition),
               textValue, limit - static_cast<int>(hits.size()));
  while (messages.next()) {
    hits.push_back({messages.value(0).toLongLong(), messages.value(1).toLongLong(),
                    messages.value(2).toString(),
                    snippetAround(messages.value(3).toString(), needle)});
  }
  return hits;
}

}  // namespace longhand::app
