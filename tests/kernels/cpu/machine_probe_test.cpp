// The rates that floors are computed from. Their values are the machine's own; what must hold is
// what makes them rates of that machine and of that path.

#include "kernels/cpu/probe/machine_probe.h"

#include <vector>

#include <QTest>

#include "kernels/cpu/base/cpu_path.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/test_backends.h"

using namespace longhand::kernels;

class MachineProbeTest : public QObject {
  Q_OBJECT

 private slots:
  void everyPathMeasuresWhatItHas_data();
  void everyPathMeasuresWhatItHas();
  void everyByteIsRead_data() { everyPathMeasuresWhatItHas_data(); }
  void everyByteIsRead();
  void multiplyAddsAreCounted_data() { everyPathMeasuresWhatItHas_data(); }
  void multiplyAddsAreCounted();
  void aBackendWithoutAProbeSaysNothing();
};

void MachineProbeTest::everyPathMeasuresWhatItHas_data() {
  QTest::addColumn<int>("path");
  QTest::newRow("portable") << static_cast<int>(CpuPath::kPortable);
  QTest::newRow("AVX2") << static_cast<int>(CpuPath::kAvx2);
  QTest::newRow("AVX-VNNI") << static_cast<int>(CpuPath::kAvxVnni);
  QTest::newRow("AVX-512") << static_cast<int>(CpuPath::kAvx512);
  QTest::newRow("AVX-512 VNNI") << static_cast<int>(CpuPath::kAvx512Vnni);
  QTest::newRow("AVX-512 BF16") << static_cast<int>(CpuPath::kAvx512Bf16);
}

void MachineProbeTest::everyPathMeasuresWhatItHas() {
  QFETCH(int, path);
  if (!isSupported(static_cast<CpuPath>(path))) QSKIP("this machine lacks the path");
  const auto backend = createCpuBackend({2, static_cast<CpuPath>(path)});
  const MachineRates rates = backend->measureRates();
  // No machine is slower than this, not even under a sanitizer, or faster than that.
  QVERIFY(rates.readBytesPerSecond > 1e7 && rates.readBytesPerSecond < 1e12);
  QVERIFY(rates.floatMultiplyAddsPerSecond > 1e6 && rates.floatMultiplyAddsPerSecond < 1e14);
  const bool hasBytes = static_cast<CpuPath>(path) != CpuPath::kPortable;
  QCOMPARE(rates.int8MultiplyAddsPerSecond > 0.0, hasBytes);
  const bool hasBf16 = static_cast<CpuPath>(path) == CpuPath::kAvx512Bf16;
  QCOMPARE(rates.bf16MultiplyAddsPerSecond > 0.0, hasBf16);
}

/// A loop that skipped a part would measure too much.
void MachineProbeTest::everyByteIsRead() {
  QFETCH(int, path);
  if (!isSupported(static_cast<CpuPath>(path))) QSKIP("this machine lacks the path");
  const ProbeKernels& probe = probeKernelsFor(static_cast<CpuPath>(path));
  std::vector<std::byte> memory(3 * 4096);
  QCOMPARE(probe.readAll(memory.data(), memory.size()), std::uint64_t{0});
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = std::byte{1};
    QVERIFY(probe.readAll(memory.data(), memory.size()) != 0);
    memory[i] = std::byte{0};
  }
}

void MachineProbeTest::multiplyAddsAreCounted() {
  QFETCH(int, path);
  if (!isSupported(static_cast<CpuPath>(path))) QSKIP("this machine lacks the path");
  const ProbeKernels& probe = probeKernelsFor(static_cast<CpuPath>(path));
  for (const auto loop : {probe.multiplyAddFloats, probe.multiplyAddInt8}) {
    if (loop == nullptr) continue;
    const std::int64_t one = loop(1);
    QVERIFY(one > 0);
    QCOMPARE(loop(1000), 1000 * one);
  }
}

void MachineProbeTest::aBackendWithoutAProbeSaysNothing() {
  const MachineRates rates = createReferenceBackend()->measureRates();
  QCOMPARE(rates.readBytesPerSecond, 0.0);
  QCOMPARE(rates.int8MultiplyAddsPerSecond, 0.0);
}

QTEST_APPLESS_MAIN(MachineProbeTest)
#include "machine_probe_test.moc"
