#pragma once
// A copy of a model folder in a temporary place, to be damaged and changed by tests.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <QTemporaryDir>

#include <nlohmann/json.hpp>

namespace longhand::tests {

class ModelFolder {
 public:
  /// Copies the folder's files (no folders inside it).
  explicit ModelFolder(const std::filesystem::path& original);

  std::filesystem::path path() const;

  /// Changes config.json.
  void changeConfig(const std::function<void(nlohmann::json&)>& change) const;
  /// Changes the header of a .safetensors (the length in front of it is kept right).
  void changeHeader(const std::function<void(nlohmann::json&)>& change,
                    const std::string& file = "model.safetensors") const;
  /// Replaces one tensor, or adds it; the other tensors stay as they are.
  void setTensor(const std::string& name, const std::string& type,
                 const std::vector<std::int64_t>& shape, const std::vector<std::uint8_t>& bytes,
                 const std::string& file = "model.safetensors") const;
  void removeTensor(const std::string& name, const std::string& file = "model.safetensors") const;
  std::vector<std::uint8_t> tensorBytes(const std::string& name,
                                        const std::string& file = "model.safetensors") const;
  /// Puts a tensor of that many bytes in front of all others, so that their alignment changes.
  void shiftData(std::size_t bytes) const;
  /// Cuts the last bytes off a file.
  void truncate(std::size_t bytes, const std::string& file = "model.safetensors") const;

 private:
  QTemporaryDir folder_;
};

}  // namespace longhand::tests
