#include "engine/backend_factory.h"

#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/cuda_plugin.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace longhand::engine {
namespace {

std::unique_ptr<kernels::Backend> createCpu(const BackendOptions& options) {
  using kernels::CpuPath;
  constexpr std::array<std::pair<std::string_view, CpuPath>, 7> kPaths = {{
      {"auto", CpuPath::kAuto},
      {"portable", CpuPath::kPortable},
      {"avx2", CpuPath::kAvx2},
      {"avx-vnni", CpuPath::kAvxVnni},
      {"avx512", CpuPath::kAvx512},
      {"avx512-vnni", CpuPath::kAvx512Vnni},
      {"avx512-bf16", CpuPath::kAvx512Bf16},
  }};
  if (options.threads < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "The number of threads cannot be " + std::to_string(options.threads) + ".",
                "Use 0 for all cores.");
  }
  if (options.cpuPath == "reference") return kernels::createReferenceBackend();
  for (const auto& [name, path] : kPaths) {
    if (options.cpuPath != name) continue;
    return kernels::createCpuBackend(
        {options.threads, path, options.longestFloatRow.value_or(kernels::kLongestFloatRow)});
  }
  throw Error(ErrorCode::kInvalidArgument, "There is no CPU path '" + options.cpuPath + "'.",
              "Choose auto, portable, avx2, avx-vnni, avx512, avx512-vnni or avx512-bf16.");
}

}  // namespace

ChosenBackend createBackend(const BackendOptions& options) {
  ChosenBackend chosen;
  if (options.backend == "cuda" || options.backend == "auto") {
    chosen.backend = loadCudaBackend(options.cudaPlugin, chosen.whyNotDevice);
    if (chosen.backend != nullptr) return chosen;
    if (options.backend == "cuda") {
      throw Error(ErrorCode::kDevice, chosen.whyNotDevice, "Use the backend auto or cpu.");
    }
  } else if (options.backend != "cpu") {
    throw Error(ErrorCode::kInvalidArgument, "There is no backend '" + options.backend + "'.",
                "Choose auto, cpu or cuda.");
  }
  chosen.backend = createCpu(options);
  return chosen;
}

}  // namespace longhand::engine
