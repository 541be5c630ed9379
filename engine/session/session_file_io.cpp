#include "engine/session/session_file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/error_words.h"

namespace longhand::engine {
namespace {

std::string systemText(int error) { return std::generic_category().message(error); }

void throwIfStopped(const std::stop_token& stop) {
  if (stop.stop_requested()) throw Error(ErrorCode::kCancelled, "Stopped.");
}

std::filesystem::path folderOf(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

/// Creates a new file beside `target`, readable by its owner alone: it holds what was read.
std::string makeTemporaryName(const std::filesystem::path& target) {
  return target.string() + ".XXXXXX" + kSessionTemporaryEnding;
}

int openTemporary(std::string& name) {
  return ::mkostemps(name.data(), static_cast<int>(std::strlen(kSessionTemporaryEnding)),
                     O_CLOEXEC);
}

[[noreturn]] void throwUnwritable(const std::filesystem::path& target, int error) {
  const bool isFull = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw Error(ErrorCode::kFileUnwritable,
              target.string() + " cannot be written: " + systemText(error) + ".",
              isFull ? "Free some disk space or choose another folder. Nothing else was changed."
                     : "Check the folder and its permissions. Nothing else was changed.");
}

/// Replaces nothing but sessions: a name mistyped must not cost a document. An empty file holds
/// nothing to lose.
void requireReplaceable(const std::filesystem::path& target) {
  const SessionFileDescriptor file(
      ::open(target.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.value() < 0) {
    if (errno == ENOENT) return;
    throwUnwritable(target, errno);
  }
  struct stat status {};
  if (::fstat(file.value(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kFileUnwritable, target.string() + " is not a file.",
                "Choose another name.");
  }
  std::array<std::uint8_t, kSessionMagic.size()> start{};
  const ssize_t nRead = ::pread(file.value(), start.data(), start.size(), 0);
  if (nRead < 0) throwUnwritable(target, errno);
  if (status.st_size == 0 || start == kSessionMagic) return;
  throw Error(ErrorCode::kFileUnwritable,
              target.string() + " exists and is no session, so it is not replaced.",
              "Choose another name. Nothing was changed.");
}

int openForReading(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file >= 0) return file;
  const int error = errno;
  if (error == ENOENT || error == ENOTDIR) {
    throw Error(ErrorCode::kFileNotFound, path.string() + " does not exist.",
                "Check the path of the session.");
  }
  throw Error(ErrorCode::kFileUnreadable,
              path.string() + " cannot be read: " + systemText(error) + ".",
              error == EACCES ? "Check the file's permissions." : "");
}

}  // namespace

SessionFileDescriptor::~SessionFileDescriptor() {
  if (value_ >= 0) ::close(value_);
}

void requireSessionTarget(const std::filesystem::path& target) {
  requireReplaceable(target);
  std::string temporary = makeTemporaryName(target);
  const SessionFileDescriptor file(openTemporary(temporary));
  if (file.value() < 0) throwUnwritable(target, errno);
  ::unlink(temporary.c_str());
}

// --- Writing ------------------------------------------------------------------------------------

SessionFileWriter::SessionFileWriter(const std::filesystem::path& target,
                                     const SessionFileHeader& header, SessionProgress progress,
                                     std::stop_token stop)
    : target_(target),
      temporary_(makeTemporaryName(target)),
      file_(openTemporary(temporary_)),
      header_(header),
      progress_(std::move(progress)),
      stop_(std::move(stop)),
      block_(static_cast<std::size_t>(
                 std::min<std::uint64_t>(header.blockBytes, header.payloadBytes)) +
             kSessionChecksumBytes) {
  if (file_.value() < 0) {
    const int error = errno;
    temporary_.clear();
    fail(error);
  }
  try {
    requireReplaceable(target);
    // A full disk then shows at once, and not after minutes. Not every file system can do it.
    const auto bytes = static_cast<off_t>(sessionFileBytes(header));
    if (::fallocate(file_.value(), 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS &&
        errno != EINTR) {
      fail(errno);
    }
    writeAll(std::as_bytes(std::span(&header_, 1)));
  } catch (...) {
    ::unlink(temporary_.c_str());
    throw;
  }
}

SessionFileWriter::~SessionFileWriter() {
  if (!isFinished_) ::unlink(temporary_.c_str());
}

void SessionFileWriter::fail(int error) const { throwUnwritable(target_, error); }

std::span<std::byte> SessionFileWriter::room(std::uint64_t most) {
  const std::size_t free = block_.size() - kSessionChecksumBytes - filled_;
  return std::span(block_).subspan(filled_,
                                   static_cast<std::size_t>(std::min<std::uint64_t>(most, free)));
}

void SessionFileWriter::advance(std::size_t bytes) {
  filled_ += bytes;
  writtenBytes_ += bytes;
  assert(writtenBytes_ <= header_.payloadBytes);
  if (filled_ + kSessionChecksumBytes == block_.size() || writtenBytes_ == header_.payloadBytes) {
    writeBlock();
  }
}

void SessionFileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> destination = room(bytes.size());
    std::memcpy(destination.data(), bytes.data(), destination.size());
    bytes = bytes.subspan(destination.size());
    advance(destination.size());
  }
}

void SessionFileWriter::writeBlock() {
  throwIfStopped(stop_);
  const std::span<const std::byte> block = std::span(block_).first(filled_);
  const std::uint64_t checksum = sessionBlockChecksum(header_, nextBlock_++, block);
  std::memcpy(block_.data() + filled_, &checksum, sizeof(checksum));
  writeAll(std::span(block_).first(filled_ + kSessionChecksumBytes));
  filled_ = 0;
  if (progress_) progress_(writtenBytes_, header_.payloadBytes);
}

void SessionFileWriter::writeAll(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.value(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void SessionFileWriter::finish() {
  if (writtenBytes_ != header_.payloadBytes) {
    throw Error(ErrorCode::kInternal, "A session file got " + std::to_string(writtenBytes_) +
                                          " bytes instead of " +
                                          std::to_string(header_.payloadBytes) + ".");
  }
  throwIfStopped(stop_);
  if (::fsync(file_.value()) != 0) fail(errno);
  requireReplaceable(target_);  // minutes may have passed
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  isFinished_ = true;
  // The new name must survive a power cut, too; where a folder cannot be synced, the file is whole.
  const SessionFileDescriptor folder(
      ::open(folderOf(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.value() >= 0) ::fsync(folder.value());
}

// --- Reading ------------------------------------------------------------------------------------

SessionFileReader::SessionFileReader(const std::filesystem::path& path)
    : name_(path.string()), file_(openForReading(path)) {
  struct stat status {};
  if (::fstat(file_.value(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kFileUnreadable, name_ + " is not a file.");
  }
  fileBytes_ = static_cast<std::uint64_t>(status.st_size);
  std::vector<std::byte> start(
      static_cast<std::size_t>(std::min<std::uint64_t>(fileBytes_, sizeof(SessionFileHeader))));
  readAt(start, 0);
  header_ = parseSessionHeader(start, fileBytes_, name_);
  ::posix_fadvise(file_.value(), 0, 0, POSIX_FADV_SEQUENTIAL);  // advice only
}

void SessionFileReader::observe(SessionProgress progress, std::stop_token stop, int passes) {
  progress_ = std::move(progress);
  stop_ = std::move(stop);
  passes_ = passes;
}

std::span<const std::byte> SessionFileReader::next(std::uint64_t most) {
  if (isBlockDone()) loadBlock(nextBlock_);
  const std::size_t count =
      static_cast<std::size_t>(std::min<std::uint64_t>(most, block_.size() - position_));
  const std::span<const std::byte> result = std::span(block_).subspan(position_, count);
  position_ += count;
  return result;
}

void SessionFileReader::read(std::span<std::byte> destination) {
  while (!destination.empty()) {
    const std::span<const std::byte> bytes = next(destination.size());
    std::memcpy(destination.data(), bytes.data(), bytes.size());
    destination = destination.subspan(bytes.size());
  }
}

void SessionFileReader::verifyAll(std::uint64_t offset) {
  for (std::uint64_t index = 0; index < sessionBlockCount(header_); ++index) loadBlock(index);
  const std::uint64_t block = offset / header_.blockBytes;
  if (block < sessionBlockCount(header_)) loadBlock(block);
  position_ = static_cast<std::size_t>(offset % header_.blockBytes);
}

void SessionFileReader::loadBlock(std::uint64_t index) {
  throwIfStopped(stop_);
  const std::uint64_t first = index * header_.blockBytes;
  if (first >= header_.payloadBytes) {
    throw Error(ErrorCode::kInternal, name_ + ": read beyond its end.");
  }
  const std::uint64_t count =
      std::min<std::uint64_t>(header_.blockBytes, header_.payloadBytes - first);
  const std::uint64_t offset = sizeof(header_) + first + index * kSessionChecksumBytes;
  std::uint64_t checksum = 0;
  block_.resize(static_cast<std::size_t>(count) + kSessionChecksumBytes);
  readAt(block_, offset);
  std::memcpy(&checksum, block_.data() + count, sizeof(checksum));
  block_.resize(static_cast<std::size_t>(count));
  if (checksum != sessionBlockChecksum(header_, index, block_)) {
    throw Error(ErrorCode::kFileDamaged,
                name_ + ": the checksum of block " + std::to_string(index) + " of " +
                    std::to_string(sessionBlockCount(header_)) + " is wrong.",
                "The session cannot be used; the text has to be read again.");
  }
  position_ = 0;
  nextBlock_ = index + 1;
  doneBytes_ += count;
  const std::uint64_t total = header_.payloadBytes * static_cast<std::uint64_t>(passes_);
  if (progress_) progress_(std::min(doneBytes_, total), total);
}

void SessionFileReader::readAt(std::span<std::byte> destination, std::uint64_t offset) const {
  while (!destination.empty()) {
    const ssize_t count =
        ::pread(file_.value(), destination.data(), destination.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(ErrorCode::kFileUnreadable,
                  name_ + " cannot be read: " + systemText(errno) + ".");
    }
    if (count == 0) {
      throw Error(ErrorCode::kFileDamaged, name_ + ": the file was shortened while it was read.");
    }
    destination = destination.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

}  // namespace longhand::engine
