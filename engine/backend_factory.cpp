#include "engine/backend_factory.h"

#include <array>
#include <utility>

#include "engine/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace longhand::engine {

std::unique_ptr<kernels::Backend> createBackend(const BackendOptions& options) {
  using kernels::CpuPath;
  constexpr std::array<std::pair<std::string_view, CpuPath>, 6> kPaths = {{
      {"auto", CpuPath::kAuto},
      {"portable", CpuPath::kPortable},
      {"avx2", CpuPath::kAvx2},
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
    return kernels::createCpuBackend({options.threads, path});
  }
  throw Error(ErrorCode::kInvalidArgument, "There is no CPU path '" + options.cpuPath + "'.",
              "Choose auto, portable, avx2, avx512, avx512-vnni or avx512-bf16.");
}

}  // namespace longhand::engine
