// Predicted times of the CUDA kernels: what they are made of, and how they follow a device's rates.

#include "engine/cli/selftest/prediction.h"

#include <cmath>
#include <limits>

#include <QtTest>

#include "engine/cli/selftest/selftest_rows.h"
#include "kernels/cuda/kernel_costs.h"

using namespace longhand;
using namespace longhand::engine;
using namespace longhand::engine::cli;

namespace {

namespace costs = longhand::kernels::cuda::costs;

/// A card that is bound by memory only, of 1 TB/s.
DeviceSpeed slowMemory() { return {1e12, 1e18, 8, 1'000'000, 1e9}; }

bool isNear(double value, double expected) {
  return std::abs(value - expected) <= 1e-9 * std::abs(expected);
}

}  // namespace

class PredictionTest : public QObject {
  Q_OBJECT

 private slots:
  void whatMemoryBindsTakesItsBytes();
  void whatInstructionsBindIgnoresTheBandwidth();
  void anUnknownRateIsFree();
  void withoutACopyRateNothingIsPredicted();
  void aStepIsTheSumOfItsLaunches();
  void fewerBitsAreFasterWhereMemoryBinds();
  void aLongPromptIsAttentionOnTensorCores();
  void aCardsCopyIsAShareOfItsBandwidth();
};

void PredictionTest::whatMemoryBindsTakesItsBytes() {
  const Predictor predictor(slowMemory(), shapeConfig("llama-2-7b"));
  const KvCacheConfig cache = selftestCache(16, 16);
  const Prediction attention = predictor.attention(cache, 100'000, 1);
  const double bytes = 100'000.0 * 4096 * 2 * 2;
  QVERIFY(
      isNear(attention.seconds(), bytes / (costs::kMemoryShare * 1e12) + costs::kLaunchSeconds));
  QCOMPARE(attention.limit(), "memory");
  QVERIFY(isNear(predictor.copy(1e12).seconds(), 1.0 + costs::kLaunchSeconds));
}

void PredictionTest::whatInstructionsBindIgnoresTheBandwidth() {
  const ModelConfig config = shapeConfig("llama-2-7b");
  DeviceSpeed speed{1e15, 1e15, 9, 1, 1e9};
  const KvCacheConfig cache = selftestCache(2, 2);
  const Prediction one = Predictor(speed, config).attention(cache, 100'000, 1);
  QCOMPARE(one.limit(), "instructions");
  speed.copyBytesPerSecond *= 2.0;
  QCOMPARE(Predictor(speed, config).attention(cache, 100'000, 1).seconds(), one.seconds());
  speed.nMultiprocessors *= 2;
  const Prediction two = Predictor(speed, config).attention(cache, 100'000, 1);
  QVERIFY(
      isNear(two.seconds() - costs::kLaunchSeconds, 0.5 * (one.seconds() - costs::kLaunchSeconds)));
}

void PredictionTest::anUnknownRateIsFree() {
  DeviceSpeed speed = slowMemory();
  speed.nMultiprocessors = 0;
  speed.halfOperationsPerSecond = 0.0;
  const Predictor predictor(speed, shapeConfig("llama-2-7b"));
  QCOMPARE(predictor.attention(selftestCache(2, 2), 100'000, 1).limit(), "memory");
  QVERIFY(
      std::isfinite(predictor.prefill(WeightFormat::kNf4, selftestCache(4, 4), 0, 1000).seconds()));
}

void PredictionTest::withoutACopyRateNothingIsPredicted() {
  const Predictor predictor(DeviceSpeed{}, shapeConfig("llama-2-7b"));
  QCOMPARE(predictor.decodeStep(WeightFormat::kNf4, selftestCache(4, 4), 100).seconds(), 0.0);
  QCOMPARE(predictor.prefill(WeightFormat::kNf4, selftestCache(4, 4), 0, 100).seconds(), 0.0);
}

void PredictionTest::aStepIsTheSumOfItsLaunches() {
  const ModelConfig config = shapeConfig("llama-2-7b");
  const Predictor predictor(slowMemory(), config);
  const KvCacheConfig cache = selftestCache(8, 8);
  const auto step = [&](std::int64_t depth) {
    return predictor.decodeStep(WeightFormat::kInt8, cache, depth).seconds();
  };
  const auto attention = [&](std::int64_t depth) {
    return predictor.attention(cache, depth, 1).seconds();
  };
  QVERIFY(std::abs(step(32768) - step(0) - 32.0 * (attention(32768) - attention(0))) < 1e-9);
  const double weights = 32.0 * 4096 * (4.0 * 4096 + 3.0 * 11008) + 32000.0 * 4096;  // bytes
  QVERIFY(step(0) > weights / (costs::kMemoryShare * 1e12) + 194 * costs::kLaunchSeconds);
  QVERIFY(step(0) < 1.2 * weights / (costs::kMemoryShare * 1e12) + 200 * costs::kLaunchSeconds);
}

void PredictionTest::fewerBitsAreFasterWhereMemoryBinds() {
  const Predictor predictor(slowMemory(), shapeConfig("llama-2-7b"));
  double last = std::numeric_limits<double>::infinity();
  for (const int nbits : {16, 8, 4, 2}) {
    const double seconds = predictor.attention(selftestCache(nbits, nbits), 100'000, 1).seconds();
    QVERIFY(seconds < last);
    last = seconds;
  }
}

void PredictionTest::aLongPromptIsAttentionOnTensorCores() {
  const Predictor predictor(speedOf(cardByName("rtx-4090")), shapeConfig("llama-2-7b"));
  const KvCacheConfig cache = selftestCache(4, 4);
  const Prediction prompt = predictor.prefill(WeightFormat::kNf4, cache, 0, 100'000);
  QCOMPARE(prompt.limit(), "tensor cores");
  const Prediction attention = predictor.attention(cache, 0, 100'000) * 32.0;
  QVERIFY(attention.seconds() > 0.4 * prompt.seconds());
  QVERIFY(attention.seconds() < prompt.seconds());
}

void PredictionTest::aCardsCopyIsAShareOfItsBandwidth() {
  for (const Card& card : allCards()) {
    const DeviceSpeed speed = speedOf(card);
    QVERIFY(speed.copyBytesPerSecond < card.bytesPerSecond);
    QVERIFY(speed.halfOperationsPerSecond < card.halfOperationsPerSecond);
    QVERIFY(card.usableBytes() > card.backendBytes());
    QCOMPARE(&cardByName(card.name), &card);
  }
}

QTEST_GUILESS_MAIN(PredictionTest)
#include "prediction_test.moc"
