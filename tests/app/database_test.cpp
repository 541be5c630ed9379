#include "app/database.h"

#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include <QFile>
#include <QSqlDatabase>
#include <QSqlError>
#include <QSqlQuery>
#include <QTemporaryDir>
#include <QtTest>

#include "app/conversation_store.h"
#include "app/schema.h"
#include "tests/app/error_check.h"

namespace longhand::app {

using engine::ErrorCode;
using tests::errorOf;
using tests::mentions;

namespace {

/// A connection past the Database class, as another program would have it.
class RawConnection {
 public:
  explicit RawConnection(const QString& path) {
    QSqlDatabase connection =
        QSqlDatabase::addDatabase(QStringLiteral("QSQLITE"), QStringLiteral("raw"));
    connection.setDatabaseName(path);
    if (!connection.open()) qFatal("raw connection does not open");
  }
  ~RawConnection() { QSqlDatabase::removeDatabase(QStringLiteral("raw")); }

  void run(const QString& sql) {
    QSqlQuery query(QSqlDatabase::database(QStringLiteral("raw")));
    if (!query.exec(sql)) qFatal("%s", qPrintable(query.lastError().text()));
  }
};

QByteArray contents(const QString& path) {
  QFile file(path);
  return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
}

void write(const QString& path, const QByteArray& bytes) {
  QFile file(path);
  if (!file.open(QIODevice::WriteOnly) || file.write(bytes) != bytes.size()) qFatal("write");
}

int intOf(const Database& database, const QString& sql) {
  QSqlQuery query = database.prepare(sql);
  database.run(query);
  return query.next() ? query.value(0).toInt() : -1;
}

}  // namespace

class DatabaseTest : public QObject {
  Q_OBJECT

 private:
  std::unique_ptr<QTemporaryDir> folder_;
  QString path_;

 private slots:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    path_ = folder_->filePath(QStringLiteral("longhand.sqlite"));
  }

  void aNewFileHasTheNewestSchemaAndTheSafeSettings() {
    const Database database(path_);
    QCOMPARE(intOf(database, QStringLiteral("PRAGMA user_version")), kSchemaVersion);
    QCOMPARE(intOf(database, QStringLiteral("PRAGMA foreign_keys")), 1);
    QCOMPARE(intOf(database, QStringLiteral("PRAGMA synchronous")), 1);  // NORMAL
    QSqlQuery mode = database.prepare(QStringLiteral("PRAGMA journal_mode"));
    database.run(mode);
    QVERIFY(mode.next());
    QCOMPARE(mode.value(0).toString(), QStringLiteral("wal"));
  }

  void theStepsEndAtTheKnownVersionWithoutGaps() {
    int version = 0;
    for (const SchemaStep& step : schemaSteps()) QCOMPARE(step.version, ++version);
    QCOMPARE(version, kSchemaVersion);
  }

  void aDatabaseOfTheFirstVersionIsMigratedWithItsContents() {
    {
      RawConnection raw(path_);
      for (const char* statement : schemaSteps().front().statements) {
        raw.run(QString::fromUtf8(statement));
      }
      raw.run(QStringLiteral("PRAGMA application_id = %1").arg(kApplicationId));
      raw.run(QStringLiteral("PRAGMA user_version = 1"));
      raw.run(
          QStringLiteral("INSERT INTO conversations (id, title, created_ms, updated_ms, "
                         "preset_id) VALUES (7, 'Old gardens', 1, 1, 'quality')"));
      raw.run(
          QStringLiteral("INSERT INTO messages (id, conversation_id, role, text, state, "
                         "created_ms) VALUES (9, 7, 'user', 'Where is the green ledger?', "
                         "'complete', 1)"));
    }
    Database database(path_);
    QCOMPARE(intOf(database, QStringLiteral("PRAGMA user_version")), kSchemaVersion);
    const ConversationStore store(database);
    QCOMPARE(store.conversations().size(), std::size_t{1});
    const std::vector<SearchHit> hits = store.search(QStringLiteral("green led"));
    QCOMPARE(hits.size(), std::size_t{1});
    QCOMPARE(hits.front().messageId, std::int64_t{9});
    QCOMPARE(store.search(QStringLiteral("gardens")).size(), std::size_t{1});
  }

  void aNewerVersionIsRefusedAndNotTouched() {
    {
      RawConnection raw(path_);
      raw.run(QStringLiteral("CREATE TABLE of_the_future (x)"));
      raw.run(QStringLiteral("PRAGMA application_id = %1").arg(kApplicationId));
      raw.run(QStringLiteral("PRAGMA user_version = 999"));
    }
    const QByteArray before = contents(path_);
    const engine::Error error = errorOf([&] { Database{path_}; });
    LONGHAND_COMPARE_CODE(error, ErrorCode::kDatabase);
    QVERIFY(mentions(error, QStringLiteral("999")));
    QVERIFY(!error.hint().empty());
    QCOMPARE(contents(path_), before);
  }

  void aDatabaseOfAnotherProgramIsRefusedAndNotTouched() {
    {
      RawConnection raw(path_);
      raw.run(QStringLiteral("CREATE TABLE bookmarks (x)"));
    }
    const QByteArray before = contents(path_);
    LONGHAND_COMPARE_CODE(errorOf([&] { Database{path_}; }), ErrorCode::kDatabase);
    QCOMPARE(contents(path_), before);
  }

  void garbageIsCalledDamagedAndNotTouched() {
    const QByteArray garbage = QByteArray("not a database at all. ").repeated(1000);
    write(path_, garbage);
    const engine::Error error = errorOf([&] { Database{path_}; });
    LONGHAND_COMPARE_CODE(error, ErrorCode::kFileDamaged);
    QVERIFY(mentions(error, path_));
    QCOMPARE(contents(path_), garbage);
  }

  void aFileWithDamagedPagesIsFoundOut() {
    {
      Database database(path_);
      ConversationStore store(database);
      const std::int64_t id = store.createConversation(QStringLiteral("quality"));
      for (int i = 0; i < 200; ++i) store.addUserMessage(id, 0, QString(300, QLatin1Char('x')));
    }
    QByteArray bytes = contents(path_);
    const qsizetype middle = bytes.size() / 2;
    bytes.replace(middle, 20000, QByteArray(20000, '\x5A'));
    write(path_, bytes);
    LONGHAND_COMPARE_CODE(errorOf([&] { Database{path_}; }), ErrorCode::kFileDamaged);
    QCOMPARE(contents(path_), bytes);
  }

  void aDamagedFileIsMovedAsideWithItsLog() {
    write(path_, "garbage");
    write(path_ + QStringLiteral("-wal"), "log");
    const QString aside = Database::moveAside(path_);
    QCOMPARE(contents(aside), QByteArray("garbage"));
    QCOMPARE(contents(aside + QStringLiteral("-wal")), QByteArray("log"));
    QVERIFY(!QFile::exists(path_));
    write(path_, "garbage again");
    QVERIFY(Database::moveAside(path_) != aside);  // within the same second
    const Database fresh(path_);
    QCOMPARE(intOf(fresh, QStringLiteral("SELECT count(*) FROM conversations")), 0);
  }

  void aSecondOpenIsRefusedWithTheProcessNumber() {
    const Database database(path_);
    const engine::Error error = errorOf([&] { Database{path_}; });
    LONGHAND_COMPARE_CODE(error, ErrorCode::kDatabase);
    QVERIFY(mentions(error, QString::number(getpid())));
  }

  void aFileLockedByAnotherProgramGivesAClearError() {
    { const Database created(path_); }
    RawConnection raw(path_);
    raw.run(QStringLiteral("PRAGMA locking_mode = EXCLUSIVE"));
    raw.run(QStringLiteral("BEGIN EXCLUSIVE"));
    const engine::Error error = errorOf([&] { Database{path_}; });
    LONGHAND_COMPARE_CODE(error, ErrorCode::kDatabase);
    QVERIFY2(mentions(error, QStringLiteral("locked")), error.what());
  }

  void aFolderThatIsMissingOrTakesNoFilesGivesAClearError() {
    const engine::Error missing =
        errorOf([&] { Database{folder_->filePath(QStringLiteral("no/such/file"))}; });
    LONGHAND_COMPARE_CODE(missing, ErrorCode::kFileUnreadable);
    // Nobody, not even root, makes files there.
    const engine::Error kernel = errorOf([] { Database{QStringLiteral("/proc/longhand.sqlite")}; });
    LONGHAND_COMPARE_CODE(kernel, ErrorCode::kFileUnreadable);
  }

  void aReadOnlyFolderGivesAClearError() {
    if (geteuid() == 0) QSKIP("permissions do not bind root");
    chmod(qPrintable(folder_->path()), 0500);
    const engine::Error readOnly = errorOf([&] { Database{path_}; });
    chmod(qPrintable(folder_->path()), 0700);
    LONGHAND_COMPARE_CODE(readOnly, ErrorCode::kFileUnreadable);
  }

  void aFullDiskIsSaidAndLosesNothingOfBefore() {
    Database database(path_);
    ConversationStore store(database);
    const std::int64_t id = store.createConversation(QStringLiteral("quality"));
    store.addUserMessage(id, 0, QStringLiteral("kept"));
    const int pages = intOf(database, QStringLiteral("PRAGMA page_count"));
    intOf(database, QStringLiteral("PRAGMA max_page_count = %1").arg(pages + 2));
    const engine::Error error =
        errorOf([&] { store.addUserMessage(id, 0, QString(1'000'000, QLatin1Char('x'))); });
    LONGHAND_COMPARE_CODE(error, ErrorCode::kDatabase);
    QVERIFY(mentions(error, QStringLiteral("disk is full")));
    QCOMPARE(store.activeBranch(id).size(), std::size_t{1});
    QCOMPARE(store.activeBranch(id).front().text, QStringLiteral("kept"));
  }

  void aTransactionIsAllOrNothing() {
    Database database(path_);
    ConversationStore store(database);
    LONGHAND_COMPARE_CODE(errorOf([&] {
                            database.transaction([&] {
                              store.createConversation(QStringLiteral("quality"));
                              throw engine::Error(ErrorCode::kInvalidArgument, "no");
                            });
                          }),
                          ErrorCode::kInvalidArgument);
    QVERIFY(store.conversations().empty());
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::DatabaseTest)
#include "database_test.moc"
