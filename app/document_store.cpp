#include "app/document_store.h"

#include <QCryptographicHash>
#include <QSqlQuery>
#include <QVariant>

#include "app/database.h"
#include "app/document_reader.h"
#include "app/error_text.h"

namespace longhand::app {

namespace {

// Stands between notes in the database; no note holds a line break.
constexpr char16_t kNoteSeparator = u'\n';

const QString kColumnsWithoutText = QStringLiteral(
    "id, file_name, path, encoding, sha256, token_count, notes, added_ms, "
    "tokenizer_fingerprint");

Document readDocument(const QSqlQuery& row) {
  Document document;
  document.id = row.value(0).toLongLong();
  document.fileName = row.value(1).toString();
  document.path = row.value(2).toString();
  document.encoding = row.value(3).toString();
  document.sha256 = row.value(4).toByteArray();
  document.tokenCount = row.value(5).toLongLong();
  document.notes = row.value(6).toString().split(QChar(kNoteSeparator), Qt::SkipEmptyParts);
  document.added = QDateTime::fromMSecsSinceEpoch(row.value(7).toLongLong());
  document.tokenizerFingerprint = static_cast<std::uint64_t>(row.value(8).toLongLong());
  return document;
}

QByteArray hashOf(const DocumentContent& content) {
  QCryptographicHash hash(QCryptographicHash::Sha256);
  hash.addData(content.fileName.toUtf8());
  hash.addData(QByteArrayView("\0", 1));
  hash.addData(content.text.toUtf8());
  return hash.result();
}

QVariant idValue(std::int64_t id) { return QVariant(qlonglong{id}); }

/// SQLite has signed integers only: the same 64 bits.
QVariant fingerprintValue(std::uint64_t fingerprint) {
  return QVariant(static_cast<qlonglong>(fingerprint));
}

/// A null QString would be bound as NULL.
QString notNull(const QString& text) { return text.isNull() ? QStringLiteral("") : text; }

}  // namespace

DocumentStore::DocumentStore(Database& database) : database_(database) {}

std::int64_t DocumentStore::add(const DocumentContent& content, std::int64_t tokenCount,
                                std::uint64_t tokenizerFingerprint) {
  const QByteArray sha256 = hashOf(content);
  QSqlQuery known = database_.prepare(QStringLiteral("SELECT id FROM documents WHERE sha256 = ?"));
  known.addBindValue(sha256);
  database_.run(known);
  if (known.next()) {
    const std::int64_t id = known.value(0).toLongLong();
    known.finish();
    setTokenCount(id, tokenCount, tokenizerFingerprint);
    return id;
  }
  QSqlQuery insert = database_.prepare(
      QStringLiteral("INSERT INTO documents (file_name, path, encoding, text, sha256, token_count, "
                     "notes, added_ms, tokenizer_fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  insert.addBindValue(notNull(content.fileName));
  insert.addBindValue(notNull(content.path));
  insert.addBindValue(notNull(content.encoding));
  insert.addBindValue(notNull(content.text));
  insert.addBindValue(sha256);
  insert.addBindValue(idValue(tokenCount));
  insert.addBindValue(notNull(content.notes.join(QChar(kNoteSeparator))));
  insert.addBindValue(QDateTime::currentMSecsSinceEpoch());
  insert.addBindValue(fingerprintValue(tokenizerFingerprint));
  database_.run(insert);
  return insert.lastInsertId().toLongLong();
}

Document DocumentStore::document(std::int64_t id) const {
  QSqlQuery query = database_.prepare(
      QStringLiteral("SELECT %1, text FROM documents WHERE id = ?").arg(kColumnsWithoutText));
  query.addBindValue(idValue(id));
  database_.run(query);
  if (!query.next()) {
    throwError(engine::ErrorCode::kInvalidArgument,
               QStringLiteral("There is no document number %1.").arg(id));
  }
  Document document = readDocument(query);
  document.text = query.value(9).toString();
  return document;
}

void DocumentStore::setTokenCount(std::int64_t id, std::int64_t tokenCount,
                                  std::uint64_t tokenizerFingerprint) {
  QSqlQuery query = database_.prepare(QStringLiteral(
      "UPDATE documents SET token_count = ?, tokenizer_fingerprint = ? WHERE id = ?"));
  query.addBindValue(idValue(tokenCount));
  query.addBindValue(fingerprintValue(tokenizerFingerprint));
  query.addBindValue(idValue(id));
  database_.run(query);
}

void DocumentStore::attach(std::int64_t conversationId, std::int64_t documentId) {
  QSqlQuery query = database_.prepare(QStringLiteral(
      "INSERT OR IGNORE INTO conversation_documents (conversation_id, document_id, position) "
      "VALUES (?, ?, (SELECT coalesce(max(position), 0) + 1 FROM conversation_documents "
      "WHERE conversation_id = ?))"));
  query.addBindValue(idValue(conversationId));
  query.addBindValue(idValue(documentId));
  query.addBindValue(idValue(conversationId));
  database_.run(query);
}

void DocumentStore::detach(std::int64_t conversationId, std::int64_t documentId) {
  QSqlQuery query = database_.prepare(QStringLiteral(
      "DELETE FROM conversation_documents WHERE conversation_id = ? AND document_id = ?"));
  query.addBindValue(idValue(conversationId));
  query.addBindValue(idValue(documentId));
  database_.run(query);
}

std::vector<Document> DocumentStore::documentsOf(std::int64_t conversationId) const {
  QSqlQuery query = database_.prepare(
      QStringLiteral("SELECT %1, text FROM documents JOIN conversation_documents "
                     "ON document_id = id WHERE conversation_id = ? ORDER BY position")
          .arg(kColumnsWithoutText));
  query.addBindValue(idValue(conversationId));
  database_.run(query);
  std::vector<Document> result;
  while (query.next()) {
    result.push_back(readDocument(query));
    result.back().text = query.value(9).toString();
  }
  return result;
}

std::vector<Document> DocumentStore::documents() const {
  QSqlQuery query =
      database_.prepare(QStringLiteral("SELECT %1 FROM documents ORDER BY added_ms DESC, id DESC")
                            .arg(kColumnsWithoutText));
  database_.run(query);
  std::vector<Document> result;
  while (query.next()) result.push_back(readDocument(query));
  return result;
}

int DocumentStore::purgeUnused() {
  QSqlQuery query = database_.prepare(QStringLiteral(
      "DELETE FROM documents WHERE id NOT IN (SELECT document_id FROM conversation_documents)"));
  database_.run(query);
  return query.numRowsAffected();
}

}  // namespace longhand::app
