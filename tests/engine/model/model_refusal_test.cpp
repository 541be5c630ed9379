// Model folders that must be refused, with file, tensor and reason; and loads that are cancelled.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include <QTest>

#include "engine/base/error.h"
#include "engine/model/model.h"
#include "kernels/reference/reference_backend.h"
#include "tests/engine/device_like_backend.h"
#include "tests/engine/model_values.h"
#include "tests/support/model_folder.h"
#include "tests/support/paths.h"

namespace longhand::engine {
namespace {

namespace fs = std::filesystem;

fs::path demo() { return tests::resourcePath("longhand-demo"); }

}  // namespace

class ModelRefusalTest : public QObject {
  Q_OBJECT

 private slots:
  void init();
  void cleanup();

  void reportsDeviceFaults();
  void refusesWithFileTensorAndReason_data();
  void refusesWithFileTensorAndReason();
  void refusesIncompleteShards();
  void refusesF32WeightsTooLargeForF16();
  void refusesNonFiniteWeights();
  void cancelLeavesNothingBehind();
  void survivesMutationsOfAModel();

 private:
  std::unique_ptr<Model> load(const fs::path& folder, WeightFormat format = WeightFormat::kAuto) {
    return loadModel(folder, format, *backend_, *ledger_, {}, {});
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<MemoryLedger> ledger_;
};

void ModelRefusalTest::init() {
  backend_ = kernels::createReferenceBackend();
  ledger_ = std::make_unique<MemoryLedger>();
}

/// Whatever a test loads, or fails to load, nothing of it stays behind.
void ModelRefusalTest::cleanup() { QCOMPARE(ledger_->use().total(), std::uint64_t{0}); }

void ModelRefusalTest::reportsDeviceFaults() {
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

void ModelRefusalTest::refusesWithFileTensorAndReason_data() {
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

void ModelRefusalTest::refusesWithFileTensorAndReason() {
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

void ModelRefusalTest::refusesIncompleteShards() {
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

void ModelRefusalTest::refusesF32WeightsTooLargeForF16() {
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

void ModelRefusalTest::refusesNonFiniteWeights() {
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

void ModelRefusalTest::cancelLeavesNothingBehind() {
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

/// Whatever stands in the header, loading gives a model or an Error; asan watches the rest.
void ModelRefusalTest::survivesMutationsOfAModel() {
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

QTEST_GUILESS_MAIN(longhand::engine::ModelRefusalTest)
#include "model_refusal_test.moc"
