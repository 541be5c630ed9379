// Loading models: every way a folder may hold its weights gives the same numbers.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <QTest>

#include "engine/model/model.h"
#include "engine/model/weight_format.h"
#include "kernels/half.h"
#include "kernels/int8_weights.h"
#include "kernels/reference/reference_backend.h"
#include "tests/engine/device_like_backend.h"
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
  void int8EqualsTheKernelOnTheWholeMatrix();
  void onlyALargeHeadBecomesInt8();
  void tablesStayAt16Bits();
  void untiedHeadIsReadTiedHeadIsTheEmbedding();
  void uploadsToDevices();
  void ignoresBuffersAndUnknownTensors();
  void progressRunsFromZeroToAll();
  void fingerprintTellsModelsApart();

 private:
  std::unique_ptr<Model> load(const fs::path& folder, WeightFormat format = WeightFormat::kAuto) {
    return loadModel(folder, format, *backend_, *ledger_, {}, {});
  }

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

void ModelLoaderTest::int8EqualsTheKernelOnTheWholeMatrix() {
  const auto source = load(demo());
  const auto int8 = load(demo(), WeightFormat::kInt8);
  QVERIFY(int8->weightFormat() == WeightFormat::kInt8);
  QVERIFY(int8->embedding().type == DataType::kF16);
  for (std::size_t layer = 0; layer < int8->layers().size(); ++layer) {
    const std::vector<float> values = valuesOf(source->layers()[layer].down);
    std::vector<std::int8_t> codes(values.size());
    std::vector<float> scales((values.size() + 63) / 64);
    kernels::quantizeInt8(values, codes, scales);
    const WeightView& view = int8->layers()[layer].down;
    QVERIFY(std::memcmp(view.data, codes.data(), codes.size()) == 0);
    QVERIFY(std::memcmp(view.scales, scales.data(), scales.size() * sizeof(float)) == 0);
  }
}

void ModelLoaderTest::onlyALargeHeadBecomesInt8() {
  WeightSpec head;
  head.role = WeightRole::kHead;
  head.rows = 32000;
  head.cols = 4096;
  const WeightTarget f16{DataType::kF16};
  for (const WeightFormat format : {WeightFormat::kNf4, WeightFormat::kInt8}) {
    QVERIFY(chooseTarget(format, head, f16).type == DataType::kInt8);
  }
  QVERIFY(chooseTarget(WeightFormat::kF16, head, f16).type == DataType::kF16);
  QVERIFY(chooseTarget(WeightFormat::kAuto, head, f16).type == DataType::kF16);
  QVERIFY(formatOfSpec(WeightFormat::kAuto, head, true) == WeightFormat::kNf4);
  QVERIFY(formatOfSpec(WeightFormat::kAuto, head, false) == WeightFormat::kAuto);
  head.cols = 192;
  QVERIFY(chooseTarget(WeightFormat::kNf4, head, f16).type == DataType::kF16);
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

void ModelLoaderTest::ignoresBuffersAndUnknownTensors() {
  const tests::ModelFolder folder(demo());
  folder.setTensor("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {32},
                   std::vector<std::uint8_t>(128, 0xff));
  folder.setTensor("something.else", "I64", {1}, std::vector<std::uint8_t>(8));
  QCOMPARE(allValuesOf(*load(folder.path())), allValuesOf(*load(demo())));
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

}  // namespace longhand::engine

QTEST_GUILESS_MAIN(longhand::engine::ModelLoaderTest)
#include "model_loader_test.moc"
