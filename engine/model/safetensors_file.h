#pragma once
// Reads .safetensors files (https://github.com/huggingface/safetensors): an 8-byte length, a JSON
// header with type, shape and byte range of each tensor, then the data. Nothing in the file is
// trusted; a file that contradicts itself is refused before any tensor of it is used.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/base/mapped_file.h"

namespace longhand::engine {

enum class TensorType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
  kC64
};

/// The format's own spelling: "F32", "BF16", "F8_E4M3".
const char* tensorTypeName(TensorType type);
std::size_t tensorTypeBytes(TensorType type);

/// One tensor of a file. The data may be misaligned for its type.
struct FileTensor {
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;  // empty: a scalar; extents may be 0
  std::span<const std::byte> data;  // row-major, exactly as many bytes as the shape needs
};

using FileTensors = std::map<std::string, FileTensor, std::less<>>;

/// The largest header the format's reference implementation accepts.
inline constexpr std::uint64_t kSafetensorsHeaderLimitBytes = 100'000'000;

/// Checks a whole file in memory and lists its tensors; their data point into `file`. Throws Error
/// kFileDamaged that starts with `fileName` and names the tensor and the reason: a length or range
/// outside the file, a header that is not the expected JSON, a name twice, a type or field unknown,
/// a shape that does not fit the range, ranges that overlap or leave bytes unused.
FileTensors parseSafetensors(std::span<const std::byte> file, const std::string& fileName);

/// A mapped file and its tensors. Immutable; any thread may read.
class SafetensorsFile {
 public:
  /// Throws Error (kFileNotFound, kFileUnreadable, kFileDamaged).
  explicit SafetensorsFile(const std::filesystem::path& path);

  const FileTensors& tensors() const { return tensors_; }
  /// nullptr when there is none of that name.
  const FileTensor* find(std::string_view name) const;
  /// Without the folder, for messages.
  const std::string& fileName() const { return fileName_; }

 private:
  MappedFile file_;
  std::string fileName_;
  FileTensors tensors_;
};

}  // namespace longhand::engine
