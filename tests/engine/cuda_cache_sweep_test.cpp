// A spread of the cases of cache_full_sweep_test on the emulated CUDA backend.
#include <QTest>

#include "tests/engine/cache_sweep.h"
#include "tests/kernels/test_backends.h"

namespace longhand {

class CudaCacheSweepTest : public QObject {
  Q_OBJECT

 private slots:
  void everyStateEqualsTheSlowTwin_data() { tests::addEmulatedBackends(); }
  void everyStateEqualsTheSlowTwin();
};

void CudaCacheSweepTest::everyStateEqualsTheSlowTwin() {
  QFETCH(QString, backendName);
  // Primes that visit all values of all dimensions; another part of the cases in each schedule.
  const int every = 61;
  const int first = backendName == "cuda forward" ? 0 : backendName == "cuda reverse" ? 20 : 40;
  for (const tests::SweepCase& each : tests::sweepCases()) {
    if (each.index % every != first) continue;
    const std::string failure =
        tests::sweep(each, 20, [&] { return tests::createBackend(backendName); });
    QVERIFY2(failure.empty(), failure.c_str());
  }
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::CudaCacheSweepTest)
#include "cuda_cache_sweep_test.moc"
