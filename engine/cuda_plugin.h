#pragma once
// Loads the CUDA plug-in at run time, so that one build runs with and without a GPU.

#include <filesystem>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace longhand::engine {

/// A backend on device 0, or nullptr with one sentence in `reason`. `plugin` empty: looked for
/// beside the program, then in ../lib*/longhand. The plug-in stays loaded until the process ends: a
/// CUDA driver does not survive being unloaded.
std::unique_ptr<kernels::Backend> loadCudaBackend(const std::filesystem::path& plugin,
                                                  std::string& reason);

}  // namespace longhand::engine
