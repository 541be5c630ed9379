#pragma once
// The caches of conversations that are kept on disk: FOLDER/<conversation id>.lhkv.
//
// They only save time: whatever is missing or refused is read again. So everything here may fail
// without a loss, and nothing throws except prepare(). Other files in the folder are left alone.

#include <cstdint>
#include <vector>

#include <QString>

namespace longhand::app {

class SessionFolder {
 public:
  /// The folder need not exist.
  explicit SessionFolder(const QString& folder);

  QString path(std::int64_t conversationId) const;
  bool contains(std::int64_t conversationId) const;
  std::uint64_t totalBytes() const;

  /// Makes the folder, readable by the user alone. Throws engine::Error kFileUnwritable.
  void prepare() const;
  /// The file counts as used now.
  void touch(std::int64_t conversationId) const;
  void remove(std::int64_t conversationId) const;
  void removeAll() const;
  /// Removes what earlier runs did not finish, and the files of conversations that are not `known`.
  /// Only while nothing is being saved.
  void cleanUp(const std::vector<std::int64_t>& known) const;
  /// Removes files, those that were not used for the longest time first, until the others fit. So
  /// the newest one stays, unless it is larger than the quota.
  void enforceQuota(std::uint64_t quotaBytes) const;

 private:
  QString folder_;
};

}  // namespace longhand::app
