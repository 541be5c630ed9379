// Caches on disk: which files are kept, and which are removed.
#include "app/session_folder.h"

#include <QDateTime>
#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <QtTest>

#include "tests/app/error_check.h"

namespace longhand::app {

class SessionFolderTest : public QObject {
  Q_OBJECT

 private:
  std::unique_ptr<QTemporaryDir> parent_;
  std::unique_ptr<SessionFolder> folder_;

  QString folderPath() const { return parent_->filePath(QStringLiteral("sessions")); }

  void write(const QString& name, int bytes, int minutesAgo = 0) const {
    QFile file(QDir(folderPath()).filePath(name));
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write(QByteArray(bytes, 'x'));
    file.close();
    QVERIFY(file.open(QIODevice::ReadWrite));
    QVERIFY(file.setFileTime(QDateTime::currentDateTime().addSecs(-60 * minutesAgo),
                             QFileDevice::FileModificationTime));
  }
  QStringList names() const { return QDir(folderPath()).entryList(QDir::Files, QDir::Name); }

 private slots:
  void init() {
    parent_ = std::make_unique<QTemporaryDir>();
    folder_ = std::make_unique<SessionFolder>(folderPath());
  }

  void aMissingFolderIsEmpty() {
    QVERIFY(!folder_->contains(1));
    QCOMPARE(folder_->totalBytes(), std::uint64_t{0});
    folder_->cleanUp({1});
    folder_->enforceQuota(0);
    folder_->remove(1);
    QVERIFY(!QFile::exists(folderPath()));
  }

  void onlyTheUserCanReadTheFolder() {
    folder_->prepare();
    const QFile::Permissions others =
        QFile::permissions(folderPath()) & (QFile::ReadGroup | QFile::ReadOther | QFile::ExeOther);
    QVERIFY(!others);
  }

  void aFolderThatCannotBeMadeIsAnError() {
    QFile file(folderPath());
    QVERIFY(file.open(QIODevice::WriteOnly));
    const engine::Error error = tests::errorOf([&] { folder_->prepare(); });
    LONGHAND_COMPARE_CODE(error, engine::ErrorCode::kFileUnwritable);
    QVERIFY(tests::mentions(error, QStringLiteral("sessions")));
  }

  void leftoversAndOrphansAreRemovedAndNothingElse() {
    folder_->prepare();
    for (const char* name : {"7.lhkv", "8.lhkv", "7.lhkv.a1B2c3.tmp", "notes.txt", "x.lhkv",
                             "7.lhkv.bak", "important.tmp"}) {
      write(QString::fromUtf8(name), 10);
    }
    folder_->cleanUp({7, 9});
    QCOMPARE(names(), QStringList({QStringLiteral("7.lhkv"), QStringLiteral("7.lhkv.bak"),
                                   QStringLiteral("important.tmp"), QStringLiteral("notes.txt"),
                                   QStringLiteral("x.lhkv")}));
  }

  void theQuotaRemovesTheOldestFirst() {
    folder_->prepare();
    write(QStringLiteral("1.lhkv"), 400, 1);
    write(QStringLiteral("2.lhkv"), 100, 3);
    write(QStringLiteral("3.lhkv"), 300, 2);
    QCOMPARE(folder_->totalBytes(), std::uint64_t{800});
    folder_->enforceQuota(800);
    QCOMPARE(names().size(), 3);
    folder_->enforceQuota(799);
    QCOMPARE(names(), QStringList({QStringLiteral("1.lhkv"), QStringLiteral("3.lhkv")}));
    folder_->enforceQuota(400);
    QCOMPARE(names(), QStringList({QStringLiteral("1.lhkv")}));
    folder_->enforceQuota(399);
    QVERIFY(names().isEmpty());
  }

  void aFileThatWasUsedIsNotOldAnyMore() {
    folder_->prepare();
    write(QStringLiteral("1.lhkv"), 100, 60);
    write(QStringLiteral("2.lhkv"), 100, 30);
    folder_->touch(1);
    folder_->enforceQuota(100);
    QCOMPARE(names(), QStringList({QStringLiteral("1.lhkv")}));
    QCOMPARE(folder_->totalBytes(), std::uint64_t{100});
    folder_->touch(5);  // is not there, and is not made
    QCOMPARE(names().size(), 1);
  }

  void allCanBeRemoved() {
    folder_->prepare();
    write(QStringLiteral("1.lhkv"), 1);
    write(QStringLiteral("2.lhkv"), 1);
    write(QStringLiteral("notes.txt"), 1);
    folder_->removeAll();
    QCOMPARE(names(), QStringList({QStringLiteral("notes.txt")}));
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::SessionFolderTest)
#include "session_folder_test.moc"
