#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/checks/attention_check.h"
#include "kernels/checks/attention_scenes.h"
#include "kernels/checks/kv_scene.h"
#include "kernels/checks/kv_store_check.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_on_cpu/device_memory.h"
#include "tests/cuda_on_cpu/options.h"
#include "tests/kernels/test_backends.h"

using namespace longhand::kernels;
using namespace longhand::kernels::checks;
using longhand::tests::addEmulatedBackends;

namespace {

/// Largest difference to the slow twin over what rounding explains; at most 1 when all is well.
double errorRatio(KvScene& scene, Backend& backend, std::int64_t nRows, std::int64_t chunkOffset) {
  return checkAttention(scene, backend, nRows, chunkOffset).worst;
}

}  // namespace

class CudaKvTest : public QObject {
  Q_OBJECT

 private slots:
  void storedTokensEqualTheSlowTwin_data() { addEmulatedBackends(); }
  void storedTokensEqualTheSlowTwin();
  void packedPagesEqualTheSlowTwinByteForByte_data() { addEmulatedBackends(); }
  void packedPagesEqualTheSlowTwinByteForByte();
  void unpackedPagesEqualTheSlowTwinByteForByte_data() { addEmulatedBackends(); }
  void unpackedPagesEqualTheSlowTwinByteForByte();
  void everyFormatIsAttendedAsByTheSlowTwin_data() { addEmulatedBackends(); }
  void everyFormatIsAttendedAsByTheSlowTwin();
  void everyHeadDimIsAttendedAsByTheSlowTwin_data() { addEmulatedBackends(); }
  void everyHeadDimIsAttendedAsByTheSlowTwin();
  void everyFormatOfLlamaHeadsIsAttendedAsByTheSlowTwin_data() { addEmulatedBackends(); }
  void everyFormatOfLlamaHeadsIsAttendedAsByTheSlowTwin();
  void everyNumberOfQueriesIsAttendedAsByTheSlowTwin_data() { addEmulatedBackends(); }
  void everyNumberOfQueriesIsAttendedAsByTheSlowTwin();
  void everyNumberOfValidTokensIsAttendedAsByTheSlowTwin_data() { addEmulatedBackends(); }
  void everyNumberOfValidTokensIsAttendedAsByTheSlowTwin();
  void longMixedHistoriesAreAttendedAsByTheSlowTwin_data() { addEmulatedBackends(); }
  void longMixedHistoriesAreAttendedAsByTheSlowTwin();
  void prefillOfEveryFormatEqualsTheSlowTwin_data() { addEmulatedBackends(); }
  void prefillOfEveryFormatEqualsTheSlowTwin();
  void prefillOfEveryShapeEqualsTheSlowTwin_data() { addEmulatedBackends(); }
  void prefillOfEveryShapeEqualsTheSlowTwin();
  void prefillWithLargeSharedMemoryEqualsTheSlowTwin_data() { addEmulatedBackends(); }
  void prefillWithLargeSharedMemoryEqualsTheSlowTwin();
  void fewRowsBehindALongHistoryShareItOut_data() { addEmulatedBackends(); }
  void fewRowsBehindALongHistoryShareItOut();
  void rowsThatSeeNothingOfASplitAreRight_data() { addEmulatedBackends(); }
  void rowsThatSeeNothingOfASplitAreRight();
  void plainAttentionMayComeInSeveralLaunches_data() { addEmulatedBackends(); }
  void plainAttentionMayComeInSeveralLaunches();
  void decodeFillsWholeRoundsOfTheDevice_data() { addEmulatedBackends(); }
  void decodeFillsWholeRoundsOfTheDevice();
  void largeScoresDoNotOverflow_data() { addEmulatedBackends(); }
  void largeScoresDoNotOverflow();
};

void CudaKvTest::storedTokensEqualTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  for (const std::int64_t headDim : {8, 10, 30, 64, 80, 100, 128, 256}) {
    for (const DataType type : {DataType::kF16, DataType::kF32}) {
      for (const std::int64_t n : {1, 3, 40}) {
        const CheckResult stored = checkStoreExact(backend, headDim, type, n);
        QVERIFY2(stored.isGood(), stored.problem.c_str());
        const CheckResult copied = checkCopyExact(backend, headDim, type, n);
        QVERIFY2(copied.isGood(), copied.problem.c_str());
      }
    }
  }
}

void CudaKvTest::packedPagesEqualTheSlowTwinByteForByte() {
  LONGHAND_FETCH_BACKEND();
  for (const std::int64_t headDim : {8, 10, 30, 64, 80, 100, 128, 256}) {
    for (const int keyNbits : {16, 8, 4, 2}) {
      for (const int valueNbits : {16, 8, 4, 2}) {
        for (const QuantScheme scheme : {QuantScheme::kAsymmetric, QuantScheme::kSymmetric}) {
          const int group = 32 << ((keyNbits + valueNbits / 2) % 3);
          const DataType exactType = valueNbits == 2 ? DataType::kF32 : DataType::kF16;
          const PageFormat format = pageFormat(keyNbits, valueNbits, group, scheme, exactType);
          const QuantSolver solver = group == 32 ? QuantSolver::kHqq : QuantSolver::kMinMax;
          const CheckResult packed = checkPackPage(backend, headDim, format, solver);
          QVERIFY2(packed.isGood(), packed.problem.c_str());
        }
      }
    }
  }
}

void CudaKvTest::unpackedPagesEqualTheSlowTwinByteForByte() {
  LONGHAND_FETCH_BACKEND();
  for (const std::int64_t headDim : {8, 30, 64, 80, 100, 256}) {
    for (const int nbits : {16, 8, 4, 2}) {
      for (const QuantScheme scheme : {QuantScheme::kAsymmetric, QuantScheme::kSymmetric}) {
        for (const DataType type : {DataType::kF16, DataType::kF32}) {
          const PageFormat format = pageFormat(nbits, nbits, 64, scheme);
          const CheckResult unpacked = checkUnpackPage(backend, headDim, format, type);
          QVERIFY2(unpacked.isGood(), unpacked.problem.c_str());
        }
      }
    }
  }
}

void CudaKvTest::everyFormatIsAttendedAsByTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  double worst = 0.0;
  for (const int keyNbits : {16, 8, 4, 2}) {
    for (const int valueNbits : {16, 8, 4, 2}) {
      for (const int groupSize : {32, 64, 128}) {
        for (const QuantScheme scheme : {QuantScheme::kAsymmetric, QuantScheme::kSymmetric}) {
          for (const std::int64_t nRows : {1, 6}) {  // decode, prefill
            KvScene scene({8, 2, 64}, 31);
            const DataType type = groupSize == 64 ? DataType::kF32 : DataType::kF16;
            scene.addPage(pageFormat(keyNbits, valueNbits, groupSize, scheme, type), groupSize);
            scene.setChunk(DataType::kF32, nRows, nRows);
            const double ratio = errorRatio(scene, backend, nRows, 0);
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

void CudaKvTest::everyHeadDimIsAttendedAsByTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  const CheckResult result = checkHeadDims(sceneCheck(backend), {6, 44});
  QVERIFY2(result.isGood(), result.problem.c_str());
}

// Heads of 128 channels have kernels of their own; one, up to 4 and up to 8 queries too.
void CudaKvTest::everyFormatOfLlamaHeadsIsAttendedAsByTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  double worst = 0.0;
  for (const std::int64_t headDim : {64, 72, 128, 200}) {
    for (const std::int64_t queriesPerKvHead : {1, 3, 7}) {
      for (const int nbits : {16, 8, 4, 2}) {
        for (const int groupSize : {32, 64, 128}) {
          const int other = nbits == 16 ? 4 : nbits == 2 ? 16 : nbits / 2;
          KvScene scene({queriesPerKvHead, 1, headDim}, 47);
          scene.addPage(pageFormat(nbits, nbits, groupSize), groupSize);
          scene.addPage(pageFormat(other, nbits, groupSize, QuantScheme::kSymmetric),
                        groupSize - 3);
          scene.addPage(pageFormat(nbits, other, groupSize == 128 ? 32 : 2 * groupSize), 25);
          scene.addSpan(DataType::kF16, 33, 40);
          scene.setChunk(DataType::kF16, 1, 1);
          const double ratio = errorRatio(scene, backend, 1, 0);
          worst = std::max(worst, ratio);
          QVERIFY2(ratio <= 1.0,
                   (std::to_string(headDim) + " x " + std::to_string(queriesPerKvHead) + ", " +
                    std::to_string(nbits) + " bits, g" + std::to_string(groupSize) + ": " +
                    std::to_string(ratio))
                       .c_str());
        }
      }
    }
  }
  qInfo("largest error: %.3f of the tolerance", worst);
}

void CudaKvTest::everyNumberOfQueriesIsAttendedAsByTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  const CheckResult result = checkQueryCounts(sceneCheck(backend), {4, 44});
  QVERIFY2(result.isGood(), result.problem.c_str());
}

void CudaKvTest::everyNumberOfValidTokensIsAttendedAsByTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  const CheckResult result = checkValidTokenCounts(sceneCheck(backend), {3, 29});
  QVERIFY2(result.isGood(), result.problem.c_str());
}

void CudaKvTest::longMixedHistoriesAreAttendedAsByTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  for (const std::int64_t nRows : {1, 3, 70}) {
    const CheckResult result =
        checkMixedHistory(sceneCheck(backend), {.chunkType = DataType::kF32, .nRows = nRows});
    QVERIFY2(result.isGood(), result.problem.c_str());
  }
}

void CudaKvTest::prefillOfEveryFormatEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  double worst = 0.0;
  int i = 0;
  for (const int keyNbits : {16, 8, 4, 2}) {
    for (const int valueNbits : {16, 8, 4, 2}) {
      for (const int groupSize : {32, 64, 128}) {
        const std::int64_t headDim = std::array{64, 80, 96, 128}[static_cast<std::size_t>(i++ % 4)];
        const auto scheme = i % 2 == 0 ? QuantScheme::kSymmetric : QuantScheme::kAsymmetric;
        KvScene scene({4, 2, headDim}, 31);
        const DataType type = groupSize == 64 ? DataType::kF32 : DataType::kF16;
        scene.addPage(pageFormat(keyNbits, valueNbits, groupSize, scheme, type), groupSize);
        // Valid tokens end inside a word of codes.
        scene.addPage(pageFormat(keyNbits, valueNbits, groupSize, scheme, type), groupSize - 13);
        scene.setChunk(type, 19, 19);
        const double ratio = errorRatio(scene, backend, 19, 0);
        worst = std::max(worst, ratio);
        QVERIFY2(ratio <= 1.0, ("k" + std::to_string(keyNbits) + " v" + std::to_string(valueNbits) +
                                " g" + std::to_string(groupSize) + " head_dim " +
                                std::to_string(headDim) + ": " + std::to_string(ratio))
                                   .c_str());
      }
    }
  }
  qInfo("largest error: %.3f of the tolerance", worst);
}

void CudaKvTest::prefillOfEveryShapeEqualsTheSlowTwin() {
  LONGHAND_FETCH_BACKEND();
  double worst = 0.0;
  int i = 0;
  for (const std::int64_t queriesPerKvHead : {1, 3, 8}) {
    for (const std::int64_t nRows : {33, 64, 101}) {
      KvScene scene({2 * queriesPerKvHead, 2, i % 2 == 0 ? 64 : 80}, 7);
      const std::int64_t offset = i % 3 * 37;  // query rows are the end of the chunk
      scene.addSpan(DataType::kF16, 4, 4);
      scene.addSpan(i % 2 == 0 ? DataType::kF32 : DataType::kF16, 45, 50);
      if (i % 3 == 0) scene.addPage(pageFormat(4, 2, 64), 64);
      scene.setChunk(i % 2 == 0 ? DataType::kF16 : DataType::kF32, offset + nRows,
                     offset + nRows + 3);
      const double ratio = errorRatio(scene, backend, nRows, offset);
      worst = std::max(worst, ratio);
      QVERIFY2(ratio <= 1.0, (std::to_string(queriesPerKvHead) + " x " + std::to_string(nRows) +
                              ": " + std::to_string(ratio))
                                 .c_str());
      ++i;
    }
  }
  qInfo("largest error: %.3f of the tolerance", worst);
}

void CudaKvTest::prefillWithLargeSharedMemoryEqualsTheSlowTwin() {
  longhand::cuda_on_cpu::Options hopper = longhand::cuda_on_cpu::options;
  hopper.largestSharedBytes = std::size_t{227} << 10U;
  const longhand::cuda_on_cpu::ScopedOptions scope(hopper);
  LONGHAND_FETCH_BACKEND();
  for (const std::int64_t headDim : {64, 80, 96, 128}) {
    KvScene scene({2, 1, headDim}, 17);
    constexpr int kNbits[] = {4, 2, 8, 16};
    for (int i = 0; i < 6; ++i) {
      const int groupSize = 32 << (i % 3);
      scene.addPage(pageFormat(kNbits[i % 4], kNbits[(i + i / 4) % 4], groupSize),
                    groupSize - i * 5);
    }
    scene.setChunk(DataType::kF16, 75, 75);
    const double ratio = errorRatio(scene, backend, 70, 5);
    QVERIFY2(ratio <= 1.0, (std::to_string(headDim) + ": " + std::to_string(ratio)).c_str());
  }
}

// The emulated device has 4 multiprocessors, so room for 8 blocks of prefill.
void CudaKvTest::fewRowsBehindALongHistoryShareItOut() {
  struct Shape {
    std::int64_t nKvHeads;
    std::int64_t nRows;  // two queries a kv head and row
    int nPages;          // of 128 tokens
    bool hasLargeShared;
    int nLaunches;
  };
  constexpr Shape kShapes[] = {
      {1, 20, 12, false, 2},  // 1 block, 3 splits of 512 tokens or more
      {2, 40, 9, false, 2},   // 4 blocks
      {1, 40, 12, true, 2},   // 1 block of 128 rows
      {1, 20, 7, false, 1},   // no 1024 tokens
      {7, 20, 9, false, 1},   // 7 blocks are enough
  };
  for (const Shape& shape : kShapes) {
    longhand::cuda_on_cpu::Options options = longhand::cuda_on_cpu::options;
    if (shape.hasLargeShared) options.largestSharedBytes = std::size_t{227} << 10U;
    const longhand::cuda_on_cpu::ScopedOptions scope(options);
    LONGHAND_FETCH_BACKEND();
    KvScene scene({2 * shape.nKvHeads, shape.nKvHeads, 64}, 41);
    constexpr int kNbits[] = {4, 2, 16, 8};
    for (int i = 0; i < shape.nPages; ++i) {
      const bool isShort = i == 3;
      scene.addPage(pageFormat(kNbits[i % 4], kNbits[(i + 1) % 4], 128), isShort ? 77 : 128);
    }
    scene.addSpan(DataType::kF16, 37, 40);
    scene.setChunk(DataType::kF16, shape.nRows + 3, shape.nRows + 3);
    auto& nLaunches = longhand::cuda_on_cpu::emulatedDevice().counters.nLaunches;
    const int before = nLaunches;
    const double ratio = errorRatio(scene, backend, shape.nRows, 3);
    QVERIFY2(ratio <= 1.0, (std::to_string(shape.nKvHeads) + " x " + std::to_string(shape.nRows) +
                            ": " + std::to_string(ratio))
                               .c_str());
    QCOMPARE(nLaunches - before, shape.nLaunches);
  }
}

void CudaKvTest::plainAttentionMayComeInSeveralLaunches() {
  LONGHAND_FETCH_BACKEND();  // for its schedule, and a device
  Q_UNUSED(backend)
  KvScene scene({4, 2, 20}, 19);
  scene.addPage(pageFormat(4, 4, 32), 32);
  scene.addSpan(DataType::kF16, 5, 6);
  scene.setChunk(DataType::kF16, 15, 15);
  constexpr double kOfRow = 2.0 * (32 + 5 + 15) * 4 * 20;
  for (const double rowsAtOnce : {0.5, 1.0, 4.5, 11.0, 100.0}) {
    const auto attend = [&](float scoreScale, const MatrixView& queries, const KvView& history,
                            const ExactSpan& chunk, std::int64_t chunkOffset,
                            const MatrixView& output) {
      cuda::AttentionJob job;
      job.pages = history.pages;
      job.nPages = static_cast<int>(history.nPages);
      job.nPagedTokens = history.nPagedTokens;
      for (const ExactSpan& span : history.exact) job.exact.spans[job.exact.nSpans++] = span;
      job.exact.spans[job.exact.nSpans++] = chunk;
      job.chunkOffset = chunkOffset;
      job.nHeads = 4;
      job.nKvHeads = 2;
      job.headDim = 20;
      job.scoreScale = scoreScale;
      job.queries = queries;
      job.output = output;
      cuda::launchPlainAttention(job, cudaStream_t{}, rowsAtOnce * kOfRow);
    };
    auto& nLaunches = longhand::cuda_on_cpu::emulatedDevice().counters.nLaunches;
    const int before = nLaunches;
    const CheckResult result = checkAttention(scene, AttentionRounding{}, 11, 4, attend);
    QVERIFY2(result.isGood(), result.problem.c_str());
    const auto rows = static_cast<std::int64_t>(std::max(rowsAtOnce, 1.0));
    QCOMPARE(static_cast<std::int64_t>(nLaunches - before), (11 + rows - 1) / rows);
  }
}

// The emulated device has 4 multiprocessors, which hold 3 blocks of 128 threads each.
void CudaKvTest::decodeFillsWholeRoundsOfTheDevice() {
  LONGHAND_FETCH_BACKEND();
  for (const std::int64_t nKvHeads : {1, 2, 3, 6}) {
    constexpr std::uint64_t kAtOnce = 12;
    KvScene scene({nKvHeads, nKvHeads, 128}, 13);
    for (int i = 0; i < 40; ++i) scene.addPage(pageFormat(4, 4, 32), 32);
    scene.setChunk(DataType::kF16, 1, 1);
    const auto& nBlocks = longhand::cuda_on_cpu::emulatedDevice().counters.nBlocks;
    const std::uint64_t before = nBlocks;
    const double ratio = errorRatio(scene, backend, 1, 0);
    QVERIFY2(ratio <= 1.0, std::to_string(ratio).c_str());
    const std::uint64_t blocks = nBlocks - before;
    const std::uint64_t rounds = (blocks + kAtOnce - 1) / kAtOnce;
    QVERIFY2(10 * blocks >= 9 * rounds * kAtOnce, std::to_string(blocks).c_str());
  }
}

void CudaKvTest::rowsThatSeeNothingOfASplitAreRight() {
  LONGHAND_FETCH_BACKEND();  // for its schedule: it has too little scratch for so many partials
  CudaOptions options;
  options.matmul = {.scratchBytes = std::size_t{1} << 20U, .usesCublas = false};
  std::string reason;
  const auto large = createCudaBackend(options, reason);
  QVERIFY2(large != nullptr, reason.c_str());
  // 17 blocks of 64 rows fill three rounds of 8 badly, 34 fill five. The first block's second split
  // begins with token 32: its second warp has rows from token 21 on, which see nothing of it, and
  // rows up to token 36, which do.
  constexpr std::int64_t kRows = 1030;
  constexpr std::int64_t kOffset = 5;
  KvScene scene({1, 1, 64}, 43);
  scene.setChunk(DataType::kF16, kOffset + kRows, kOffset + kRows);
  auto& nLaunches = longhand::cuda_on_cpu::emulatedDevice().counters.nLaunches;
  for (Backend* const each : {&backend, large.get()}) {
    const int before = nLaunches;
    const double ratio = errorRatio(scene, *each, kRows, kOffset);
    QVERIFY2(ratio <= 1.0, std::to_string(ratio).c_str());
    QCOMPARE(nLaunches - before, each == &backend ? 1 : 2);
  }
}

void CudaKvTest::largeScoresDoNotOverflow() {
  LONGHAND_FETCH_BACKEND();
  for (const std::int64_t nRows : {1, 12, 40}) {
    KvScene scene({1, 1, 64}, 13);
    scene.addPage(pageFormat(8, 8, 32), 32);
    scene.setChunk(DataType::kF32, nRows, nRows);
    std::vector<float> queries = scene.randomRows(nRows, 64, 64, 1.0e4F);
    std::vector<float> output(queries.size(), NAN);
    backend.attend(scene.shape(), 1.0F, {queries.data(), nRows, 64, 64}, scene.history(),
                   scene.chunk(), 0, {output.data(), nRows, 64, 64});
    // One token takes all the weight, so each output is its value, within the values' range.
    for (const float value : output) QVERIFY(std::fabs(value) <= scene.largestValue() * 1.01F);
  }
}

QTEST_APPLESS_MAIN(CudaKvTest)
#include "cuda_kv_test.moc"
