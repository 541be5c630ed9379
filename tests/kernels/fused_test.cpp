// The operations of a decode step that a device does in one launch each, against the slow twin; and
// that those which have no kernel for them do exactly the operations they are made of.

#include <cstdint>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/checks/elementwise_check.h"
#include "kernels/checks/kv_store_check.h"
#include "kernels/checks/matmul_check.h"
#include "tests/kernels/test_backends.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;
using namespace longhand::tests;

namespace {

bool isDevice(const Backend& backend) { return !backend.usesHostMemory(); }

/// Each thread of the emulation is a thread to ThreadSanitizer, so there are fewer shapes for it.
#ifdef __SANITIZE_THREAD__
constexpr bool kHasTsan = true;
#else
constexpr bool kHasTsan = false;
#endif

std::vector<std::int64_t> tokenCounts(const Backend& backend) {
  if (isDevice(backend) && kHasTsan) return {1, 5};
  return {1, 2, 3, 4, 5, 6, 7, 8, 9};
}

}  // namespace

class FusedTest : public QObject {
  Q_OBJECT

 private slots:
  void aNormAndItsProductsEqualTheSlowTwin_data() { addBackends(); }
  void aNormAndItsProductsEqualTheSlowTwin();
  void everyWidthAndHeightOfProductsEqualsTheSlowTwin_data() { addEmulatedBackends(); }
  void everyWidthAndHeightOfProductsEqualsTheSlowTwin();
  void gateAndUpEqualTheSlowTwin_data() { addBackends(); }
  void gateAndUpEqualTheSlowTwin();
  void weightsOfSeveralTypesEqualTheSlowTwin_data() { addBackends(); }
  void weightsOfSeveralTypesEqualTheSlowTwin();
  void ropeAndStoreEqualsTheSlowTwin_data() { addBackends(); }
  void ropeAndStoreEqualsTheSlowTwin();
  void theBestLogitsAreThoseOfASort_data() { addBackends(); }
  void theBestLogitsAreThoseOfASort();
  void hostsDoTheOperationsOneByOne_data() { addBackends(); }
  void hostsDoTheOperationsOneByOne();
};

#define LONGHAND_VERIFY_GOOD(check)                      \
  do {                                                   \
    const CheckResult checked = (check);                 \
    QVERIFY2(checked.isGood(), checked.problem.c_str()); \
  } while (false)

void FusedTest::aNormAndItsProductsEqualTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  for (const WeightForm form : kWeightForms) {
    for (const std::int64_t nTokens : tokenCounts(backend)) {
      for (const bool isAligned : {true, false}) {
        if (!isAligned && nTokens % 4 != 1) continue;
        const std::vector<std::int64_t> rows = {40, 24, 33};
        const std::span<const std::int64_t> some(rows.data(), nTokens % 3 + 1U);
        LONGHAND_VERIFY_GOOD(
            checkNormMatmulEach(backend, {form, 40, 1152, nTokens, false, isAligned}, some));
      }
    }
  }
}

void FusedTest::everyWidthAndHeightOfProductsEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  for (const WeightForm form : kWeightForms) {
    for (const std::int64_t cols : {16, 40, 64, 128, 1024, 1088, 2112}) {
      if (kHasTsan && cols != 64 && cols != 1088) continue;
      for (const std::int64_t rows : {1, 16, 17, 31, 33}) {
        if (kHasTsan && rows != 17) continue;
        const std::int64_t nTokens = 1 + (rows + cols / 16) % 2;
        const std::int64_t heights[] = {rows, 1, rows};
        const MatmulCase c{form, rows, cols, nTokens, false, true};
        LONGHAND_VERIFY_GOOD(checkNormMatmulEach(backend, c, heights));
        LONGHAND_VERIFY_GOOD(checkMatmulEach(backend, c, heights));
        LONGHAND_VERIFY_GOOD(checkNormGateUp(backend, c));
      }
    }
  }
}

void FusedTest::gateAndUpEqualTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  for (const WeightForm form : kWeightForms) {
    for (const std::int64_t nTokens : tokenCounts(backend)) {
      for (const bool isAligned : {true, false}) {
        if (!isAligned && nTokens % 4 != 1) continue;
        LONGHAND_VERIFY_GOOD(checkNormGateUp(backend, {form, 43, 1152, nTokens, false, isAligned}));
      }
    }
  }
}

void FusedTest::weightsOfSeveralTypesEqualTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  Random random(3);
  constexpr std::int64_t kCols = 128;
  const TestWeight half(WeightForm::kF16, 20, kCols, random, true);
  const TestWeight bytes(WeightForm::kInt8, 12, kCols, random, true);
  TestMatrix input(2, kCols);
  TestMatrix norm(1, kCols);
  input.fill(random);
  norm.fill(random);
  TestMatrix halfOutput(2, 20);
  TestMatrix bytesOutput(2, 12);
  TestMatrix halfAlone(2, 20);
  TestMatrix bytesAlone(2, 12);
  TestMatrix scratch(2, kCols);
  // Emulated memory is the host's: copies are not needed.
  const Projection both[] = {{half.view(), halfOutput.view()}, {bytes.view(), bytesOutput.view()}};
  backend.normMatmulEach(input.view(), norm.view().data, 1e-5F, scratch.view(), both);
  backend.rmsNorm(input.view(), norm.view().data, 1e-5F, scratch.view());
  backend.matmul(scratch.view(), half.view(), halfAlone.view(), false);
  backend.matmul(scratch.view(), bytes.view(), bytesAlone.view(), false);
  QVERIFY(backend.synchronize().empty());
  const auto isExact = [](std::int64_t, std::int64_t) { return 0.0; };
  LONGHAND_VERIFY_GOOD(compare(halfOutput, halfAlone, isExact));
  LONGHAND_VERIFY_GOOD(compare(bytesOutput, bytesAlone, isExact));
}

void FusedTest::ropeAndStoreEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  for (const DataType type : {DataType::kF16, DataType::kF32}) {
    for (const std::int64_t headDim : {8, 10, 64, 80, 96, 128, 256}) {
      for (const std::int64_t nTokens : {1, 2, 3, 34}) {
        if (isDevice(backend) && kHasTsan && nTokens > 2) continue;
        for (const std::int64_t nKvHeads : {1, 3}) {
          LONGHAND_VERIFY_GOOD(
              checkRopeAndStore(backend, {2 * nKvHeads, nKvHeads, headDim}, type, nTokens));
        }
      }
    }
  }
}

void FusedTest::theBestLogitsAreThoseOfASort() {
  LONGHAND_FETCH_BACKEND();
  for (const std::int64_t count : {1, 2, 31, 512, 1023, 1024, 1025, 2048, 5000, 32003, 66000}) {
    for (const std::int64_t nBest : {1, 2, 40, 63, 64, 65, 104, 320, 512, 600}) {
      // Large vocabularies take the emulation a while.
      const bool isUsual = nBest == 40 || nBest == 104;
      if (isDevice(backend) && (count > 10'000 || kHasTsan) && !isUsual) continue;
      if (isDevice(backend) && kHasTsan && count > 2048) continue;
      LONGHAND_VERIFY_GOOD(checkTopLogits(backend, count, nBest));
      LONGHAND_VERIFY_GOOD(checkTopLogits(backend, count, nBest));  // the counter is 0 again
    }
  }
}

void FusedTest::hostsDoTheOperationsOneByOne() {
  LONGHAND_FETCH_BACKEND();
  if (isDevice(backend)) QSKIP("a device has kernels of its own");
  Random random(9);
  constexpr std::int64_t kCols = 320;
  constexpr std::int64_t kRows = 70;
  const TestWeight gate(WeightForm::kNf4DoubleQuantized, kRows, kCols, random, true);
  const TestWeight up(WeightForm::kNf4DoubleQuantized, kRows, kCols, random, true);
  TestMatrix input(1, kCols);
  TestMatrix norm(1, kCols);
  input.fill(random);
  norm.fill(random);
  TestMatrix fused[] = {{1, kRows}, {1, kRows}};
  TestMatrix single[] = {{1, kRows}, {1, kRows}};
  TestMatrix scratch(1, kCols);
  backend.normGateUp(input.view(), norm.view().data, 1e-5F, scratch.view(),
                     {gate.view(), fused[0].view()}, {up.view(), fused[1].view()});
  backend.rmsNorm(input.view(), norm.view().data, 1e-5F, scratch.view());
  backend.matmul(scratch.view(), gate.view(), single[0].view(), false);
  backend.matmul(scratch.view(), up.view(), single[1].view(), false);
  backend.siluMultiply(single[0].view(), single[1].view());
  LONGHAND_VERIFY_GOOD(
      compare(fused[0], single[0], [](std::int64_t, std::int64_t) { return 0.0; }));
}

QTEST_APPLESS_MAIN(FusedTest)
#include "fused_test.moc"
