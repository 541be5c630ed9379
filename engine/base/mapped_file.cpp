#include "engine/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/error_words.h"

namespace longhand::engine {
namespace {

/// Closes a file descriptor at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int value() const { return value_; }

 private:
  int value_;
};

[[noreturn]] void throwSystemError(const std::filesystem::path& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    throw Error(ErrorCode::kFileNotFound, path.string() + " does not exist.",
                "Check the path of the model.");
  }
  throw Error(ErrorCode::kFileUnreadable,
              path.string() + " cannot be read: " + std::generic_category().message(error) + ".",
              error == EACCES ? "Check the file's permissions." : "");
}

void advise(std::span<const std::byte> bytes, int advice, bool wholePagesOnly) noexcept {
  if (bytes.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t last = first + bytes.size();
  const std::uintptr_t begin =
      wholePagesOnly ? (first + page - 1) / page * page : first / page * page;
  const std::uintptr_t end = wholePagesOnly ? last / page * page : last;
  // Advice only: whatever goes wrong, reading stays correct.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.value() < 0) throwSystemError(path, errno);
  struct stat status {};
  if (::fstat(file.value(), &status) != 0) throwSystemError(path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kFileUnreadable, path.string() + " is not a file.");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.value(), 0);
  if (memory == MAP_FAILED) throwSystemError(path, errno);
  data_ = static_cast<const std::byte*>(memory);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
}

void prefetchMapped(std::span<const std::byte> bytes) noexcept {
  advise(bytes, MADV_WILLNEED, /*wholePagesOnly=*/false);
}

void forgetMapped(std::span<const std::byte> bytes) noexcept {
  advise(bytes, MADV_DONTNEED, /*wholePagesOnly=*/true);
}

std::string readTextFile(const std::filesystem::path& path, std::size_t limitBytes) {
  const MappedFile file(path);
  if (file.bytes().size() > limitBytes) {
    throw Error(ErrorCode::kFileDamaged, path.string() + " has " + bytesText(file.bytes().size()) +
                                             ", more than the " + bytesText(limitBytes) +
                                             " such a file may have.");
  }
  std::string text(file.bytes().size(), '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(file.bytes()[i]);
  return text;
}

}  // namespace longhand::engine
