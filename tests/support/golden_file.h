#pragma once
// Reads the reference values of tests: a safetensors reader of the tests' own, so that a fault in
// the engine's loader cannot hide itself. For trusted files only.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace longhand::tests {

struct GoldenTensor {
  std::string type;  // "F64", "F32", "F16", "BF16", "U8", "I32", ...
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;

  std::int64_t count() const;
  /// Any numeric type, converted. Row-major.
  std::vector<double> doubles() const;
  std::vector<float> floats() const;
  std::vector<std::int32_t> ints() const;
};

class GoldenFile {
 public:
  /// Throws std::runtime_error.
  explicit GoldenFile(const std::filesystem::path& path);

  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }
  /// Throws std::out_of_range with the name.
  const GoldenTensor& at(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::string, GoldenTensor> tensors_;
};

}  // namespace longhand::tests
