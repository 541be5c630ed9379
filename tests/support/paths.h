#pragma once
// Where tests find their data.

#include <filesystem>
#include <string>

namespace longhand::tests {

/// tests/data/`name` of the source tree.
std::filesystem::path dataPath(const std::string& name);
/// resources/`name` of the source tree.
std::filesystem::path resourcePath(const std::string& name);
/// reference/`name` of the shared folder: may be missing.
std::filesystem::path referencePath(const std::string& name);
/// models/`name` of the shared folder: may be missing.
std::filesystem::path modelPath(const std::string& name);

}  // namespace longhand::tests

/// Skips the running test function with a reason when a file or folder is missing.
#define LONGHAND_SKIP_WITHOUT(wanted)                                                   \
  do {                                                                                  \
    if (!std::filesystem::exists(wanted))                                               \
      QSKIP(("missing: " + std::filesystem::path(wanted).filename().string()).c_str()); \
  } while (false)
