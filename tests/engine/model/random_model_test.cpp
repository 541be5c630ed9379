// Random models of a shape.

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <QTest>

#include "engine/base/error.h"
#include "engine/model/model.h"
#include "engine/session/step_cost.h"
#include "kernels/reference/reference_backend.h"
#include "tests/engine/model_values.h"
#include "tests/support/paths.h"

namespace longhand::engine {
namespace {

namespace fs = std::filesystem;
using kernels::WeightView;

fs::path demo() { return tests::resourcePath("longhand-demo"); }

}  // namespace

class RandomModelTest : public QObject {
  Q_OBJECT

 private slots:
  void init();
  void cleanup();

  void randomModelsAreReproducible();
  void randomModelsHaveTheSizesAndSpreadOfRealOnes_data();
  void randomModelsHaveTheSizesAndSpreadOfRealOnes();
  void refusesWhatDoesNotFitMemory();

 private:
  std::unique_ptr<Model> load(const fs::path& folder, WeightFormat format = WeightFormat::kAuto) {
    return loadModel(folder, format, *backend_, *ledger_, {}, {});
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<MemoryLedger> ledger_;
};

void RandomModelTest::init() {
  backend_ = kernels::createReferenceBackend();
  ledger_ = std::make_unique<MemoryLedger>();
}

/// Whatever a test loads, or fails to load, nothing of it stays behind.
void RandomModelTest::cleanup() { QCOMPARE(ledger_->use().total(), std::uint64_t{0}); }

void RandomModelTest::randomModelsAreReproducible() {
  ModelConfig config = load(demo())->config();
  for (const WeightFormat format : {WeightFormat::kF16, WeightFormat::kNf4}) {
    const auto first = makeRandomModel(config, format, 5, *backend_, *ledger_);
    const auto second = makeRandomModel(config, format, 5, *backend_, *ledger_);
    const auto other = makeRandomModel(config, format, 6, *backend_, *ledger_);
    QCOMPARE(allValuesOf(*first), allValuesOf(*second));
    QVERIFY(allValuesOf(*first) != allValuesOf(*other));
    QVERIFY(valuesOf(first->layers()[0].gate) != valuesOf(first->layers()[0].up));
    QVERIFY(valuesOf(first->layers()[0].gate) != valuesOf(first->layers()[1].gate));
  }
}

void RandomModelTest::randomModelsHaveTheSizesAndSpreadOfRealOnes_data() {
  QTest::addColumn<int>("format");
  QTest::newRow("f32") << static_cast<int>(WeightFormat::kF32);
  QTest::newRow("f16") << static_cast<int>(WeightFormat::kF16);
  QTest::newRow("bf16") << static_cast<int>(WeightFormat::kBF16);
  QTest::newRow("nf4") << static_cast<int>(WeightFormat::kNf4);
  QTest::newRow("int8") << static_cast<int>(WeightFormat::kInt8);
  QTest::newRow("nf4-nodq") << static_cast<int>(WeightFormat::kNf4NoDoubleQuantization);
}

void RandomModelTest::randomModelsHaveTheSizesAndSpreadOfRealOnes() {
  QFETCH(int, format);
  const auto real = load(demo(), static_cast<WeightFormat>(format));
  const auto random =
      makeRandomModel(real->config(), static_cast<WeightFormat>(format), 3, *backend_, *ledger_);
  QCOMPARE(random->weightBytes(), real->weightBytes());
  QVERIFY(random->weightFormat() == real->weightFormat());
  QCOMPARE(weightBytesRead(real->config(), static_cast<WeightFormat>(format)).total(),
           weightBytesRead(*random).total());
  for (const WeightView& view : matricesOf(*random)) {
    double sum = 0.0;
    double squares = 0.0;
    const std::vector<float> values = valuesOf(view);
    for (const float value : values) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const auto n = static_cast<double>(values.size());
    // Five standard errors of the mean of the smallest matrix: 5 * 0.02 / sqrt(36864). The NF4
    // codebook is not symmetric: its mean is 0.023 of absmax.
    QVERIFY(std::abs(sum / n) < 0.0016);
    QVERIFY(std::abs(std::sqrt(squares / n) - 0.02) < 0.001);
  }
  QCOMPARE(normOf(random->finalNorm(), *random), std::vector<float>(192, 1.0F));
}

void RandomModelTest::refusesWhatDoesNotFitMemory() {
  ModelConfig config = shapeConfig("llama-2-13b");
  config.nLayers = 4096;  // some 2.6 TB
  try {
    makeRandomModel(config, WeightFormat::kF16, 1, *backend_, *ledger_);
    QFAIL("made");
  } catch (const Error& error) {
    QCOMPARE(error.code(), ErrorCode::kOutOfMemory);
    QVERIFY2(error.message().find("llama-2-13b need") != std::string::npos, error.what());
  }
}

}  // namespace longhand::engine

QTEST_GUILESS_MAIN(longhand::engine::RandomModelTest)
#include "random_model_test.moc"
