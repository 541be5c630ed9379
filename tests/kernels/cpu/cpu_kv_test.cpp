#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/checks/attention_check.h"
#include "kernels/checks/attention_scenes.h"
#include "kernels/checks/kv_scene.h"
#include "kernels/cpu/kv/kv_store.h"
#include "kernels/page_layout.h"
#include "kernels/reference/reference_kv.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;

namespace {

struct Path {
  const char* name;
  CpuPath path;
};
constexpr Path kPaths[] = {{"portable", CpuPath::kPortable},
                           {"AVX2", CpuPath::kAvx2},
                           {"AVX-512", CpuPath::kAvx512},
                           {"AVX-512 VNNI", CpuPath::kAvx512Vnni},
                           {"AVX-512 BF16", CpuPath::kAvx512Bf16}};

CheckResult checked(KvScene& scene, CpuKv& kv, std::int64_t nRows, std::int64_t chunkOffset) {
  const std::int64_t nQueries = nRows * scene.shape().nHeads / scene.shape().nKvHeads;
  AttentionRounding rounding;
  rounding.hasIntegers = kv.attendsByIntegers(nQueries);
  rounding.hasBf16Products = kv.kernels().floatKernels != nullptr &&
                             scene.chunk().type == DataType::kF16 && nQueries > kMaxDirectQueries;
  const auto attend = [&](const auto&... arguments) { kv.attend(scene.shape(), arguments...); };
  return checkAttention(scene, rounding, nRows, chunkOffset, attend);
}

/// Largest difference to the slow twin over what rounding explains; at most 1 when all is well.
double errorRatio(KvScene& scene, CpuKv& kv, std::int64_t nRows, std::int64_t chunkOffset) {
  return checked(scene, kv, nRows, chunkOffset).worst;
}

SceneCheck sceneCheck(CpuKv& kv) {
  return [&kv](KvScene& scene, std::int64_t nRows, std::int64_t chunkOffset) {
    return checked(scene, kv, nRows, chunkOffset);
  };
}

}  // namespace

class CpuKvTest : public QObject {
  Q_OBJECT

 private slots:
  void storedTokensEqualTheSlowTwin_data() { addPaths(); }
  void storedTokensEqualTheSlowTwin();
  void packedPagesEqualTheSlowTwinByteForByte_data() { addPaths(); }
  void packedPagesEqualTheSlowTwinByteForByte();
  void unpackedPagesEqualTheSlowTwinByteForByte_data() { addPaths(); }
  void unpackedPagesEqualTheSlowTwinByteForByte();
  void powersOfTwoAreWithinTheStatedError_data() { addPaths(); }
  void powersOfTwoAreWithinTheStatedError();
  void everyFormatIsAttendedAsByTheSlowTwin_data() { addPaths(); }
  void everyFormatIsAttendedAsByTheSlowTwin();
  void everyHeadDimIsAttendedAsByTheSlowTwin_data() { addPaths(); }
  void everyHeadDimIsAttendedAsByTheSlowTwin();
  void everyNumberOfQueriesIsAttendedAsByTheSlowTwin_data() { addPaths(); }
  void everyNumberOfQueriesIsAttendedAsByTheSlowTwin();
  void everyShapeIsDecodedAsByTheSlowTwin_data() { addPaths(); }
  void everyShapeIsDecodedAsByTheSlowTwin();
  void integersAddLessThanAFifthOfTheCachesOwnError_data();
  void integersAddLessThanAFifthOfTheCachesOwnError();
  void everyNumberOfValidTokensIsAttendedAsByTheSlowTwin_data() { addPaths(); }
  void everyNumberOfValidTokensIsAttendedAsByTheSlowTwin();
  void longMixedHistoriesAreAttendedAsByTheSlowTwin_data() { addPaths(); }
  void longMixedHistoriesAreAttendedAsByTheSlowTwin();
  void theNumberOfThreadsDoesNotChangeABit_data() { addPaths(); }
  void theNumberOfThreadsDoesNotChangeABit();
  void largeScoresDoNotOverflow_data() { addPaths(); }
  void largeScoresDoNotOverflow();

 private:
  static void addPaths() {
    QTest::addColumn<int>("path");
    for (const Path& path : kPaths) QTest::newRow(path.name) << static_cast<int>(path.path);
  }
};

#define FETCH_PATH(kv)                                                                \
  QFETCH(int, path);                                                                  \
  if (!isSupported(static_cast<CpuPath>(path))) QSKIP("this machine lacks the path"); \
  ThreadPool pool(2);                                                                 \
  CpuKv kv(kvKernelsFor(static_cast<CpuPath>(path)), pool)

void CpuKvTest::storedTokensEqualTheSlowTwin() {
  FETCH_PATH(kv);
  for (const std::int64_t headDim : {8, 10, 30, 64, 80, 100, 128, 256}) {
    for (const DataType type : {DataType::kF16, DataType::kF32}) {
      for (const std::int64_t n : {1, 3, 40}) {
        KvScene scene({4, 2, headDim}, 5);
        const std::int64_t cols = 2 * headDim;
        std::vector<float> keys = scene.randomRows(n, cols, cols + 5, 3.0F);
        std::vector<float> values = scene.randomRows(n, cols, cols + 5, 1.0e-6F);  // subnormal
        keys[0] = 65519.0F;
        keys[1] = 1.0e6F;  // infinity in F16
        const ExactSpan expected = scene.poisonedSpan(type, n + 4);
        const ExactSpan stored = scene.poisonedSpan(type, n + 4);
        const MatrixView keyView{keys.data(), n, cols, cols + 5};
        const MatrixView valueView{values.data(), n, cols, cols + 5};
        storeExactReference(scene.shape(), keyView, valueView, expected, 2);
        kv.storeExact(scene.shape(), keyView, valueView, stored, 2);
        const std::size_t bytes = bytesOf(type, 2 * (n + 4) * headDim);
        QVERIFY(sameBytes(stored.keys, expected.keys, bytes));
        QVERIFY(sameBytes(stored.values, expected.values, bytes));
      }
    }
  }
}

void CpuKvTest::packedPagesEqualTheSlowTwinByteForByte() {
  FETCH_PATH(kv);
  for (const std::int64_t headDim : {8, 10, 30, 64, 80, 100, 128, 256}) {
    for (const int keyNbits : {16, 8, 4, 2}) {
      for (const int valueNbits : {16, 8, 4, 2}) {
        for (const QuantScheme scheme : {QuantScheme::kAsymmetric, QuantScheme::kSymmetric}) {
          const int group = 32 << ((keyNbits + valueNbits / 2) % 3);
          const DataType exactType = valueNbits == 2 ? DataType::kF32 : DataType::kF16;
          const PageFormat format = pageFormat(keyNbits, valueNbits, group, scheme, exactType);
          KvScene scene({2, 2, headDim}, 9);
          // A ring: the page's tokens lie in three spans of different types.
          const ExactSpan source[] = {scene.randomSpan(DataType::kF16, 7, 20),
                                      scene.randomSpan(DataType::kF32, group - 12, group),
                                      scene.randomSpan(DataType::kF16, 5, 5)};
          const QuantSolver solver = group == 32 ? QuantSolver::kHqq : QuantSolver::kMinMax;
          const PageRef expected = scene.poisonedPage(format);
          const PageRef packed = scene.poisonedPage(format);
          packPageReference(scene.shape(), source, format, solver, expected.data);
          kv.packPage(scene.shape(), source, format, solver, packed.data);
          QVERIFY2(sameBytes(packed.data, expected.data, pageLayout(format, 2, headDim).totalBytes),
                   (std::to_string(headDim) + " k" + std::to_string(keyNbits) + "v" +
                    std::to_string(valueNbits))
                       .c_str());
        }
      }
    }
  }
}

void CpuKvTest::unpackedPagesEqualTheSlowTwinByteForByte() {
  FETCH_PATH(kv);
  for (const std::int64_t headDim : {8, 30, 64, 80, 100, 256}) {
    for (const int nbits : {16, 8, 4, 2}) {
      for (const QuantScheme scheme : {QuantScheme::kAsymmetric, QuantScheme::kSymmetric}) {
        for (const DataType type : {DataType::kF16, DataType::kF32}) {
          KvScene scene({2, 2, headDim}, 21);
          scene.addPage(pageFormat(nbits, nbits, 64, scheme), 51);
          const ExactSpan expected = scene.poisonedSpan(type, 60);
          const ExactSpan unpacked = scene.poisonedSpan(type, 60);
          unpackPageReference(scene.shape(), scene.history().pages[0], expected);
          kv.unpackPage(scene.shape(), scene.history().pages[0], unpacked);
          const std::size_t bytes = bytesOf(type, 2 * 60 * headDim);
          QVERIFY(sameBytes(unpacked.keys, expected.keys, bytes));
          QVERIFY(sameBytes(unpacked.values, expected.values, bytes));
        }
      }
    }
  }
}

void CpuKvTest::powersOfTwoAreWithinTheStatedError() {
  FETCH_PATH(kv);
  const KvKernels& kernels = kvKernelsFor(static_cast<CpuPath>(path));
  std::vector<float> x;
  for (int i = 0; i <= 126 * 997; ++i) x.push_back(-static_cast<float>(i) / 997.0F);
  std::vector<float> power = x;
  kernels.exp2InPlace(power.data(), std::ssize(power));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp2(static_cast<double>(x[i]));
    QVERIFY(std::fabs(static_cast<double>(power[i]) - exact) <= 2e-7 * exact);
  }
  float special[] = {0.0F, -127.0F, -1.0e30F, -HUGE_VALF, NAN};
  kernels.exp2InPlace(special, 5);
  QCOMPARE(special[0], 1.0F);
  QCOMPARE(special[1], 0.0F);
  QCOMPARE(special[2], 0.0F);
  QCOMPARE(special[3], 0.0F);
  QVERIFY(std::isnan(special[4]));
}

void CpuKvTest::everyFormatIsAttendedAsByTheSlowTwin() {
  FETCH_PATH(kv);
  double worst = 0.0;
  for (const int keyNbits : {16, 8, 4, 2}) {
    for (const int valueNbits : {16, 8, 4, 2}) {
      for (const int groupSize : {32, 64, 128}) {
        for (const QuantScheme scheme : {QuantScheme::kAsymmetric, QuantScheme::kSymmetric}) {
          for (const std::int64_t nRows : {1, 6}) {  // decode, prefill
            KvScene scene({8, 2, 64}, 31);
            const DataType type = groupSize == 64 ? DataType::kF32 : DataType::kF16;
            scene.addPage(pageFormat(keyNbits, valueNbits, groupSize, scheme, type), groupSize);
            scene.setChunk(type, nRows, nRows);
            const double ratio = errorRatio(scene, kv, nRows, 0);
            worst = std::max(worst, ratio);
            QVERIFY2(ratio <= 1.0, ("k" + std::to_string(keyNbits) + " v" +
                                    std::to_string(valueNbits) + " g" + std::to_string(groupSize) +
                                    " rows " + std::to_string(nRows) + ": " + std::to_string(ratio))
                                       .c_str());
          }
        }
      }
    }
  }
  qInfo("largest error: %.3f of the tolerance", worst);
}

void CpuKvTest::everyHeadDimIsAttendedAsByTheSlowTwin() {
  FETCH_PATH(kv);
  const CheckResult result = checkHeadDims(sceneCheck(kv), {2, 14});
  QVERIFY2(result.isGood(), result.problem.c_str());
}

void CpuKvTest::everyNumberOfQueriesIsAttendedAsByTheSlowTwin() {
  FETCH_PATH(kv);
  const CheckResult result = checkQueryCounts(sceneCheck(kv), {1, 13});
  QVERIFY2(result.isGood(), result.problem.c_str());
}

void CpuKvTest::everyShapeIsDecodedAsByTheSlowTwin() {
  FETCH_PATH(kv);
  int scenes = 0;
  for (const std::int64_t queriesPerKvHead : {1, 2, 4, 8}) {
    for (const std::int64_t headDim : {8, 64, 80, 100, 128}) {
      for (const auto& [k, v] :
           {std::pair{8, 8}, {4, 4}, {2, 2}, {4, 2}, {16, 4}, {8, 16}, {16, 16}}) {
        const int groupSize = 32 << (scenes++ % 3);
        KvScene scene({2 * queriesPerKvHead, 2, headDim}, 61);
        for (int i = 0; i < 5; ++i) {
          scene.addPage(pageFormat(k, v, groupSize), i == 3 ? groupSize - 13 : groupSize);
        }
        scene.setChunk(DataType::kF16, 1, 1);
        const double ratio = errorRatio(scene, kv, 1, 0);
        QVERIFY2(ratio <= 1.0, qPrintable(QString("x%1 d%2 g%3 k%4 v%5: %6")
                                              .arg(queriesPerKvHead)
                                              .arg(headDim)
                                              .arg(groupSize)
                                              .arg(k)
                                              .arg(v)
                                              .arg(ratio)));
      }
    }
  }
}

void CpuKvTest::integersAddLessThanAFifthOfTheCachesOwnError_data() {
  QTest::addColumn<int>("nbits");
  QTest::addColumn<int>("groupSize");
  QTest::addColumn<int>("nRows");
  for (const int nbits : {8, 4, 2}) {
    for (const int groupSize : {32, 64, 128}) {
      for (const int nRows : {1, 12}) {         // decode, prefill
        if (nbits == 8 && nRows > 1) continue;  // 16-bit products
        QTest::addRow("%d bits, groups of %d, %d rows", nbits, groupSize, nRows)
            << nbits << groupSize << nRows;
      }
    }
  }
}

/// The cache's own error: attention to pages against attention to the tokens they were packed from.
/// The keys have outlier channels, so that few channels rule the step of the integers.
void CpuKvTest::integersAddLessThanAFifthOfTheCachesOwnError() {
  QFETCH(int, nbits);
  QFETCH(int, groupSize);
  QFETCH(int, nRows);
  const CpuPath path = nRows == 1 ? CpuPath::kAvx512Vnni : CpuPath::kAvx512Bf16;
  if (!isSupported(path)) QSKIP("this machine lacks the path");
  const AttentionShape shape{16, 4, 128};
  KvScene scene(shape, 67);
  std::vector<ExactSpan> exact;
  std::vector<PageRef> pages;
  for (int i = 0; i < (nRows == 1 ? 40 : 16); ++i) {
    exact.push_back(scene.randomSpan(DataType::kF16, groupSize, groupSize));
    pages.push_back(scene.poisonedPage(pageFormat(nbits, nbits, groupSize)));
    pages.back().nTokens = static_cast<std::uint16_t>(groupSize);
    packPageReference(shape, {&exact.back(), 1}, pages.back().format, QuantSolver::kMinMax,
                      pages.back().data);
  }
  const std::int64_t cols = shape.nHeads * shape.headDim;
  std::vector<float> queries = scene.randomRows(nRows, cols, cols, 1.0F);
  scene.setChunk(DataType::kF16, nRows, nRows);
  const auto attended = [&](const auto& attend, const KvView& history) {
    std::vector<float> output(queries.size());
    attend(shape, 0.09F, MatrixView{queries.data(), nRows, cols, cols}, history, scene.chunk(), 0,
           MatrixView{output.data(), nRows, cols, cols});
    return output;
  };
  ThreadPool pool(2);
  CpuKv kv(kvKernelsFor(path), pool);
  const KvView paged{pages.data(), std::ssize(pages), std::ssize(pages) * groupSize, {}};
  const std::vector<float> truth = attended(attendReference, {nullptr, 0, 0, exact});
  const std::vector<float> slow = attended(attendReference, paged);
  const std::vector<float> fast =
      attended([&](const auto&... arguments) { kv.attend(arguments...); }, paged);
  double own = 0.0;
  double added = 0.0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    own += std::pow(static_cast<double>(slow[i]) - static_cast<double>(truth[i]), 2);
    added += std::pow(static_cast<double>(fast[i]) - static_cast<double>(slow[i]), 2);
  }
  const double ratio = std::sqrt(added / own);
  qInfo("%.4f of the cache's own error", ratio);
  QVERIFY(ratio < 0.2);
}

void CpuKvTest::everyNumberOfValidTokensIsAttendedAsByTheSlowTwin() {
  FETCH_PATH(kv);
  const CheckResult result = checkValidTokenCounts(sceneCheck(kv), {1, 7});
  QVERIFY2(result.isGood(), result.problem.c_str());
}

void CpuKvTest::longMixedHistoriesAreAttendedAsByTheSlowTwin() {
  FETCH_PATH(kv);
  for (const auto& [nRows, type] : {std::pair{1, DataType::kF32},
                                    {3, DataType::kF16},
                                    {70, DataType::kF32},
                                    {70, DataType::kF16},
                                    {300, DataType::kF16}}) {
    const CheckResult result =
        checkMixedHistory(sceneCheck(kv), {.chunkType = type, .nRows = nRows});
    qInfo("%d rows: %.3f of the tolerance", nRows, result.worst);
    QVERIFY2(result.isGood(), result.problem.c_str());
  }
}

void CpuKvTest::theNumberOfThreadsDoesNotChangeABit() {
  QFETCH(int, path);
  if (!isSupported(static_cast<CpuPath>(path))) QSKIP("this machine lacks the path");
  for (const std::int64_t nRows : {1, 50}) {
    std::vector<float> first;
    for (const int threads : {1, 2, 5}) {
      KvScene scene({4, 2, 64}, 41);
      for (int i = 0; i < 30; ++i) scene.addPage(pageFormat(4, 4, 64), 64);
      scene.setChunk(DataType::kF16, nRows, nRows);
      std::vector<float> queries = scene.randomRows(nRows, 256, 256, 1.0F);
      std::vector<float> output(queries.size());
      ThreadPool pool(threads);
      CpuKv kv(kvKernelsFor(static_cast<CpuPath>(path)), pool);
      kv.attend(scene.shape(), 0.125F, {queries.data(), nRows, 256, 256}, scene.history(),
                scene.chunk(), 0, {output.data(), nRows, 256, 256});
      if (first.empty()) first = output;
      QVERIFY(output == first);
    }
  }
}

void CpuKvTest::largeScoresDoNotOverflow() {
  FETCH_PATH(kv);
  for (const auto& [nRows, type] :
       {std::pair{1, DataType::kF32}, {12, DataType::kF32}, {12, DataType::kF16}}) {
    KvScene scene({1, 1, 64}, 13);
    scene.addPage(pageFormat(8, 8, 32), 32);
    scene.setChunk(type, nRows, nRows);
    std::vector<float> queries = scene.randomRows(nRows, 64, 64, 1.0e4F);
    std::vector<float> output(queries.size(), NAN);
    kv.attend(scene.shape(), 1.0F, {queries.data(), nRows, 64, 64}, scene.history(), scene.chunk(),
              0, {output.data(), nRows, 64, 64});
    // One token takes all the weight, so each output is its value, within the values' range.
    for (const float value : output) QVERIFY(std::fabs(value) <= scene.largestValue() * 1.01F);
  }
}

QTEST_APPLESS_MAIN(CpuKvTest)
#include "cpu_kv_test.moc"
