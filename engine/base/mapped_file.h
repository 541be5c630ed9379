#pragma once
// A file's bytes as read-only memory. Pages come from disk when they are first touched.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace longhand::engine {

/// Owns the mapping; movable, not copyable; spans stay valid when it is moved. Any thread may read.
/// The file must not be shortened while it is mapped: the kernel answers reads behind the new end
/// with SIGBUS. (Programs that download models write beside and rename, which is safe.)
class MappedFile {
 public:
  /// Throws Error kFileNotFound, or kFileUnreadable with the system's reason.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void unmap() noexcept;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;  // page-aligned; nullptr for an empty file
  std::size_t size_ = 0;
};

/// Asks the system to read these bytes of a mapping soon, in the background.
void prefetchMapped(std::span<const std::byte> bytes) noexcept;
/// Says that these bytes of a mapping will not be read again soon: they leave the process's share
/// of memory (the whole pages of them), and would come from the file again.
void forgetMapped(std::span<const std::byte> bytes) noexcept;

/// Reads a small text file whole. Throws Error kFileNotFound, kFileUnreadable, or kFileDamaged when
/// it is larger than `limitBytes`.
std::string readTextFile(const std::filesystem::path& path, std::size_t limitBytes);

}  // namespace longhand::engine
