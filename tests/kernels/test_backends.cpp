#include "tests/kernels/test_backends.h"

#include "kernels/cpu/cpu_backend.h"

#ifdef LONGHAND_EMULATES_CUDA
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_on_cpu/options.h"
#endif

namespace longhand::tests {
namespace {

using kernels::CpuPath;

struct NamedPath {
  const char* name;
  CpuPath path;
};
constexpr NamedPath kPaths[] = {
    {"portable", CpuPath::kPortable},      {"avx2", CpuPath::kAvx2},
    {"avx-vnni", CpuPath::kAvxVnni},       {"avx512", CpuPath::kAvx512},
    {"avx512-vnni", CpuPath::kAvx512Vnni}, {"avx512-bf16", CpuPath::kAvx512Bf16}};

#ifdef LONGHAND_EMULATES_CUDA
struct NamedSchedule {
  const char* name;
  cuda_on_cpu::Schedule schedule;
};
constexpr NamedSchedule kSchedules[] = {{"cuda forward", cuda_on_cpu::Schedule::kForward},
                                        {"cuda reverse", cuda_on_cpu::Schedule::kReverse},
                                        {"cuda random", cuda_on_cpu::Schedule::kRandom}};

// So little that the shapes of the tests need several tiles.
constexpr std::size_t kTileScratchBytes = std::size_t{96} << 10U;

void addScheduleRows() {
  for (const NamedSchedule& entry : kSchedules) {
    QTest::newRow(entry.name) << QString::fromLatin1(entry.name);
  }
}
#else
void addScheduleRows() {}
#endif

}  // namespace

void addBackends() {
  QTest::addColumn<QString>("backendName");
  for (const NamedPath& entry : kPaths) {
    QTest::newRow(entry.name) << QString::fromLatin1(entry.name);
  }
  addScheduleRows();
}

void addEmulatedBackends() {
  QTest::addColumn<QString>("backendName");
  addScheduleRows();
}

std::unique_ptr<kernels::Backend> createBackend(const QString& name) {
  for (const NamedPath& entry : kPaths) {
    if (name == QLatin1String(entry.name) && isSupported(entry.path)) {
      return kernels::createCpuBackend({.threads = 3, .path = entry.path, .longestFloatRow = 0});
    }
  }
#ifdef LONGHAND_EMULATES_CUDA
  for (const NamedSchedule& entry : kSchedules) {
    if (name != QLatin1String(entry.name)) continue;
    cuda_on_cpu::options.schedule = entry.schedule;
    std::string reason;
    kernels::CudaOptions options;
    options.matmul = {.scratchBytes = kTileScratchBytes, .usesCublas = false};
    auto backend = kernels::createCudaBackend(options, reason);
    if (backend == nullptr) qWarning("%s", reason.c_str());
    return backend;
  }
#endif
  return nullptr;
}

}  // namespace longhand::tests
