#include "app/database.h"

#include <QDateTime>
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QLockFile>
#include <QSqlDatabase>
#include <QSqlError>
#include <QSqlQuery>
#include <QUuid>
#include <QVariant>

#include "app/error_text.h"
#include "app/schema.h"

namespace longhand::app {

using engine::ErrorCode;

namespace {

// Of another process's writes; ours are all on one thread.
constexpr int kBusyTimeoutMs = 2000;

// Primary result codes of SQLite (sqlite3.h).
enum SqliteCode {
  kSqliteBusy = 5,
  kSqliteLocked = 6,
  kSqliteReadOnly = 8,
  kSqliteIoError = 10,
  kSqliteCorrupt = 11,
  kSqliteFull = 13,
  kSqliteCannotOpen = 14,
  kSqliteNotADatabase = 26,
};

/// Error for what SQLite reports about `file`.
[[noreturn]] void throwSqlError(const QSqlError& error, const QString& file) {
  // Extended codes carry the primary code in their low byte.
  switch (error.nativeErrorCode().toInt() & 0xFF) {
    case kSqliteBusy:
    case kSqliteLocked:
      throwError(ErrorCode::kDatabase, QStringLiteral("%1: locked by another program.").arg(file),
                 QStringLiteral("Close the program that uses the file, then try again."));
    case kSqliteReadOnly:
    case kSqliteCannotOpen:
      throwError(ErrorCode::kFileUnreadable, QStringLiteral("%1: cannot be written.").arg(file),
                 QStringLiteral("Check the permissions of the file and its folder."));
    case kSqliteFull:
      throwError(ErrorCode::kDatabase,
                 QStringLiteral("%1: the disk is full; the last change is not stored.").arg(file),
                 QStringLiteral("Free some space, then try again."));
    case kSqliteIoError:
      throwError(
          ErrorCode::kFileUnreadable,
          QStringLiteral("%1: reading or writing fails (%2).").arg(file, error.databaseText()),
          QStringLiteral("Check the disk."));
    case kSqliteCorrupt:
    case kSqliteNotADatabase:
      throwError(ErrorCode::kFileDamaged,
                 QStringLiteral("%1: damaged (%2).").arg(file, error.databaseText()),
                 QStringLiteral("It can be set aside under another name, to start with an empty "
                                "one; nothing is deleted."));
    default:
      throwError(ErrorCode::kDatabase,
                 QStringLiteral("%1: %2.").arg(file, error.text().simplified()), {});
  }
}

std::unique_ptr<QLockFile> lockFile(const QString& filePath) {
  auto lock = std::make_unique<QLockFile>(filePath + QStringLiteral(".lock"));
  lock->setStaleLockTime(0);  // only the death of the process makes it stale, not its age
  if (lock->tryLock(0)) return lock;
  if (lock->error() == QLockFile::LockFailedError) {
    qint64 processId = 0;
    QString host;
    QString program;
    lock->getLockInfo(&processId, &host, &program);
    throwError(ErrorCode::kDatabase,
               QStringLiteral("%1: in use by another running Longhand (process %2).")
                   .arg(filePath)
                   .arg(processId),
               QStringLiteral("Use that window, or close it first."));
  }
  throwError(ErrorCode::kFileUnreadable, QStringLiteral("%1: cannot be written.").arg(filePath),
             QStringLiteral("Check that the folder exists and its permissions."));
}

int pragmaInt(const Database& database, const QString& name) {
  QSqlQuery query = database.prepare(QStringLiteral("PRAGMA ") + name);
  database.run(query);
  return query.next() ? query.value(0).toInt() : 0;
}

void runStatement(const Database& database, const QString& sql) {
  QSqlQuery query = database.prepare(sql);
  database.run(query);
}

}  // namespace

Database::Database(const QString& filePath)
    : filePath_(filePath),
      connectionName_(QStringLiteral("longhand-") + QUuid::createUuid().toString()),
      lock_(lockFile(filePath)) {
  try {
    open();
    migrate();
  } catch (...) {
    QSqlDatabase::database(connectionName_, false).close();
    QSqlDatabase::removeDatabase(connectionName_);
    throw;
  }
}

Database::~Database() {
  QSqlDatabase::database(connectionName_, false).close();
  QSqlDatabase::removeDatabase(connectionName_);
}

QSqlDatabase Database::handle() const { return QSqlDatabase::database(connectionName_, false); }

void Database::open() {
  const QFileInfo info(filePath_);
  if (info.exists() && (!info.isFile() || !info.isReadable() || !info.isWritable())) {
    throwError(ErrorCode::kFileUnreadable,
               QStringLiteral("%1: cannot be read and written.").arg(filePath_),
               QStringLiteral("Check the permissions of the file and its folder."));
  }
  // Nobody else's business. SQLite gives its log files the permissions of the database.
  const QFile::Permissions ownerOnly = QFile::ReadOwner | QFile::WriteOwner;
  QFile file(filePath_);
  if (!info.exists() && file.open(QIODevice::WriteOnly | QIODevice::NewOnly, ownerOnly)) {
    file.close();
  } else if (info.exists()) {
    file.setPermissions(ownerOnly);  // it may be that of an earlier version
  }
  QSqlDatabase connection = QSqlDatabase::addDatabase(QStringLiteral("QSQLITE"), connectionName_);
  if (!connection.isValid()) {
    throwError(ErrorCode::kDatabase, QStringLiteral("Qt's SQLite driver is not installed."),
               QStringLiteral("Install the package libqt6sql6-sqlite."));
  }
  connection.setDatabaseName(filePath_);
  connection.setConnectOptions(QStringLiteral("QSQLITE_BUSY_TIMEOUT=%1").arg(kBusyTimeoutMs));
  if (!connection.open()) throwSqlError(connection.lastError(), filePath_);

  // All refusals come before the first write, so that a file that is not ours stays as it is.
  const int version = pragmaInt(*this, QStringLiteral("user_version"));
  const int application = pragmaInt(*this, QStringLiteral("application_id"));
  if (application != kApplicationId &&
      (application != 0 || version != 0 || !connection.tables().isEmpty())) {
    throwError(ErrorCode::kDatabase,
               QStringLiteral("%1: a database of another program.").arg(filePath_),
               QStringLiteral("Move the file away, or choose another data folder."));
  }
  if (version > kSchemaVersion) {
    throwError(ErrorCode::kDatabase,
               QStringLiteral("%1: written by a newer Longhand (schema %2, this program knows %3).")
                   .arg(filePath_)
                   .arg(version)
                   .arg(kSchemaVersion),
               QStringLiteral("Start the newer version."));
  }
  QSqlQuery check = prepare(QStringLiteral("PRAGMA quick_check(1)"));
  run(check);
  const QString verdict = check.next() ? check.value(0).toString() : QString();
  if (verdict != QStringLiteral("ok")) {
    throwError(ErrorCode::kFileDamaged,
               QStringLiteral("%1: damaged (%2).").arg(filePath_, verdict.simplified()),
               QStringLiteral("It can be set aside under another name, to start with an empty one; "
                              "nothing is deleted."));
  }
  check.finish();
}

void Database::migrate() {
  // WAL with NORMAL: a crash of the program loses nothing, a power cut at most the last commits.
  runStatement(*this, QStringLiteral("PRAGMA journal_mode = WAL"));
  runStatement(*this, QStringLiteral("PRAGMA synchronous = NORMAL"));
  runStatement(*this, QStringLiteral("PRAGMA foreign_keys = ON"));
  const int version = pragmaInt(*this, QStringLiteral("user_version"));
  if (version == kSchemaVersion) return;
  transaction([&] {
    for (const SchemaStep& step : schemaSteps()) {
      if (step.version <= version) continue;
      for (const char* statement : step.statements) {
        runStatement(*this, QString::fromUtf8(statement));
      }
    }
    runStatement(*this, QStringLiteral("PRAGMA application_id = %1").arg(kApplicationId));
    runStatement(*this, QStringLiteral("PRAGMA user_version = %1").arg(kSchemaVersion));
  });
}

void Database::transaction(const std::function<void()>& work) {
  runStatement(*this, QStringLiteral("BEGIN IMMEDIATE"));
  try {
    work();
    runStatement(*this, QStringLiteral("COMMIT"));
  } catch (...) {
    QSqlQuery rollback(handle());
    rollback.exec(QStringLiteral("ROLLBACK"));
    throw;
  }
}

QSqlQuery Database::prepare(const QString& sql) const {
  QSqlQuery query(handle());
  query.setForwardOnly(true);
  if (!query.prepare(sql)) throwSqlError(query.lastError(), filePath_);
  return query;
}

void Database::run(QSqlQuery& query) const {
  if (!query.exec()) throwSqlError(query.lastError(), filePath_);
}

QString Database::moveAside(const QString& filePath) {
  const QString stamp = QDateTime::currentDateTime().toString(QStringLiteral("yyyyMMdd-hhmmss"));
  const QString base = filePath + QStringLiteral(".damaged-") + stamp;
  QString target = base;
  for (int i = 2; QFile::exists(target); ++i) target = base + QStringLiteral("-%1").arg(i);
  if (!QFile::rename(filePath, target)) {
    throwError(ErrorCode::kFileUnreadable,
               QStringLiteral("%1: cannot be renamed to %2.").arg(filePath, target),
               QStringLiteral("Check the permissions of the folder."));
  }
  // The write-ahead log belongs to the file and may hold its last changes.
  for (const QString& suffix : {QStringLiteral("-wal"), QStringLiteral("-shm")}) {
    if (QFile::exists(filePath + suffix)) QFile::rename(filePath + suffix, target + suffix);
  }
  return target;
}

}  // namespace longhand::app
