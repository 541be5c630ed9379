#include "engine/cuda_plugin.h"

#include <dlfcn.h>

#include <array>
#include <system_error>

#include "kernels/cuda/plugin.h"

namespace longhand::engine {
namespace {

/// The first place that has the plug-in; empty when none has.
std::filesystem::path findPlugin() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const std::filesystem::path folder = program.parent_path();
  for (const char* relative :
       {".", "../lib/longhand", "../lib64/longhand", "../lib/x86_64-linux-gnu/longhand",
        "../lib/aarch64-linux-gnu/longhand"}) {
    std::filesystem::path candidate = folder / relative / kernels::kCudaPluginFile;
    if (std::filesystem::exists(candidate, error)) return candidate;
  }
  return {};
}

}  // namespace

std::unique_ptr<kernels::Backend> loadCudaBackend(const std::filesystem::path& plugin,
                                                  std::string& reason) {
  std::error_code error;
  // Absolute: dlopen() looks for a bare name in the system's folders.
  const std::filesystem::path file =
      plugin.empty() ? findPlugin() : std::filesystem::absolute(plugin, error);
  if (file.empty()) {
    reason =
        std::string("This installation has no CUDA plug-in (") + kernels::kCudaPluginFile + ").";
    return nullptr;
  }
  if (!std::filesystem::exists(file, error)) {
    reason = "There is no CUDA plug-in " + file.string() + ".";
    return nullptr;
  }
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = dlerror();
    reason = "The CUDA plug-in cannot be loaded: " + std::string(why == nullptr ? "?" : why) + ".";
    return nullptr;
  }
  const auto create =
      reinterpret_cast<kernels::CreateCudaBackend>(dlsym(library, kernels::kCudaPluginEntry));
  if (create == nullptr) {
    reason = file.string() + " is no CUDA plug-in of Longhand.";
    return nullptr;
  }
  std::array<char, 512> text{};
  std::unique_ptr<kernels::Backend> backend(
      create(kernels::kCudaPluginStamp, 0, text.data(), text.size()));
  reason = text.data();
  return backend;
}

}  // namespace longhand::engine
