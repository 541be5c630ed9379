#pragma once
// Documents in the database. A document belongs to as many conversations as use it, and is kept
// once: the same file name and text are the same document.
//
// Every function throws engine::Error kDatabase. Thread: the database's.

#include <cstdint>
#include <vector>

#include <QByteArray>
#include <QDateTime>
#include <QString>
#include <QStringList>

namespace longhand::app {

class Database;
struct DocumentContent;

struct Document {
  std::int64_t id = 0;
  QString fileName;
  QString path;                            // where it was opened from; the file may be gone
  QString encoding;                        // "UTF-8", "ISO-8859-1", ...; of a PDF "PDF"
  QString text;                            // empty in lists
  QByteArray sha256;                       // of file name and text
  std::int64_t tokenCount = 0;             // -1: not counted yet
  std::uint64_t tokenizerFingerprint = 0;  // of the tokenizer that counted
  QStringList notes;                       // what the extraction lost, sentences
  QDateTime added;
};

class DocumentStore {
 public:
  /// `database` must outlive the store.
  explicit DocumentStore(Database& database);

  /// Stores the content, or finds it when it is there already. Returns the document's id.
  std::int64_t add(const DocumentContent& content, std::int64_t tokenCount,
                   std::uint64_t tokenizerFingerprint);
  /// Throws kInvalidArgument when there is none of this id.
  Document document(std::int64_t id) const;
  void setTokenCount(std::int64_t id, std::int64_t tokenCount, std::uint64_t tokenizerFingerprint);

  /// Attaches at the end of the conversation's documents; twice is once.
  void attach(std::int64_t conversationId, std::int64_t documentId);
  void detach(std::int64_t conversationId, std::int64_t documentId);
  /// In the order in which they stand in the prompt, with text.
  std::vector<Document> documentsOf(std::int64_t conversationId) const;
  /// All documents, the latest first, without text.
  std::vector<Document> documents() const;
  /// Removes documents that no conversation uses. Returns how many.
  int purgeUnused();

 private:
  Database& database_;
};

}  // namespace longhand::app
