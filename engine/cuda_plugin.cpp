#include "engine/cuda_plugin.h"

#include <dlfcn.h>
#include <elf.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
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

/// Whether a library's segments all lie within the file. dlopen() maps them without looking: what
/// is missing of a file that was cut short ends the process with SIGBUS at its first use. True for
/// what is no 64-bit ELF file: dlopen() has a sentence for that.
bool isWhole(const std::filesystem::path& file) {
  std::error_code error;
  const std::uintmax_t fileBytes = std::filesystem::file_size(file, error);
  std::ifstream stream(file, std::ios::binary);
  Elf64_Ehdr header{};
  if (error || !stream.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return true;
  }
  stream.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!stream.read(reinterpret_cast<char*>(&segment), sizeof segment)) return false;
    const bool isInside =
        segment.p_filesz <= fileBytes && segment.p_offset <= fileBytes - segment.p_filesz;
    if (segment.p_type == PT_LOAD && !isInside) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<kernels::Backend> loadCudaBackend(const std::filesystem::path& plugin,
                                                  std::string& reason) {
  std::error_code error;
  // Absolute: dlopen() looks for a bare name in the system's folders.
  const std::filesystem::path file =
      plugin.empty() ? findPlugin() : std::filesystem::absolute(plugin, error);
  if (file.empty()) {
    reason = std::string("This installation has no CUDA plug-in (") + kernels::kCudaPluginFile +
             "). The installer builds it where an NVIDIA card and a CUDA toolkit are.";
    return nullptr;
  }
  if (!std::filesystem::exists(file, error)) {
    reason = "There is no CUDA plug-in " + file.string() + ".";
    return nullptr;
  }
  if (!isWhole(file)) {
    reason = "The CUDA plug-in " + file.string() + " is damaged: its end is missing.";
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
