#include "tests/support/paths.h"

namespace longhand::tests {

std::filesystem::path dataPath(const std::string& name) {
  return std::filesystem::path(LONGHAND_SOURCE_DIR) / "tests" / "data" / name;
}

std::filesystem::path resourcePath(const std::string& name) {
  return std::filesystem::path(LONGHAND_SOURCE_DIR) / "resources" / name;
}

std::filesystem::path referencePath(const std::string& name) {
  return std::filesystem::path(LONGHAND_SHARED_DIR) / "reference" / name;
}

std::filesystem::path modelPath(const std::string& name) {
  return std::filesystem::path(LONGHAND_SHARED_DIR) / "models" / name;
}

}  // namespace longhand::tests
