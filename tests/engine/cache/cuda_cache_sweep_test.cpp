// A spread of the cases of cache_full_sweep_test on the emulated CUDA backend.
#include <QTest>

#include "tests/engine/cache/cache_sweep.h"
#include "tests/kernels/test_backends.h"

namespace longhand {
namespace {

// Primes that visit all values of all dimensions; another part of the cases in each schedule. Each
// thread of the emulation is a thread to ThreadSanitizer, so that gets fewer.
#ifdef __SANITIZE_THREAD__
constexpr int kEvery = 367;
#else
constexpr int kEvery = 61;
#endif

}  // namespace

class CudaCacheSweepTest : public QObject {
  Q_OBJECT

 private slots:
  void everyStateEqualsTheSlowTwin_data() { tests::addEmulatedBackends(); }
  void everyStateEqualsTheSlowTwin();
};

void CudaCacheSweepTest::everyStateEqualsTheSlowTwin() {
  QFETCH(QString, backendName);
  const int part = backendName == "cuda forward" ? 0 : backendName == "cuda reverse" ? 1 : 2;
  for (const tests::SweepCase& each : tests::sweepCases()) {
    if (each.index % kEvery != kEvery / 3 * part) continue;
    const std::string failure =
        tests::sweep(each, 20, [&] { return tests::createBackend(backendName); });
    QVERIFY2(failure.empty(), failure.c_str());
  }
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::CudaCacheSweepTest)
#include "cuda_cache_sweep_test.moc"
