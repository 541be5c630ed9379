// NF4 weights, made while loading or read from bitsandbytes folders.

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <QTest>

#include "engine/model/model.h"
#include "kernels/half.h"
#include "kernels/nf4.h"
#include "kernels/reference/reference_backend.h"
#include "tests/engine/model_values.h"
#include "tests/support/model_folder.h"
#include "tests/support/paths.h"

namespace longhand::engine {
namespace {

namespace fs = std::filesystem;
using kernels::DataType;
using kernels::WeightView;

fs::path demo() { return tests::resourcePath("longhand-demo"); }

}  // namespace

class Nf4ModelTest : public QObject {
  Q_OBJECT

 private slots:
  void init();
  void cleanup();

  void nf4EqualsTheKernelsOnTheWholeMatrix_data();
  void nf4EqualsTheKernelsOnTheWholeMatrix();
  void bitsAndBytesEqualsOurNf4_data();
  void bitsAndBytesEqualsOurNf4();
  void bitsAndBytesIsUsedStraightFromTheFile();
  void bitsAndBytesConvertsToEveryFormat();
  void readsOtherQuantStorage();
  void copiesMisalignedBlockScales();

 private:
  std::unique_ptr<Model> load(const fs::path& folder, WeightFormat format = WeightFormat::kAuto) {
    return loadModel(folder, format, *backend_, *ledger_, {}, {});
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<MemoryLedger> ledger_;
};

void Nf4ModelTest::init() {
  backend_ = kernels::createReferenceBackend();
  ledger_ = std::make_unique<MemoryLedger>();
}

/// Whatever a test loads, or fails to load, nothing of it stays behind.
void Nf4ModelTest::cleanup() { QCOMPARE(ledger_->use().total(), std::uint64_t{0}); }

void Nf4ModelTest::nf4EqualsTheKernelsOnTheWholeMatrix_data() {
  QTest::addColumn<bool>("doubleQuantization");
  QTest::newRow("nf4") << true;
  QTest::newRow("nf4 without double quantization") << false;
}

/// Quantizing by rows on several threads is the same as the kernel on the flattened matrix.
void Nf4ModelTest::nf4EqualsTheKernelsOnTheWholeMatrix() {
  QFETCH(bool, doubleQuantization);
  const auto format =
      doubleQuantization ? WeightFormat::kNf4 : WeightFormat::kNf4NoDoubleQuantization;
  const auto source = load(demo());
  const auto model = load(demo(), format);
  QVERIFY(model->weightFormat() == format);
  for (std::size_t layer = 0; layer < model->layers().size(); ++layer) {
    const WeightView& view = model->layers()[layer].gate;
    const std::vector<float> values = valuesOf(source->layers()[layer].gate);
    std::vector<std::uint8_t> codes((values.size() + 1) / 2);
    std::vector<float> absmax((values.size() + 63) / 64);
    kernels::quantizeNf4(values, codes, absmax);
    QCOMPARE(codesOf(view), codes);
    if (!doubleQuantization) {
      QCOMPARE((std::vector<float>{view.absmax, view.absmax + absmax.size()}), absmax);
      continue;
    }
    QVERIFY(view.absmax == nullptr);
    std::vector<std::uint8_t> absmaxCodes(absmax.size());
    std::vector<float> nested((absmax.size() + 255) / 256);
    QCOMPARE(view.nestedOffset, kernels::quantizeAbsmax(absmax, absmaxCodes, nested));
    QCOMPARE((std::vector<std::uint8_t>{view.absmaxCodes, view.absmaxCodes + absmax.size()}),
             absmaxCodes);
    QCOMPARE((std::vector<float>{view.nestedAbsmax, view.nestedAbsmax + nested.size()}), nested);
  }
}

void Nf4ModelTest::bitsAndBytesEqualsOurNf4_data() {
  QTest::addColumn<QString>("folder");
  QTest::newRow("double quantization") << "stories260K-bnb-nf4";
  QTest::newRow("without") << "stories260K-bnb-nf4-nodq";
}

void Nf4ModelTest::bitsAndBytesEqualsOurNf4() {
  QFETCH(QString, folder);
  const fs::path path = tests::modelPath(folder.toStdString());
  LONGHAND_SKIP_WITHOUT(path);
  const auto stored = load(path);
  const auto ours = load(tests::modelPath("stories260K-f16"), stored->weightFormat());
  QVERIFY(stored->config().isBitsAndBytes4Bit);
  const auto storedViews = matricesOf(*stored);
  const auto ourViews = matricesOf(*ours);
  for (std::size_t i = 0; i < storedViews.size(); ++i) {
    QVERIFY(storedViews[i].type == ourViews[i].type);
    if (storedViews[i].type == DataType::kNf4)
      QCOMPARE(codesOf(storedViews[i]), codesOf(ourViews[i]));
    // The nested table of the file may differ from ours in its last bits.
    const std::vector<float> actual = valuesOf(storedViews[i]);
    const std::vector<float> expected = valuesOf(ourViews[i]);
    for (std::size_t k = 0; k < actual.size(); ++k) {
      QVERIFY(std::abs(actual[k] - expected[k]) <= 1e-6F * std::abs(expected[k]));
    }
  }
}

void Nf4ModelTest::bitsAndBytesIsUsedStraightFromTheFile() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K-bnb-nf4"));
  const auto model = load(tests::modelPath("stories260K-bnb-nf4"));
  QVERIFY(model->weightFormat() == WeightFormat::kNf4);
  // One table of 16 and one of 256 floats for all 35 weights.
  const WeightView& first = model->layers()[0].query;
  QCOMPARE(model->layers()[4].down.codebook, first.codebook);
  QCOMPARE(model->layers()[4].down.nestedCodebook, first.nestedCodebook);
  QCOMPARE(ledger_->use()[MemoryCategory::kWeights], model->weightBytes());
}

void Nf4ModelTest::bitsAndBytesConvertsToEveryFormat() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K-bnb-nf4"));
  const fs::path doubled = tests::modelPath("stories260K-bnb-nf4");
  const fs::path single = tests::modelPath("stories260K-bnb-nf4-nodq");
  const auto exact = load(doubled);
  QCOMPARE(allValuesOf(*load(doubled, WeightFormat::kF32)), allValuesOf(*exact));
  // Expanding the double quantization changes no value.
  const auto expanded = load(doubled, WeightFormat::kNf4NoDoubleQuantization);
  QVERIFY(expanded->layers()[0].query.absmax != nullptr);
  QCOMPARE(allValuesOf(*expanded), allValuesOf(*exact));
  // Quantizing absmax afterwards is what bitsandbytes did when it made the other folder.
  const auto nested = load(single, WeightFormat::kNf4);
  QVERIFY(nested->layers()[0].query.absmaxCodes != nullptr);
  QCOMPARE(codesOf(nested->layers()[2].up), codesOf(exact->layers()[2].up));
  const auto f16 = load(doubled, WeightFormat::kF16);
  const std::vector<float> values = valuesOf(exact->layers()[3].value);
  const std::vector<float> rounded = valuesOf(f16->layers()[3].value);
  for (std::size_t i = 0; i < values.size(); ++i) {
    QCOMPARE(rounded[i], kernels::halfToFloat(kernels::floatToHalf(values[i])));
  }
}

void Nf4ModelTest::readsOtherQuantStorage() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K-bnb-nf4"));
  const auto plain = load(tests::modelPath("stories260K-bnb-nf4"));
  const tests::ModelFolder folder(tests::modelPath("stories260K-bnb-nf4"));
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  const auto bytes = folder.tensorBytes(name);
  folder.setTensor(name, "BF16", {static_cast<std::int64_t>(bytes.size() / 2), 1}, bytes);
  QCOMPARE(allValuesOf(*load(folder.path())), allValuesOf(*plain));
}

void Nf4ModelTest::copiesMisalignedBlockScales() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K-bnb-nf4-nodq"));
  for (const char* name : {"stories260K-bnb-nf4-nodq", "stories260K-bnb-nf4"}) {
    const auto plain = load(tests::modelPath(name));
    for (const std::size_t shift : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
      const tests::ModelFolder folder(tests::modelPath(name));
      folder.shiftData(shift);
      QCOMPARE(allValuesOf(*load(folder.path())), allValuesOf(*plain));
    }
  }
}

}  // namespace longhand::engine

QTEST_GUILESS_MAIN(longhand::engine::Nf4ModelTest)
#include "nf4_model_test.moc"
