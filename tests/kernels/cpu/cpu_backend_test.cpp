#include "kernels/cpu/cpu_backend.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <QtTest>

#include "kernels/checks/test_matrix.h"
#include "kernels/cpu/base/core_count.h"
#include "kernels/half.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/test_backends.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;
using namespace longhand::tests;

class CpuBackendTest : public QObject {
  Q_OBJECT

 private slots:
  void embedGivesTheRowsOfTheTableExactly_data() { addBackends(); }
  void embedGivesTheRowsOfTheTableExactly();
  void everyHalfAndBfloatIsReadExactly_data() { addBackends(); }
  void everyHalfAndBfloatIsReadExactly();
  void argmaxFindsTheFirstLargest_data() { addBackends(); }
  void argmaxFindsTheFirstLargest();
  void argmaxRefusesNan_data() { addBackends(); }
  void argmaxRefusesNan();
  void memoryIsAlignedAndHoldsWhatIsStored_data() { addBackends(); }
  void memoryIsAlignedAndHoldsWhatIsStored();
  void moreMemoryThanThereIsGivesNull_data() { addBackends(); }
  void moreMemoryThanThereIsGivesNull();
  void untouchedMemoryIsNotResident();
  void memoryInfoIsPlausible();
  void anUnknownPathFallsBack();
  void allCoresAreUsedByDefault();
  void threadsCanBeChanged();
  void referenceMemoryIsPoisoned();
};

void CpuBackendTest::embedGivesTheRowsOfTheTableExactly() {
  LONGHAND_FETCH_BACKEND();
  const auto reference = createReferenceBackend();
  Random random(6);
  const std::vector<std::int32_t> ids = {4, 0, 4, 2, 3};
  for (const WeightForm form : {WeightForm::kF32, WeightForm::kF16, WeightForm::kBF16}) {
    for (std::int64_t cols = 1; cols <= 67; ++cols) {
      const TestWeight table(form, 5, cols, random);
      TestMatrix actual(5, cols, 2, 1);
      TestMatrix expected(5, cols);
      backend.embed(table.view(), ids, actual.view());
      reference->embed(table.view(), ids, expected.view());
      const std::string problem = firstMismatch(actual, expected, [](auto, auto) { return 0.0; });
      QVERIFY2(problem.empty(), problem.c_str());
      QVERIFY(actual.isPaddingUntouched());
    }
  }
}

void CpuBackendTest::everyHalfAndBfloatIsReadExactly() {
  LONGHAND_FETCH_BACKEND();
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const std::vector<std::int32_t> ids = {0};
  std::vector<float> output(all.size());
  for (const DataType type : {DataType::kF16, DataType::kBF16}) {
    const WeightView table{
        .type = type, .rows = 1, .cols = 65536, .data = std::as_bytes(std::span(all)).data()};
    backend.embed(table, ids, {output.data(), 1, 65536, 65536});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float expected = type == DataType::kF16 ? halfToFloat(all[i]) : bfloatToFloat(all[i]);
      const bool isEqual = std::isnan(expected)
                               ? std::isnan(output[i])
                               : std::memcmp(&expected, &output[i], sizeof(float)) == 0;
      QVERIFY2(isEqual, qPrintable(QStringLiteral("0x%1: expected %2, got %3")
                                       .arg(i, 4, 16)
                                       .arg(static_cast<double>(expected))
                                       .arg(static_cast<double>(output[i]))));
    }
  }
}

void CpuBackendTest::argmaxFindsTheFirstLargest() {
  LONGHAND_FETCH_BACKEND();
  for (std::int64_t count = 1; count <= 70; ++count) {
    for (std::int64_t position = 0; position < count; ++position) {
      std::vector<float> logits(static_cast<std::size_t>(count), -5.0F);
      logits[static_cast<std::size_t>(position)] = -1.0F;
      logits.back() = -1.0F;
      QCOMPARE(backend.argmax(logits.data(), count), static_cast<std::int32_t>(position));
    }
  }
  const float infinite[3] = {-std::numeric_limits<float>::infinity(), 0.0F,
                             std::numeric_limits<float>::infinity()};
  QCOMPARE(backend.argmax(infinite, 3), 2);
  QCOMPARE(backend.argmax(infinite, 1), 0);
}

void CpuBackendTest::argmaxRefusesNan() {
  LONGHAND_FETCH_BACKEND();
  for (std::size_t position = 0; position < 40; ++position) {
    std::vector<float> logits(40, 1.0F);
    logits[position] = std::numeric_limits<float>::quiet_NaN();
    QCOMPARE(backend.argmax(logits.data(), 40), -1);
  }
}

void CpuBackendTest::memoryIsAlignedAndHoldsWhatIsStored() {
  LONGHAND_FETCH_BACKEND();
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{100}, std::size_t{4096}, (std::size_t{2} << 20U) - 1,
        std::size_t{2} << 20U, (std::size_t{5} << 20U) + 13}) {
    std::byte* const memory = backend.allocate(bytes);
    QVERIFY(memory != nullptr);
    QCOMPARE(reinterpret_cast<std::uintptr_t>(memory) % 64, std::uintptr_t{0});
    std::vector<std::byte> pattern(bytes);
    for (std::size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>(i * 7 + i / 251);
    backend.upload(memory, pattern.data(), bytes);
    std::vector<std::byte> back(bytes);
    backend.download(back.data(), memory, bytes);
    QVERIFY(backend.synchronize().empty());
    QVERIFY(back == pattern);
    backend.release(memory, bytes);
  }
  backend.release(nullptr, 64);
}

void CpuBackendTest::moreMemoryThanThereIsGivesNull() {
  LONGHAND_FETCH_BACKEND();
  const std::uint64_t total = backend.memoryInfo().totalBytes;
  QVERIFY(backend.allocate(static_cast<std::size_t>(total) * 2) == nullptr);
}

void CpuBackendTest::untouchedMemoryIsNotResident() {
  const auto backend = createCpuBackend({});
  constexpr std::size_t kBytes = std::size_t{64} << 20U;
  const std::uint64_t before = backend->memoryInfo().processBytes;
  std::byte* const memory = backend->allocate(kBytes);
  QVERIFY(memory != nullptr);
  QVERIFY(backend->memoryInfo().processBytes < before + kBytes / 2);
  std::memset(memory, 1, kBytes);
  QVERIFY(backend->memoryInfo().processBytes >= before + kBytes * 3 / 4);
  backend->release(memory, kBytes);
  QVERIFY(backend->memoryInfo().processBytes < before + kBytes / 2);
}

void CpuBackendTest::memoryInfoIsPlausible() {
  const DeviceMemoryInfo info = createCpuBackend({})->memoryInfo();
  QVERIFY(info.totalBytes > std::uint64_t{64} << 20U);
  QVERIFY(info.freeBytes > 0 && info.freeBytes <= info.totalBytes);
  QVERIFY(info.processBytes > std::uint64_t{1} << 20U && info.processBytes < info.totalBytes);
}

void CpuBackendTest::anUnknownPathFallsBack() {
  QVERIFY(isSupported(CpuPath::kPortable));
  const std::string description = createCpuBackend({1, CpuPath::kAvx512})->description();
  const char* const expected = isSupported(CpuPath::kAvx512)    ? "CPU, AVX-512, 1 thread"
                               : isSupported(CpuPath::kAvxVnni) ? "CPU, AVX-VNNI, 1 thread"
                               : isSupported(CpuPath::kAvx2)    ? "CPU, AVX2, 1 thread"
                                                                : "CPU, portable, 1 thread";
  QCOMPARE(description, std::string(expected));
  QCOMPARE(createCpuBackend({2, CpuPath::kPortable})->description(),
           std::string("CPU, portable, 2 threads"));
}

void CpuBackendTest::allCoresAreUsedByDefault() {
  const int cores = usableCoreCount();
  QVERIFY(cores >= 1 && cores <= QThread::idealThreadCount());
  const std::string description = createCpuBackend({})->description();
  QVERIFY(description.find(", " + std::to_string(cores) + " thread") != std::string::npos);
}

void CpuBackendTest::threadsCanBeChanged() {
  const auto backend = createCpuBackend({1, CpuPath::kPortable});
  Random random(7);
  const TestWeight weight(WeightForm::kNf4, 900, 128, random);
  TestMatrix input(1, 128);
  input.fill(random);
  TestMatrix expected(1, 900);
  backend->matmul(input.view(), weight.view(), expected.view(), false);
  const double operationsPerSecond = backend->operationsPerSecond();
  for (const int threads : {3, 2}) {
    backend->setThreads(threads);
    QCOMPARE(backend->description(), "CPU, portable, " + std::to_string(threads) + " threads");
    QCOMPARE(backend->operationsPerSecond(), operationsPerSecond * threads);
    TestMatrix actual(1, 900);
    backend->matmul(input.view(), weight.view(), actual.view(), false);
    // The order of sums within a row does not depend on the threads.
    const std::string problem = firstMismatch(actual, expected, [](auto, auto) { return 0.0; });
    QVERIFY2(problem.empty(), problem.c_str());
  }
}

void CpuBackendTest::referenceMemoryIsPoisoned() {
  const auto backend = createReferenceBackend();
  std::byte* const memory = backend->allocate(400);
  for (std::size_t i = 0; i < 400; i += sizeof(float)) {
    float number = 0;
    std::memcpy(&number, memory + i, sizeof(number));
    QVERIFY(std::isnan(number));
  }
  backend->release(memory, 400);
}

QTEST_APPLESS_MAIN(CpuBackendTest)
#include "cpu_backend_test.moc"
