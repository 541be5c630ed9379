// Loading models: every way a folder may hold its weights gives the same numbers, and every fault
// is refused with file, tensor and reason.

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <QTemporaryDir>
#include <QTest>

#include "engine/error.h"
#include "engine/model.h"
#include "engine/weight_specs.h"
#include "kernels/half.h"
#include "kernels/nf4.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/model_folder.h"
#include "tests/support/paths.h"

namespace longhand::engine {
namespace {

namespace fs = std::filesystem;
using kernels::DataType;
using kernels::WeightView;

std::vector<float> valuesOf(const WeightView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.rows * view.cols));
  for (std::int64_t row = 0; row < view.rows; ++row) {
    kernels::dequantizeRow(view, row, values.data() + row * view.cols);
  }
  return values;
}

std::vector<float> normOf(const float* norm, const Model& model) {
  return {norm, norm + model.config().hiddenSize};
}

/// All matrices of a model, in the order of weightSpecs().
std::vector<WeightView> matricesOf(const Model& model) {
  std::vector<WeightView> matrices;
  for (const WeightSpec& spec : weightSpecs(model.config())) {
    if (spec.role == WeightRole::kEmbedding) matrices.push_back(model.embedding());
    if (spec.role == WeightRole::kHead) matrices.push_back(model.lmHead());
    if (spec.role == WeightRole::kLinear) {
      matrices.push_back(model.layers().at(static_cast<std::size_t>(spec.layer)).*spec.matrix);
    }
  }
  return matrices;
}

std::vector<std::vector<float>> allValuesOf(const Model& model) {
  std::vector<std::vector<float>> all;
  for (const WeightView& view : matricesOf(model)) all.push_back(valuesOf(view));
  for (const LayerWeights& layer : model.layers()) {
    all.push_back(normOf(layer.attentionNorm, model));
    all.push_back(normOf(layer.mlpNorm, model));
  }
  all.push_back(normOf(model.finalNorm(), model));
  return all;
}

std::vector<std::uint8_t> codesOf(const WeightView& view) {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(view.data);
  return {codes, codes + (view.rows * view.cols + 1) / 2};
}

/// A backend like a device: views into host memory are not allowed, contents come by upload().
class DeviceLikeBackend final : public kernels::Backend {
 public:
  explicit DeviceLikeBackend(kernels::Backend& inner) : inner_(inner) {}
  std::string description() const override { return "test device"; }
  bool usesHostMemory() const override { return false; }
  kernels::DeviceMemoryInfo memoryInfo() const override { return inner_.memoryInfo(); }
  std::byte* allocate(std::size_t bytes) override {
    ownBytes_ += bytes;
    return inner_.allocate(bytes);
  }
  void release(std::byte* memory, std::size_t bytes) noexcept override {
    ownBytes_ -= bytes;
    inner_.release(memory, bytes);
  }
  void upload(std::byte* to, const std::byte* from, std::size_t bytes) override {
    inner_.upload(to, from, bytes);
  }
  void download(std::byte* to, const std::byte* from, std::size_t bytes) override {
    inner_.download(to, from, bytes);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    inner_.copy(to, from, bytes);
  }
  std::string synchronize() override { return fault; }
  void embed(const WeightView& table, std::span<const std::int32_t> ids,
             const kernels::MatrixView& output) override {
    inner_.embed(table, ids, output);
  }
  void rmsNorm(const kernels::MatrixView& input, const float* weight, float epsilon,
               const kernels::MatrixView& output) override {
    inner_.rmsNorm(input, weight, epsilon, output);
  }
  void matmul(const kernels::MatrixView& input, const WeightView& weight,
              const kernels::MatrixView& output, bool accumulate) override {
    inner_.matmul(input, weight, output, accumulate);
  }
  void rope(const kernels::MatrixView& heads, std::int64_t headDim, const float* cosSin) override {
    inner_.rope(heads, headDim, cosSin);
  }
  void siluMultiply(const kernels::MatrixView& gate, const kernels::MatrixView& up) override {
    inner_.siluMultiply(gate, up);
  }
  std::int32_t argmax(const float* logits, std::int64_t count) override {
    return inner_.argmax(logits, count);
  }
  void storeExact(const kernels::AttentionShape& shape, const kernels::MatrixView& keys,
                  const kernels::MatrixView& values, const kernels::ExactSpan& span,
                  std::int64_t firstToken) override {
    inner_.storeExact(shape, keys, values, span, firstToken);
  }
  void copyExact(const kernels::AttentionShape& shape, const kernels::ExactSpan& source,
                 std::int64_t sourceFirst, const kernels::ExactSpan& destination,
                 std::int64_t destinationFirst, std::int64_t count) override {
    inner_.copyExact(shape, source, sourceFirst, destination, destinationFirst, count);
  }
  void packPage(const kernels::AttentionShape& shape, std::span<const kernels::ExactSpan> source,
                const kernels::PageFormat& format, kernels::QuantSolver solver,
                std::byte* page) override {
    inner_.packPage(shape, source, format, solver, page);
  }
  void unpackPage(const kernels::AttentionShape& shape, const kernels::PageRef& page,
                  const kernels::ExactSpan& destination) override {
    inner_.unpackPage(shape, page, destination);
  }
  void attend(const kernels::AttentionShape& shape, float scoreScale,
              const kernels::MatrixView& queries, const kernels::KvView& history,
              const kernels::ExactSpan& chunk, std::int64_t chunkOffset,
              const kernels::MatrixView& output) override {
    inner_.attend(shape, scoreScale, queries, history, chunk, chunkOffset, output);
  }

  std::uint64_t ownBytes() const { return ownBytes_; }
  std::string fault;

 private:
  kernels::Backend& inner_;
  std::uint64_t ownBytes_ = 0;
};

}  // namespace

class ModelLoaderTest : public QObject {
  Q_OBJECT

 private slots:
  void init();
  void cleanup();

  void keepsTheFilesTypeByDefault();
  void usesWeightsStraightFromTheFile();
  void copiesWhatIsMisaligned();
  void shardedEqualsPlain();
  void shardsWithoutIndexEqualPlain();
  void f16AndBf16AreTheRoundedWeights();
  void convertsBetweenAllPlainTypes();
  void tablesStayAt16Bits();
  void untiedHeadIsReadTiedHeadIsTheEmbedding();
  void nf4EqualsTheKernelsOnTheWholeMatrix_data();
  void nf4EqualsTheKernelsOnTheWholeMatrix();
  void bitsAndBytesEqualsOurNf4_data();
  void bitsAndBytesEqualsOurNf4();
  void bitsAndBytesIsUsedStraightFromTheFile();
  void bitsAndBytesConvertsToEveryFormat();
  void readsOtherQuantStorage();
  void copiesMisalignedBlockScales();
  void uploadsToDevices();
  void reportsDeviceFaults();
  void refusesWithFileTensorAndReason_data();
  void refusesWithFileTensorAndReason();
  void ignoresBuffersAndUnknownTensors();
  void refusesIncompleteShards();
  void refusesF32WeightsTooLargeForF16();
  void refusesNonFiniteWeights();
  void refusesWhatDoesNotFitMemory();
  void progressRunsFromZeroToAll();
  void cancelLeavesNothingBehind();
  void fingerprintTellsModelsApart();
  void randomModelsAreReproducible();
  void randomModelsHaveTheSizesAndSpreadOfRealOnes_data();
  void randomModelsHaveTheSizesAndSpreadOfRealOnes();
  void survivesMutationsOfAModel();

 private:
  std::unique_ptr<Model> load(const fs::path& folder, WeightFormat format = WeightFormat::kAuto) {
    return loadModel(folder, format, *backend_, *ledger_, {}, {});
  }
  static fs::path demo() { return tests::resourcePath("longhand-demo"); }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<MemoryLedger> ledger_;
};

void ModelLoaderTest::init() {
  backend_ = kernels::createReferenceBackend();
  ledger_ = std::make_unique<MemoryLedger>();
}

/// Whatever a test loads, or fails to load, nothing of it stays behind.
void ModelLoaderTest::cleanup() { QCOMPARE(ledger_->use().total(), std::uint64_t{0}); }

void ModelLoaderTest::keepsTheFilesTypeByDefault() {
  const auto model = load(demo());
  QVERIFY(model->weightFormat() == WeightFormat::kF16);
  for (const WeightView& view : matricesOf(*model)) QVERIFY(view.type == DataType::kF16);
  QCOMPARE(model->layers().size(), std::size_t{4});
  QCOMPARE(model->layers()[3].down.rows, 192);
  QCOMPARE(model->layers()[3].down.cols, 512);
}

void ModelLoaderTest::usesWeightsStraightFromTheFile() {
  const auto model = load(demo());
  // 2.07 M weights of 2 bytes lie in the mapping; only the nine norms of 192 floats are copied.
  QCOMPARE(ledger_->use()[MemoryCategory::kWeights], model->weightBytes());
  std::uint64_t expected = 9 * 192 * 4;
  for (const WeightSpec& spec : weightSpecs(model->config())) {
    if (spec.role != WeightRole::kNorm) {
      expected += static_cast<std::uint64_t>(spec.rows * spec.cols) * 2;
    }
  }
  QCOMPARE(model->weightBytes(), expected);
  QCOMPARE(ledger_->use().total(), model->weightBytes());
}

void ModelLoaderTest::copiesWhatIsMisaligned() {
  tests::ModelFolder folder(demo());
  folder.shiftData(1);  // one byte in front of all weights
  const auto shifted = load(folder.path());
  const auto plain = load(demo());
  QCOMPARE(allValuesOf(*shifted), allValuesOf(*plain));
  QCOMPARE(shifted->weightBytes(), plain->weightBytes());
  for (const WeightView& view : matricesOf(*shifted)) {
    QCOMPARE(reinterpret_cast<std::uintptr_t>(view.data) % 2, std::uintptr_t{0});
  }
}

void ModelLoaderTest::shardedEqualsPlain() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K-sharded"));
  const auto plain = load(tests::modelPath("stories260K"));
  const auto sharded = load(tests::modelPath("stories260K-sharded"));
  QVERIFY(sharded->weightFormat() == WeightFormat::kF32);
  for (std::size_t layer = 0; layer < plain->layers().size(); ++layer) {
    QCOMPARE(valuesOf(sharded->layers()[layer].down), valuesOf(plain->layers()[layer].down));
    QCOMPARE(valuesOf(sharded->layers()[layer].query), valuesOf(plain->layers()[layer].query));
  }
  QCOMPARE(valuesOf(sharded->lmHead()), valuesOf(plain->embedding()));
  QCOMPARE(normOf(sharded->finalNorm(), *sharded), normOf(plain->finalNorm(), *plain));
}

void ModelLoaderTest::shardsWithoutIndexEqualPlain() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K-sharded"));
  tests::ModelFolder folder(tests::modelPath("stories260K-sharded"));
  fs::remove(folder.path() / "model.safetensors.index.json");
  const auto without = load(folder.path());
  const auto with = load(tests::modelPath("stories260K-sharded"));
  QCOMPARE(allValuesOf(*without), allValuesOf(*with));
  QCOMPARE(without->fingerprint(), with->fingerprint());
}

void ModelLoaderTest::f16AndBf16AreTheRoundedWeights() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K-f16"));
  const fs::path exact = tests::modelPath("stories260K");
  const auto f16 = load(tests::modelPath("stories260K-f16"));
  QVERIFY(f16->weightFormat() == WeightFormat::kF16);
  const auto toF16 = load(exact, WeightFormat::kF16);
  const auto bf16 = load(tests::modelPath("stories260K-bf16"));
  QVERIFY(bf16->weightFormat() == WeightFormat::kBF16);
  const auto toBf16 = load(exact, WeightFormat::kBF16);
  for (std::size_t i = 0; i < matricesOf(*f16).size(); ++i) {
    QCOMPARE(valuesOf(matricesOf(*toF16)[i]), valuesOf(matricesOf(*f16)[i]));
    QCOMPARE(valuesOf(matricesOf(*toBf16)[i]), valuesOf(matricesOf(*bf16)[i]));
  }
}

void ModelLoaderTest::convertsBetweenAllPlainTypes() {
  const auto source = load(demo());  // F16
  const auto f32 = load(demo(), WeightFormat::kF32);
  QVERIFY(f32->weightFormat() == WeightFormat::kF32);
  QVERIFY(f32->embedding().type == DataType::kF32);
  QCOMPARE(allValuesOf(*f32), allValuesOf(*source));
  const auto bf16 = load(demo(), WeightFormat::kBF16);
  const std::vector<float> expected = valuesOf(source->layers()[1].up);
  const std::vector<float> actual = valuesOf(bf16->layers()[1].up);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    QCOMPARE(actual[i], kernels::bfloatToFloat(kernels::floatToBfloat(expected[i])));
  }
}

void ModelLoaderTest::tablesStayAt16Bits() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K"));
  const fs::path f32 = tests::modelPath("stories260K");
  const fs::path bf16 = tests::modelPath("stories260K-bf16");
  QVERIFY(load(f32, WeightFormat::kF32)->embedding().type == DataType::kF32);
  QVERIFY(load(f32, WeightFormat::kF16)->embedding().type == DataType::kF16);
  QVERIFY(load(f32, WeightFormat::kBF16)->embedding().type == DataType::kBF16);
  QVERIFY(load(f32, WeightFormat::kNf4)->embedding().type == DataType::kF16);
  QVERIFY(load(bf16, WeightFormat::kNf4)->embedding().type == DataType::kBF16);
  QVERIFY(load(bf16, WeightFormat::kF16)->embedding().type == DataType::kBF16);
}

void ModelLoaderTest::untiedHeadIsReadTiedHeadIsTheEmbedding() {
  const auto tied = load(demo());
  QCOMPARE(tied->lmHead().data, tied->embedding().data);
  LONGHAND_SKIP_WITHOUT(tests::modelPath("random-hd64"));
  const auto untied = load(tests::modelPath("random-hd64"));
  QVERIFY(untied->lmHead().data != untied->embedding().data);
  QVERIFY(valuesOf(untied->lmHead()) != valuesOf(untied->embedding()));
}

void ModelLoaderTest::nf4EqualsTheKernelsOnTheWholeMatrix_data() {
  QTest::addColumn<bool>("doubleQuantization");
  QTest::newRow("nf4") << true;
  QTest::newRow("nf4 without double quantization") << false;
}

/// Quantizing by rows on several threads is the same as the kernel on the flattened matrix.
void ModelLoaderTest::nf4EqualsTheKernelsOnTheWholeMatrix() {
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

void ModelLoaderTest::bitsAndBytesEqualsOurNf4_data() {
  QTest::addColumn<QString>("folder");
  QTest::newRow("double quantization") << "stories260K-bnb-nf4";
  QTest::newRow("without") << "stories260K-bnb-nf4-nodq";
}

void ModelLoaderTest::bitsAndBytesEqualsOurNf4() {
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

void ModelLoaderTest::bitsAndBytesIsUsedStraightFromTheFile() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K-bnb-nf4"));
  const auto model = load(tests::modelPath("stories260K-bnb-nf4"));
  QVERIFY(model->weightFormat() == WeightFormat::kNf4);
  // One table of 16 and one of 256 floats for all 35 weights.
  const WeightView& first = model->layers()[0].query;
  QCOMPARE(model->layers()[4].down.codebook, first.codebook);
  QCOMPARE(model->layers()[4].down.nestedCodebook, first.nestedCodebook);
  QCOMPARE(ledger_->use()[MemoryCategory::kWeights], model->weightBytes());
}

void ModelLoaderTest::bitsAndBytesConvertsToEveryFormat() {
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

void ModelLoaderTest::readsOtherQuantStorage() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K-bnb-nf4"));
  const auto plain = load(tests::modelPath("stories260K-bnb-nf4"));
  const tests::ModelFolder folder(tests::modelPath("stories260K-bnb-nf4"));
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  const auto bytes = folder.tensorBytes(name);
  folder.setTensor(name, "BF16", {static_cast<std::int64_t>(bytes.size() / 2), 1}, bytes);
  QCOMPARE(allValuesOf(*load(folder.path())), allValuesOf(*plain));
}

void ModelLoaderTest::copiesMisalignedBlockScales() {
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

void ModelLoaderTest::uploadsToDevices() {
  for (const WeightFormat format : {WeightFormat::kAuto, WeightFormat::kF32, WeightFormat::kNf4}) {
    DeviceLikeBackend device(*backend_);
    MemoryLedger deviceLedger;
    auto onDevice = loadModel(demo(), format, device, deviceLedger, {}, {});
    const auto onHost = load(demo(), format);
    QCOMPARE(allValuesOf(*onDevice), allValuesOf(*onHost));
    QCOMPARE(device.ownBytes(), onDevice->weightBytes());
    QCOMPARE(deviceLedger.use().total(), onDevice->weightBytes());
    QCOMPARE(onDevice->fingerprint(), onHost->fingerprint());
    onDevice.reset();
    QCOMPARE(device.ownBytes(), std::uint64_t{0});
  }
}

void ModelLoaderTest::reportsDeviceFaults() {
  DeviceLikeBackend device(*backend_);
  device.fault = "bus error";
  try {
    loadModel(demo(), WeightFormat::kF16, device, *ledger_, {}, {});
    QFAIL("loaded");
  } catch (const Error& error) {
    QCOMPARE(error.code(), ErrorCode::kDevice);
    QVERIFY(error.message().find("bus error") != std::string::npos);
  }
  QCOMPARE(device.ownBytes(), std::uint64_t{0});
}

void ModelLoaderTest::refusesWithFileTensorAndReason_data() {
  using Folder = tests::ModelFolder;
  using Change = std::function<void(const Folder&)>;
  QTest::addColumn<Change>("change");
  QTest::addColumn<QString>("message");
  const auto row = [](const char* name, const Change& change, const char* message) {
    QTest::newRow(name) << change << QString::fromUtf8(message);
  };
  const std::string up = "model.layers.1.mlp.up_proj.weight";
  row(
      "truncated file", [](const Folder& f) { f.truncate(10); },
      "model.safetensors: tensor 'model.norm.weight' needs the data up to byte");
  row(
      "cut inside the header", [](const Folder& f) { f.truncate(4'134'000); },
      "model.safetensors: the file ends inside its header");
  row(
      "missing tensor", [=](const Folder& f) { f.removeTensor(up); },
      "model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight' is missing.");
  row(
      "wrong shape",
      [=](const Folder& f) {
        f.setTensor(up, "F16", {192, 512}, f.tensorBytes(up));
      },
      "model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight' has the shape [192, 512]"
      " instead of [512, 192].");
  row(
      "too many dimensions",
      [=](const Folder& f) {
        f.setTensor(up, "F16", {512, 192, 1}, f.tensorBytes(up));
      },
      "has the shape [512, 192, 1] instead of [512, 192].");
  row(
      "wrong norm",
      [](const Folder& f) {
        f.setTensor("model.norm.weight", "F16", {191}, std::vector<std::uint8_t>(382));
      },
      "tensor 'model.norm.weight' has the shape [191] instead of [192].");
  row(
      "integers",
      [=](const Folder& f) {
        f.setTensor(up, "I16", {512, 192}, f.tensorBytes(up));
      },
      "tensor 'model.layers.1.mlp.up_proj.weight' is of type I16; supported are F32, F16, BF16");
  row(
      "unknown type",
      [=](const Folder& f) {
        f.setTensor(up, "F12", {512, 192}, f.tensorBytes(up));
      },
      "tensor 'model.layers.1.mlp.up_proj.weight' has the unknown type 'F12'.");
  row(
      "bias",
      [](const Folder& f) {
        f.setTensor("model.layers.0.self_attn.q_proj.bias", "F16", {192},
                    std::vector<std::uint8_t>(384));
      },
      "tensor 'model.layers.0.self_attn.q_proj.bias' is a bias, which is not supported.");
  row(
      "more layers than the config says",
      [](const Folder& f) {
        f.changeConfig([](nlohmann::json& json) { json["num_hidden_layers"] = 3; });
      },
      "tensor 'model.layers.3.input_layernorm.weight' belongs to a layer beyond the 3");
  row(
      "fewer layers than the config says",
      [](const Folder& f) {
        f.changeConfig([](nlohmann::json& json) { json["num_hidden_layers"] = 5; });
      },
      "tensor 'model.layers.4.input_layernorm.weight' is missing.");
  row(
      "untied without a head",
      [](const Folder& f) {
        f.changeConfig([](nlohmann::json& json) { json["tie_word_embeddings"] = false; });
      },
      "tensor 'lm_head.weight' is missing.");
  row(
      "config of another model",
      [](const Folder& f) {
        f.changeConfig([](nlohmann::json& json) { json["intermediate_size"] = 513; });
      },
      "has the shape [512, 192] instead of [513, 192].");
  row(
      "no weights", [](const Folder& f) { fs::remove(f.path() / "model.safetensors"); },
      "has no model.safetensors");
  row(
      "weights of another format",
      [](const Folder& f) {
        fs::rename(f.path() / "model.safetensors", f.path() / "pytorch_model.bin");
      },
      "its pytorch_model.bin is of a format not read here.");
  const std::string state = up + ".quant_state.bitsandbytes__";
  row(
      "fp4", [=](const Folder& f) { f.setTensor(state + "fp4", "U8", {1}, {0}); },
      "tensor 'model.layers.1.mlp.up_proj.weight' is quantized as fp4; supported is nf4.");
  row(
      "int8",
      [=](const Folder& f) {
        f.setTensor(up + ".SCB", "F32", {1}, {0, 0, 0, 0});
      },
      "is quantized to 8 bits by bitsandbytes; supported is nf4.");
  row(
      "absmax alone", [=](const Folder& f) { f.setTensor(up + ".absmax", "U8", {1}, {0}); },
      "is packed to 4 bits, but has no quant_state beside it.");
  const auto stateRow = [&](const char* name, const std::string& json, const char* message) {
    row(
        name,
        [=](const Folder& f) {
          f.setTensor(state + "nf4", "U8", {static_cast<std::int64_t>(json.size())},
                      {json.begin(), json.end()});
        },
        message);
  };
  stateRow("state is no JSON", "nf4", "has a quant_state that is not a JSON object.");
  stateRow("state without block size", "{}", "has no blocksize in its quant_state.");
  stateRow("other block size", R"({"quant_type": "nf4", "blocksize": 128})",
           "has the blocksize '128'; supported is 64.");
  stateRow("other type", R"({"quant_type": "fp4", "blocksize": 64})", "has the quant_type");
  stateRow("state without shape", R"({"blocksize": 64})", "has no shape in its quant_state.");
  stateRow("other shape", R"({"blocksize": 64, "shape": [512, 191]})",
           "has the shape '[512,191]' in its quant_state instead of [512,192].");
  stateRow("wrong number of codes", R"({"blocksize": 64, "shape": [512, 192]})",
           "has 196608 packed bytes instead of 49152.");
}

void ModelLoaderTest::refusesWithFileTensorAndReason() {
  QFETCH(std::function<void(const tests::ModelFolder&)>, change);
  QFETCH(QString, message);
  const tests::ModelFolder folder(demo());
  change(folder);
  try {
    load(folder.path());
    QFAIL("loaded");
  } catch (const Error& error) {
    const QString actual = QString::fromStdString(error.message());
    QVERIFY2(actual.contains(message), qPrintable(actual));
    QVERIFY(!error.hint().empty());
  }
}

void ModelLoaderTest::ignoresBuffersAndUnknownTensors() {
  const tests::ModelFolder folder(demo());
  folder.setTensor("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {32},
                   std::vector<std::uint8_t>(128, 0xff));
  folder.setTensor("something.else", "I64", {1}, std::vector<std::uint8_t>(8));
  QCOMPARE(allValuesOf(*load(folder.path())), allValuesOf(*load(demo())));
}

void ModelLoaderTest::refusesIncompleteShards() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K-sharded"));
  const tests::ModelFolder folder(tests::modelPath("stories260K-sharded"));
  const auto messageOf = [&] {
    try {
      load(folder.path());
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("loaded");
  };
  const std::string second = "model-00002-of-00002.safetensors";
  folder.removeTensor("model.layers.3.mlp.up_proj.weight", second);
  QCOMPARE(messageOf(), second +
                            ": tensor 'model.layers.3.mlp.up_proj.weight' is missing, though "
                            "model.safetensors.index.json lists it there.");
  fs::remove(folder.path() / second);
  const std::string withIndex = messageOf();
  QVERIFY2(withIndex.find("lacks '" + second + "', which its model.safetensors.index.json lists") !=
               std::string::npos,
           withIndex.c_str());
  const fs::path index = folder.path() / "model.safetensors.index.json";
  std::ofstream(index) << R"({"weight_map": {"lm_head.weight": "../secret"}})";
  QVERIFY(messageOf().find("names '../secret', which is no file of the folder") !=
          std::string::npos);
  fs::remove(index);
  QVERIFY(messageOf().find("has 1 of the 2 files") != std::string::npos);
}

void ModelLoaderTest::refusesF32WeightsTooLargeForF16() {
  const tests::ModelFolder folder(demo());
  std::vector<float> values(512 * 192, 0.5F);
  values[77] = 70000.0F;
  std::vector<std::uint8_t> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  folder.setTensor(name, "F32", {512, 192}, bytes);
  try {
    load(folder.path(), WeightFormat::kF16);
    QFAIL("loaded");
  } catch (const Error& error) {
    QCOMPARE(error.code(), ErrorCode::kUnsupportedModel);
    QVERIFY2(error.message().find(name + "' holds 70000") != std::string::npos, error.what());
  }
  QCOMPARE(valuesOf(load(folder.path(), WeightFormat::kF32)->layers()[1].up), values);
}

void ModelLoaderTest::refusesNonFiniteWeights() {
  const tests::ModelFolder folder(demo());
  const std::string name = "model.layers.2.self_attn.k_proj.weight";
  auto bytes = folder.tensorBytes(name);
  bytes[0] = 0x00;
  bytes[1] = 0x7e;  // NaN
  folder.setTensor(name, "F16", {192, 192}, bytes);
  for (const WeightFormat format : {WeightFormat::kNf4, WeightFormat::kF32}) {
    try {
      load(folder.path(), format);
      QFAIL("loaded");
    } catch (const Error& error) {
      QCOMPARE(error.code(), ErrorCode::kFileDamaged);
      QVERIFY(error.message().find(name + "' holds values that are no finite numbers") !=
              std::string::npos);
    }
  }
}

void ModelLoaderTest::refusesWhatDoesNotFitMemory() {
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

void ModelLoaderTest::progressRunsFromZeroToAll() {
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  const auto model = loadModel(demo(), WeightFormat::kNf4, *backend_, *ledger_,
                               [&](std::uint64_t doneBytes, std::uint64_t totalBytes) {
                                 done.push_back(doneBytes);
                                 total = totalBytes;
                               },
                               {});
  QCOMPARE(done.front(), std::uint64_t{0});
  QCOMPARE(done.back(), total);
  QVERIFY(std::is_sorted(done.begin(), done.end()));
  QVERIFY(total > 4'000'000 && total < fs::file_size(demo() / "model.safetensors"));
}

void ModelLoaderTest::cancelLeavesNothingBehind() {
  std::stop_source stop;
  stop.request_stop();
  for (const WeightFormat format : {WeightFormat::kAuto, WeightFormat::kNf4, WeightFormat::kF32}) {
    try {
      loadModel(demo(), format, *backend_, *ledger_, {}, stop.get_token());
      QFAIL("loaded");
    } catch (const Error& error) {
      QCOMPARE(error.code(), ErrorCode::kCancelled);
    }
    QCOMPARE(ledger_->use().total(), std::uint64_t{0});
  }
}

void ModelLoaderTest::fingerprintTellsModelsApart() {
  const std::uint64_t plain = load(demo())->fingerprint();
  QCOMPARE(load(demo())->fingerprint(), plain);
  QVERIFY(load(demo(), WeightFormat::kNf4)->fingerprint() != plain);
  const tests::ModelFolder folder(demo());
  QCOMPARE(load(folder.path())->fingerprint(), plain);
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  auto bytes = folder.tensorBytes(name);
  bytes[0] ^= 1U;
  folder.setTensor(name, "F16", {512, 192}, bytes);
  QVERIFY(load(folder.path())->fingerprint() != plain);
}

void ModelLoaderTest::randomModelsAreReproducible() {
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

void ModelLoaderTest::randomModelsHaveTheSizesAndSpreadOfRealOnes_data() {
  QTest::addColumn<int>("format");
  QTest::newRow("f32") << static_cast<int>(WeightFormat::kF32);
  QTest::newRow("f16") << static_cast<int>(WeightFormat::kF16);
  QTest::newRow("bf16") << static_cast<int>(WeightFormat::kBF16);
  QTest::newRow("nf4") << static_cast<int>(WeightFormat::kNf4);
  QTest::newRow("nf4-nodq") << static_cast<int>(WeightFormat::kNf4NoDoubleQuantization);
}

void ModelLoaderTest::randomModelsHaveTheSizesAndSpreadOfRealOnes() {
  QFETCH(int, format);
  const auto real = load(demo(), static_cast<WeightFormat>(format));
  const auto random =
      makeRandomModel(real->config(), static_cast<WeightFormat>(format), 3, *backend_, *ledger_);
  QCOMPARE(random->weightBytes(), real->weightBytes());
  QVERIFY(random->weightFormat() == real->weightFormat());
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

/// Whatever stands in the header, loading gives a model or an Error; asan watches the rest.
void ModelLoaderTest::survivesMutationsOfAModel() {
  const fs::path original = fs::exists(tests::modelPath("stories260K-bnb-nf4"))
                                ? tests::modelPath("stories260K-bnb-nf4")
                                : demo();
  const tests::ModelFolder folder(original);
  const fs::path path = folder.path() / "model.safetensors";
  std::uint32_t state = 12345;
  const auto below = [&](std::uint64_t limit) {
    state = state * 1664525U + 1013904223U;
    return (state >> 8U) % limit;
  };
  std::uint64_t headerBytes = 0;
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&headerBytes), 8);
  int loaded = 0;
  for (int round = 0; round < 400; ++round) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    const auto at = static_cast<std::streamoff>(8 + below(headerBytes));
    file.seekg(at);
    const auto before = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>('0' + below(10)));
    file.close();
    try {
      allValuesOf(*load(folder.path()));
      ++loaded;
    } catch (const Error& error) {
      QVERIFY(error.code() == ErrorCode::kFileDamaged ||
              error.code() == ErrorCode::kUnsupportedModel);
    }
    std::fstream restore(path, std::ios::binary | std::ios::in | std::ios::out);
    restore.seekp(at);
    restore.put(before);
  }
  QVERIFY(loaded > 0 && loaded < 400);
}

}  // namespace longhand::engine

QTEST_GUILESS_MAIN(longhand::engine::ModelLoaderTest)
#include "model_loader_test.moc"
