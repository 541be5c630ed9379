// Products by cuBLAS, for which a stub stands in: what the backend asks of it, and when it goes
// without. And what two backends of one process must leave each other.

#include <memory>
#include <string>

#include <QtTest>

#include "kernels/checks/matmul_check.h"
#include "kernels/checks/test_matrix.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_on_cpu/cublas_stub.h"
#include "tests/cuda_on_cpu/device_memory.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;
using longhand::cuda_on_cpu::CublasStub;
using longhand::cuda_on_cpu::emulatedDevice;

namespace {

std::unique_ptr<Backend> createBackend() {
  std::string reason;
  CudaOptions options;
  options.matmul.scratchBytes = std::size_t{96} << 10U;  // several tiles
  auto backend = createCudaBackend(options, reason);
  if (backend == nullptr) qWarning("%s", reason.c_str());
  return backend;
}

/// What went wrong, or nothing.
std::string multiplyAndCompare(Backend& backend, WeightForm form, std::int64_t nTokens,
                               bool accumulate = false) {
  return checkMatmul(backend, {form, 72, 320, nTokens, accumulate, true}).problem;
}

}  // namespace

class CublasTest : public QObject {
  Q_OBJECT

 private slots:
  void productsOfTilesEqualTheSlowTwin();
  void anOlderOneIsUsedWhereTheNewestDoesNotStart();
  void whatItRefusesIsMultipliedWithoutIt();
  void itHasTheBackendsStreamAndWorkspaceUntilItsEnd();
  void aSecondBackendLeavesTheFirstItsSharedMemory();
};

void CublasTest::productsOfTilesEqualTheSlowTwin() {
  const CublasStub cublas(LONGHAND_CUBLAS_STUB_13);
  const auto backend = createBackend();
  QVERIFY(backend != nullptr);
  for (const WeightForm form : kWeightForms) {
    for (const std::int64_t nTokens : {9, 40, 200}) {
      const int nBefore = cublas.state().nProducts;
      const std::string problem =
          multiplyAndCompare(*backend, form, nTokens, /*accumulate=*/nTokens == 40);
      QVERIFY2(problem.empty(), problem.c_str());
      QVERIFY(cublas.state().nProducts > nBefore);
    }
  }
}

void CublasTest::anOlderOneIsUsedWhereTheNewestDoesNotStart() {
  const CublasStub newest(LONGHAND_CUBLAS_STUB_13);
  const CublasStub older(LONGHAND_CUBLAS_STUB_12);
  newest.state().isInstalled = false;
  const auto backend = createBackend();
  QVERIFY(backend != nullptr);
  const std::string problem = multiplyAndCompare(*backend, WeightForm::kNf4, 40);
  QVERIFY2(problem.empty(), problem.c_str());
  QCOMPARE(newest.state().nProducts, 0);
  QVERIFY(older.state().nProducts > 0);
}

void CublasTest::whatItRefusesIsMultipliedWithoutIt() {
  const CublasStub cublas(LONGHAND_CUBLAS_STUB_13);
  const auto backend = createBackend();
  QVERIFY(backend != nullptr);
  cublas.state().refusesProducts = true;
  const std::string problem = multiplyAndCompare(*backend, WeightForm::kNf4, 40);
  QVERIFY2(problem.empty(), problem.c_str());
  QCOMPARE(cublas.state().nProducts, 0);
}

void CublasTest::itHasTheBackendsStreamAndWorkspaceUntilItsEnd() {
  const CublasStub cublas(LONGHAND_CUBLAS_STUB_13);
  auto backend = createBackend();
  QVERIFY(backend != nullptr);
  QVERIFY(cublas.state().stream != nullptr);
  QVERIFY(cublas.state().workspace != nullptr);
  QVERIFY(cublas.state().workspaceBytes >= std::size_t{4} << 20U);
  // cublasDestroy() waits for the device, and may touch both.
  int nStreams = 0;
  std::size_t nBytes = 0;
  cublas.state().onDestroy = [&] {
    nStreams = emulatedDevice().counters.nStreamsAndEvents;
    nBytes = emulatedDevice().counters.deviceBytes;
  };
  backend.reset();
  QVERIFY(nStreams > 0);
  QVERIFY(nBytes >= std::size_t{4} << 20U);
  QCOMPARE(cublas.state().nHandles, 0);
  QCOMPARE(emulatedDevice().counters.nStreamsAndEvents, 0);
  QCOMPARE(emulatedDevice().counters.deviceBytes, 0U);
}

/// The limit of a kernel's shared memory belongs to the context, which backends share.
void CublasTest::aSecondBackendLeavesTheFirstItsSharedMemory() {
  const auto first = createBackend();
  QVERIFY(first != nullptr);
  QCOMPARE(multiplyAndCompare(*first, WeightForm::kNf4, 4), std::string());
  const auto second = createBackend();
  QVERIFY(second != nullptr);
  QCOMPARE(multiplyAndCompare(*second, WeightForm::kNf4, 1), std::string());
  QCOMPARE(multiplyAndCompare(*first, WeightForm::kNf4, 4), std::string());
}

QTEST_APPLESS_MAIN(CublasTest)
#include "cublas_test.moc"
