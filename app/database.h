#pragma once
// The SQLite file that holds everything the user would miss: conversations, documents, settings.
//
//   Database database(dataFolder + u"/longhand.sqlite"_s);   // creates or migrates it
//   ConversationStore conversations(database);
//
// One thread uses a Database and the stores on it: the one that made it. Only one process at a time
// opens a file (a lock file beside it), so that nobody mistakes another's running answer for an
// interrupted one.

#include <functional>
#include <memory>

#include <QString>

class QLockFile;
class QSqlDatabase;
class QSqlQuery;

namespace longhand::app {

class Database {
 public:
  /// Opens the file or creates it (its folder must exist), and migrates it (schema.h) in one
  /// transaction. Throws engine::Error, and leaves the file as it was:
  ///   kFileDamaged     no SQLite file, or its contents contradict themselves: offer moveAside()
  ///   kFileUnreadable  the folder or the file cannot be read or written
  ///   kDatabase        in use by another process; written by a newer version; disk full
  explicit Database(const QString& filePath);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  const QString& filePath() const { return filePath_; }
  /// For the stores.
  QSqlDatabase handle() const;

  /// Runs `work` in one transaction: everything of it is stored, or nothing. Not nested. Rethrows
  /// what `work` throws, after a rollback.
  void transaction(const std::function<void()>& work);

  /// Prepares; throws kDatabase.
  QSqlQuery prepare(const QString& sql) const;
  /// Runs a prepared query; throws kDatabase, saying when the disk is full.
  void run(QSqlQuery& query) const;

  /// Renames a damaged file and what belongs to it to "NAME.damaged-YYYYMMDD-hhmmss"; returns the
  /// new path. For use after the user has agreed. Throws kFileUnreadable.
  static QString moveAside(const QString& filePath);

 private:
  void open();
  void migrate();

  QString filePath_;
  QString connectionName_;
  std::unique_ptr<QLockFile> lock_;
};

}  // namespace longhand::app
