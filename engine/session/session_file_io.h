#pragma once
// The blocks of a session file on disk: a writer that replaces a file only by a whole one, and a
// reader that gives no byte whose checksum was not right. Format: session_file_format.h.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/session/session_file_format.h"

namespace longhand::engine {

/// Bytes done and in all; called after each block, on the caller's thread. May be empty.
using SessionProgress = std::function<void(std::uint64_t doneBytes, std::uint64_t totalBytes)>;

/// Ending of the files that are being written; the rest of the name is that of the final file, a
/// dot and six letters. What a crash leaves of them may be removed.
inline constexpr const char* kSessionTemporaryEnding = ".tmp";

/// A file descriptor that closes itself.
class SessionFileDescriptor {
 public:
  explicit SessionFileDescriptor(int value = -1) : value_(value) {}
  SessionFileDescriptor(const SessionFileDescriptor&) = delete;
  SessionFileDescriptor& operator=(const SessionFileDescriptor&) = delete;
  ~SessionFileDescriptor();
  int value() const { return value_; }

 private:
  int value_;
};

/// Writes a temporary file in the target's folder; finish() makes it the target. Until then, and
/// when anything throws, the target is as it was, and the destructor removes the temporary file.
class SessionFileWriter {
 public:
  /// Takes the disk space of the whole file where the file system can. Throws Error
  /// kFileUnwritable.
  SessionFileWriter(const std::filesystem::path& target, const SessionFileHeader& header,
                    SessionProgress progress, std::stop_token stop);
  SessionFileWriter(const SessionFileWriter&) = delete;
  SessionFileWriter& operator=(const SessionFileWriter&) = delete;
  ~SessionFileWriter();

  /// Room for the next 1 to `most` bytes of the payload (most > 0); taken by advance().
  std::span<std::byte> room(std::uint64_t most);
  /// The first `bytes` of the room are filled. Throws kFileUnwritable; kCancelled when a stop was
  /// requested and a block is complete.
  void advance(std::size_t bytes);
  void write(std::span<const std::byte> bytes);
  /// After the whole payload: writes to the disk, then renames. Throws kFileUnwritable.
  void finish();

 private:
  void writeBlock();
  void writeAll(std::span<const std::byte> bytes);
  [[noreturn]] void fail(int error) const;

  std::filesystem::path target_;
  std::string temporary_;
  SessionFileDescriptor file_;
  SessionFileHeader header_;
  SessionProgress progress_;
  std::stop_token stop_;
  std::vector<std::byte> block_;  // [one block and its checksum]
  std::size_t filled_ = 0;
  std::uint64_t nextBlock_ = 0;
  std::uint64_t writtenBytes_ = 0;
  bool isFinished_ = false;
};

/// Reads one block at a time, and hands out bytes of it only after its checksum was right.
class SessionFileReader {
 public:
  /// Reads and checks the header. Throws Error kFileNotFound, kFileUnreadable, and what
  /// parseSessionHeader throws.
  explicit SessionFileReader(const std::filesystem::path& path);

  const SessionFileHeader& header() const { return header_; }
  const std::string& name() const { return name_; }
  std::uint64_t fileBytes() const { return fileBytes_; }
  /// `passes`: how often the blocks will be read, for the total.
  void observe(SessionProgress progress, std::stop_token stop, int passes);

  /// The next 1 to `most` bytes of the payload (most > 0, and not beyond its end). Valid until the
  /// next call. Throws kFileDamaged, kFileUnreadable; kCancelled between blocks.
  std::span<const std::byte> next(std::uint64_t most);
  void read(std::span<std::byte> destination);
  /// True when the next call of next() will overwrite the block that it last gave bytes of.
  bool isBlockDone() const { return position_ == block_.size(); }
  /// Checks all blocks, then goes to the payload's byte `offset`.
  void verifyAll(std::uint64_t offset);

 private:
  void loadBlock(std::uint64_t index);
  void readAt(std::span<std::byte> destination, std::uint64_t offset) const;

  std::string name_;
  SessionFileDescriptor file_;
  std::uint64_t fileBytes_ = 0;
  SessionFileHeader header_;
  SessionProgress progress_;
  std::stop_token stop_;
  int passes_ = 1;
  std::uint64_t doneBytes_ = 0;
  std::vector<std::byte> block_;  // the one at hand, without its checksum
  std::size_t position_ = 0;      // in block_
  std::uint64_t nextBlock_ = 0;
};

}  // namespace longhand::engine
