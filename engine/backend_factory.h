#pragma once
// Chooses the processor. A device plug-in (liblonghand_cuda.so) will be asked here before the CPU.

#include <memory>
#include <string>

#include "kernels/backend.h"

namespace longhand::engine {

struct BackendOptions {
  int threads = 0;               // CPU: 0 for the cores this process may use
  std::string cpuPath = "auto";  // auto, portable, avx2, avx512, avx512-vnni, avx512-bf16;
                                 // reference: the slow twin, for tests
};

/// Throws Error kInvalidArgument for an unknown path, naming those there are.
std::unique_ptr<kernels::Backend> createBackend(const BackendOptions& options);

}  // namespace longhand::engine
