#include "app/session_folder.h"

#include <algorithm>

#include <QDateTime>
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QRegularExpression>

#include "app/error_text.h"

namespace longhand::app {

namespace {

/// Files of the folder whose whole name matches, most lately used first.
QFileInfoList filesLike(const QString& folder, const QString& pattern) {
  const QRegularExpression expression(QRegularExpression::anchoredPattern(pattern));
  QFileInfoList files = QDir(folder).entryInfoList(QDir::Files | QDir::NoSymLinks, QDir::Time);
  files.removeIf(
      [&](const QFileInfo& file) { return !expression.match(file.fileName()).hasMatch(); });
  return files;
}

QFileInfoList sessionFiles(const QString& folder) {
  return filesLike(folder, QStringLiteral("[0-9]+\\.lhkv"));
}

QFileInfoList temporaryFiles(const QString& folder) {
  return filesLike(folder, QStringLiteral("[0-9]+\\.lhkv\\.[A-Za-z0-9]{6}\\.tmp"));
}

}  // namespace

SessionFolder::SessionFolder(const QString& folder) : folder_(folder) {}

QString SessionFolder::path(std::int64_t conversationId) const {
  return QDir(folder_).filePath(QStringLiteral("%1.lhkv").arg(conversationId));
}

bool SessionFolder::contains(std::int64_t conversationId) const {
  return QFileInfo(path(conversationId)).isFile();
}

std::uint64_t SessionFolder::totalBytes() const {
  std::uint64_t bytes = 0;
  for (const QFileInfo& file : sessionFiles(folder_)) {
    bytes += static_cast<std::uint64_t>(file.size());
  }
  return bytes;
}

void SessionFolder::prepare() const {
  if (!QDir().mkpath(folder_)) {
    throwError(engine::ErrorCode::kFileUnwritable,
               QStringLiteral("%1: the folder cannot be made.").arg(folder_),
               QStringLiteral("Check the permissions of the data folder."));
  }
  QFile::setPermissions(folder_, QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
}

void SessionFolder::touch(std::int64_t conversationId) const {
  QFile file(path(conversationId));
  // Without writing: ReadWrite is what setFileTime asks for.
  if (file.open(QIODevice::ReadWrite | QIODevice::ExistingOnly)) {
    file.setFileTime(QDateTime::currentDateTime(), QFileDevice::FileModificationTime);
  }
}

void SessionFolder::remove(std::int64_t conversationId) const {
  QFile::remove(path(conversationId));
}

void SessionFolder::removeAll() const {
  for (const QFileInfo& file : sessionFiles(folder_)) QFile::remove(file.filePath());
}

void SessionFolder::cleanUp(const std::vector<std::int64_t>& known) const {
  for (const QFileInfo& file : temporaryFiles(folder_)) QFile::remove(file.filePath());
  for (const QFileInfo& file : sessionFiles(folder_)) {
    bool isNumber = false;
    const qlonglong id = file.completeBaseName().toLongLong(&isNumber);
    const bool isKnown = isNumber && std::find(known.begin(), known.end(), id) != known.end();
    if (!isKnown) QFile::remove(file.filePath());
  }
}

void SessionFolder::enforceQuota(std::uint64_t quotaBytes) const {
  std::uint64_t bytes = totalBytes();
  const QFileInfoList files = sessionFiles(folder_);
  for (auto file = files.rbegin(); file != files.rend() && bytes > quotaBytes; ++file) {
    if (QFile::remove(file->filePath())) bytes -= static_cast<std::uint64_t>(file->size());
  }
}

}  // namespace longhand::app
