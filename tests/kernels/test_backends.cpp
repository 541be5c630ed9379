#include "tests/kernels/test_backends.h"

#include "kernels/cpu/cpu_backend.h"

namespace longhand::tests {
namespace {

using kernels::CpuPath;

struct NamedPath {
  const char* name;
  CpuPath path;
};
constexpr NamedPath kPaths[] = {{"portable", CpuPath::kPortable},
                                {"avx2", CpuPath::kAvx2},
                                {"avx512", CpuPath::kAvx512},
                                {"avx512-vnni", CpuPath::kAvx512Vnni},
                                {"avx512-bf16", CpuPath::kAvx512Bf16}};

}  // namespace

void addBackends() {
  QTest::addColumn<QString>("backendName");
  for (const NamedPath& entry : kPaths) {
    QTest::newRow(entry.name) << QString::fromLatin1(entry.name);
  }
}

std::unique_ptr<kernels::Backend> createBackend(const QString& name) {
  for (const NamedPath& entry : kPaths) {
    if (name == QLatin1String(entry.name) && isSupported(entry.path)) {
      return kernels::createCpuBackend({.threads = 3, .path = entry.path});
    }
  }
  return nullptr;
}

}  // namespace longhand::tests
