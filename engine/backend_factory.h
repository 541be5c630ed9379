#pragma once
// Chooses the processor: an NVIDIA device through the plug-in liblonghand_cuda.so, or the CPU.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "kernels/backend.h"

namespace longhand::engine {

struct BackendOptions {
  int threads = 0;               // CPU: 0 for the cores this process may use
  std::string cpuPath = "auto";  // auto, portable, avx2, avx-vnni, avx512, avx512-vnni,
                                 // avx512-bf16; reference: the slow twin, for tests
  /// cpu; cuda: an NVIDIA device or an Error; auto: a device where there is one that works.
  std::string backend = "cpu";
  /// The plug-in; empty: looked for beside the program, then in ../lib*/longhand.
  std::filesystem::path cudaPlugin;
  /// CPU: as CpuOptions::longestFloatRow; none: its default.
  std::optional<std::int64_t> longestFloatRow = {};
};

struct ChosenBackend {
  std::unique_ptr<kernels::Backend> backend;
  /// One sentence why it is the CPU although a device was asked for; empty otherwise.
  std::string whyNotDevice;
};

/// Throws Error kInvalidArgument for an unknown path or backend, naming those there are, and
/// kDevice with the reason when `cuda` cannot be had.
ChosenBackend createBackend(const BackendOptions& options);

}  // namespace longhand::engine
