// config.json: what real models write is read, and every field that cannot be right is named.

#include "engine/model/model_config.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>

#include <QTemporaryDir>
#include <QTest>

#include "engine/base/error.h"
#include "tests/support/paths.h"

#include <nlohmann/json.hpp>

namespace longhand::engine {
namespace {

using Json = nlohmann::json;

/// What a Llama-2-7B folder says.
Json llama2() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "tie_word_embeddings": false, "torch_dtype": "float16", "use_cache": true,
    "vocab_size": 32000})");
}

ModelConfig parse(const Json& json) { return parseModelConfig(json.dump(), "config.json"); }

void write(const QTemporaryDir& folder, const char* name, const std::string& text) {
  std::ofstream(std::filesystem::path(folder.path().toStdString()) / name) << text;
}

}  // namespace

class ModelConfigTest : public QObject {
  Q_OBJECT

 private slots:
  void readsLlama2();
  void readsTheBundledModel();
  void takesEosFromGenerationConfig();
  void fillsInWhatOldConfigsLeaveOut();
  void headDimMayDifferFromHiddenSizeOverHeads();
  void readsRopeScaling_data();
  void readsRopeScaling();
  void readsAttentionFactors();
  void recognizesBitsAndBytes();
  void refusesWithTheFieldsName_data();
  void refusesWithTheFieldsName();
  void refusesDamagedFiles();
  void knowsShapes();
  void survivesMutations();
};

void ModelConfigTest::readsLlama2() {
  const ModelConfig config = parse(llama2());
  QCOMPARE(config.hiddenSize, 4096);
  QCOMPARE(config.intermediateSize, 11008);
  QCOMPARE(config.nLayers, 32);
  QCOMPARE(config.nHeads, 32);
  QCOMPARE(config.nKvHeads, 32);
  QCOMPARE(config.headDim, 128);
  QCOMPARE(config.vocabSize, 32000);
  QCOMPARE(config.trainedLength, 4096);
  QCOMPARE(config.rmsNormEpsilon, 1e-5F);
  QCOMPARE(config.tiedEmbeddings, false);
  QCOMPARE(config.bosToken, 1);
  QCOMPARE(config.eosTokens, std::vector<std::int32_t>{2});
  QCOMPARE(config.isBitsAndBytes4Bit, false);
  QVERIFY(config.rope.scaling == RopeScaling::kNone);
  QCOMPARE(config.rope.theta, 10000.0);
  QCOMPARE(config.rope.maxPositionEmbeddings, 4096);
}

void ModelConfigTest::readsTheBundledModel() {
  const ModelConfig config = readModelConfig(tests::resourcePath("longhand-demo"));
  QCOMPARE(config.name, std::string("longhand-demo"));
  QCOMPARE(config.hiddenSize, 192);
  QCOMPARE(config.nHeads, 3);
  QCOMPARE(config.headDim, 64);
  QCOMPARE(config.rope.theta, 100000.0);
  QCOMPARE(config.tiedEmbeddings, true);
  QCOMPARE(config.eosTokens, std::vector<std::int32_t>{2});
}

void ModelConfigTest::takesEosFromGenerationConfig() {
  const QTemporaryDir folder;
  const std::filesystem::path path = folder.path().toStdString();
  write(folder, "config.json", llama2().dump());
  QCOMPARE(readModelConfig(path).eosTokens, std::vector<std::int32_t>{2});
  write(folder, "generation_config.json", R"({"eos_token_id": [1, 2]})");
  QCOMPARE(readModelConfig(path).eosTokens, (std::vector<std::int32_t>{1, 2}));
  write(folder, "generation_config.json", R"({"eos_token_id": 7})");
  QCOMPARE(readModelConfig(path).eosTokens, std::vector<std::int32_t>{7});
  write(folder, "generation_config.json", R"({"eos_token_id": null})");
  QCOMPARE(readModelConfig(path).eosTokens, std::vector<std::int32_t>{2});
}

void ModelConfigTest::fillsInWhatOldConfigsLeaveOut() {
  Json json = llama2();
  for (const char* name :
       {"num_key_value_heads", "rope_scaling", "tie_word_embeddings", "eos_token_id",
        "bos_token_id", "rms_norm_eps", "max_position_embeddings"}) {
    json.erase(name);
  }
  const ModelConfig config = parse(json);
  QCOMPARE(config.nKvHeads, 32);
  QCOMPARE(config.tiedEmbeddings, false);
  QCOMPARE(config.eosTokens, std::vector<std::int32_t>{2});
  QCOMPARE(config.bosToken, 1);
  QCOMPARE(config.rmsNormEpsilon, 1e-6F);
  QCOMPARE(config.trainedLength, 2048);
}

void ModelConfigTest::headDimMayDifferFromHiddenSizeOverHeads() {
  Json json = llama2();
  json["head_dim"] = 64;
  QCOMPARE(parse(json).headDim, 64);
  json["head_dim"] = nullptr;
  QCOMPARE(parse(json).headDim, 128);
}

void ModelConfigTest::readsRopeScaling_data() {
  QTest::addColumn<QByteArray>("patch");
  QTest::addColumn<int>("scaling");
  QTest::addColumn<double>("factor");
  QTest::addColumn<int>("original");
  QTest::addColumn<double>("theta");
  const auto row = [](const char* name, const char* patch, RopeScaling scaling, double factor,
                      int original = 0, double theta = 10000.0) {
    QTest::newRow(name) << QByteArray(patch) << static_cast<int>(scaling) << factor << original
                        << theta;
  };
  row("linear, old spelling", R"({"rope_scaling": {"type": "linear", "factor": 2.5}})",
      RopeScaling::kLinear, 2.5);
  row("linear, new spelling", R"({"rope_scaling": {"rope_type": "linear", "factor": 4}})",
      RopeScaling::kLinear, 4.0);
  row("dynamic", R"({"rope_scaling": {"type": "dynamic", "factor": 4.0}})", RopeScaling::kDynamic,
      4.0);
  row("both spellings: rope_type wins",
      R"({"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 4.0}})",
      RopeScaling::kDynamic, 4.0);
  row("default", R"({"rope_scaling": {"rope_type": "default"}})", RopeScaling::kNone, 1.0);
  row("theta", R"({"rope_theta": 1e6})", RopeScaling::kNone, 1.0, 0, 1e6);
  row("YaRN as Llama-2-YaRN-128k writes it",
      R"({"max_position_embeddings": 131072, "rope_scaling": {"type": "yarn", "factor": 32.0,
          "original_max_position_embeddings": 4096, "finetuned": true}})",
      RopeScaling::kYarn, 32.0, 4096);
  row("YaRN: the lengths win over a rounded factor",
      R"({"max_position_embeddings": 65536, "rope_scaling": {"rope_type": "yarn", "factor": 15,
          "original_max_position_embeddings": 4096}})",
      RopeScaling::kYarn, 16.0, 4096);
  row("YaRN whose max_position_embeddings was not raised",
      R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
          "original_max_position_embeddings": 4096}})",
      RopeScaling::kYarn, 4.0, 4096);
  row("YaRN without original", R"({"max_position_embeddings": 131072,
          "rope_scaling": {"rope_type": "yarn", "factor": 32.0}})",
      RopeScaling::kYarn, 32.0);
  row("rope_parameters without scaling", R"({"rope_parameters": {"rope_theta": 5e5}})",
      RopeScaling::kNone, 1.0, 0, 5e5);
  row("rope_parameters with scaling",
      R"({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}})",
      RopeScaling::kLinear, 2.0, 0, 5e5);
}

void ModelConfigTest::readsRopeScaling() {
  QFETCH(QByteArray, patch);
  QFETCH(int, scaling);
  QFETCH(double, factor);
  QFETCH(int, original);
  QFETCH(double, theta);
  Json json = llama2();
  json.update(Json::parse(patch.toStdString()));
  const RopeConfig rope = parse(json).rope;
  QCOMPARE(static_cast<int>(rope.scaling), scaling);
  QCOMPARE(rope.factor, factor);
  QCOMPARE(rope.originalMaxPositionEmbeddings, original);
  QCOMPARE(rope.theta, theta);
  QCOMPARE(rope.betaFast, 32.0);
  QCOMPARE(rope.betaSlow, 1.0);
  QVERIFY(!rope.attentionFactor.has_value());
}

void ModelConfigTest::readsAttentionFactors() {
  Json json = llama2();
  json["rope_scaling"] = {{"rope_type", "yarn"},
                          {"factor", 4.0},
                          {"attention_factor", 1.5},
                          {"beta_fast", 16.0},
                          {"beta_slow", 2.0}};
  const RopeConfig rope = parse(json).rope;
  QCOMPARE(rope.attentionFactor.value(), 1.5);
  QCOMPARE(rope.betaFast, 16.0);
  QCOMPARE(rope.betaSlow, 2.0);
  json["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"mscale", 1.0}, {"mscale_all_dim", 1.0}};
  QCOMPARE(parse(json).rope.attentionFactor.value(), 1.0);
}

void ModelConfigTest::recognizesBitsAndBytes() {
  Json json = llama2();
  json["quantization_config"] = {
      {"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}};
  QCOMPARE(parse(json).isBitsAndBytes4Bit, true);
}

void ModelConfigTest::refusesWithTheFieldsName_data() {
  QTest::addColumn<QByteArray>("patch");
  QTest::addColumn<QString>("message");
  const auto row = [](const char* patch, const char* message) {
    QTest::newRow(patch) << QByteArray(patch) << QString::fromUtf8(message);
  };
  row(R"({"hidden_size": null})", "config.json: hidden_size is missing.");
  row(R"({"hidden_size": 0})", "hidden_size is 0; it must be between 1 and 1048576.");
  row(R"({"hidden_size": -4096})", "hidden_size is -4096;");
  row(R"({"hidden_size": 1e30})", "hidden_size must be a whole number.");
  row(R"({"hidden_size": "4096"})", "hidden_size must be a whole number.");
  row(R"({"hidden_size": 18446744073709551615})", "hidden_size is 18446744073709551615;");
  row(R"({"hidden_size": 4097})", "hidden_size is 4097, no multiple of num_attention_heads (32)");
  row(R"({"intermediate_size": 0})", "intermediate_size is 0;");
  row(R"({"num_hidden_layers": 100000})", "num_hidden_layers is 100000;");
  row(R"({"num_attention_heads": 0})", "num_attention_heads is 0;");
  row(R"({"num_key_value_heads": 5})",
      "num_key_value_heads is 5, which does not divide num_attention_heads (32).");
  row(R"({"vocab_size": -1})", "vocab_size is -1;");
  row(R"({"max_position_embeddings": 0})", "max_position_embeddings is 0;");
  row(R"({"rms_norm_eps": -1e-5})", "rms_norm_eps is -1e-05, which is out of range.");
  row(R"({"rms_norm_eps": "small"})", "rms_norm_eps must be a number.");
  row(R"({"rope_theta": 0})", "rope_theta is 0, which is out of range.");
  row(R"({"head_dim": 63})", "head_dim is 63; supported are even numbers up to 256.");
  row(R"({"head_dim": 512})", "head_dim is 512; supported are even numbers up to 256.");
  row(R"({"head_dim": 0})", "head_dim is 0;");
  row(R"({"tie_word_embeddings": 1})", "tie_word_embeddings must be true or false.");
  row(R"({"eos_token_id": 32000})", "eos_token_id is 32000; it must be between 0 and 31999.");
  row(R"({"eos_token_id": [2, "x"]})", "eos_token_id must be a whole number.");
  row(R"({"bos_token_id": -1})", "bos_token_id is -1;");
  row(R"({"model_type": "mistral"})", "model_type is 'mistral', not 'llama'.");
  row(R"({"model_type": null})", "model_type is missing.");
  row(R"({"hidden_act": "gelu"})", "hidden_act is 'gelu'; supported is silu.");
  row(R"({"attention_bias": true})", "attention_bias is true; biases are not supported.");
  row(R"({"mlp_bias": true})", "mlp_bias is true; biases are not supported.");
  row(R"({"rope_scaling": 4})", "rope_scaling must be an object.");
  row(R"({"rope_scaling": {"factor": 4}})", "rope_scaling.rope_type is missing.");
  row(R"({"rope_scaling": {"type": "linear"}})", "rope_scaling.factor is missing.");
  row(R"({"rope_scaling": {"type": "linear", "factor": 0}})", "rope_scaling.factor is 0, which");
  row(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})",
      "rope_scaling.rope_type is 'llama3'; supported are default, linear, dynamic and yarn.");
  row(R"({"rope_scaling": {"type": "longrope", "factor": 8}})", "rope_scaling.type is 'longrope';");
  row(R"({"rope_parameters": {"rope_type": "su"}})", "rope_parameters.rope_type is 'su';");
  row(R"({"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2}})",
      "rope_scaling.beta_fast is below beta_slow.");
  row(R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})",
      "quantization_config.quant_method is 'gptq';");
  row(R"({"quantization_config": {"load_in_4bit": true, "bnb_4bit_quant_type": "fp4"}})",
      "quantization_config.bnb_4bit_quant_type is 'fp4'; supported is nf4.");
  row(R"({"quantization_config": {"load_in_8bit": true}})",
      "quantization_config.load_in_8bit is true;");
}

void ModelConfigTest::refusesWithTheFieldsName() {
  QFETCH(QByteArray, patch);
  QFETCH(QString, message);
  Json json = llama2();
  json.update(Json::parse(patch.toStdString()));
  try {
    parse(json);
    QFAIL("accepted");
  } catch (const Error& error) {
    const QString actual = QString::fromStdString(error.message());
    QVERIFY2(actual.startsWith("config.json: ") && actual.contains(message), qPrintable(actual));
    QVERIFY(error.code() == ErrorCode::kFileDamaged ||
            error.code() == ErrorCode::kUnsupportedModel);
  }
}

void ModelConfigTest::refusesDamagedFiles() {
  const auto codeOf = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  const QTemporaryDir folder;
  const std::filesystem::path path = folder.path().toStdString();
  QCOMPARE(codeOf([&] { readModelConfig(path / "missing"); }), ErrorCode::kFileNotFound);
  QCOMPARE(codeOf([&] { readModelConfig(path); }), ErrorCode::kFileNotFound);
  write(folder, "config.json", "{\"hidden_size\": ");
  QCOMPARE(codeOf([&] { readModelConfig(path); }), ErrorCode::kFileDamaged);
  write(folder, "config.json", "[]");
  QCOMPARE(codeOf([&] { readModelConfig(path); }), ErrorCode::kFileDamaged);
  write(folder, "config.json", "");
  QCOMPARE(codeOf([&] { readModelConfig(path); }), ErrorCode::kFileDamaged);
  QCOMPARE(codeOf([&] { readModelConfig(path / "config.json"); }), ErrorCode::kFileUnreadable);
  write(folder, "config.json", llama2().dump());
  write(folder, "generation_config.json", "{");
  QCOMPARE(codeOf([&] { readModelConfig(path); }), ErrorCode::kFileDamaged);
}

void ModelConfigTest::knowsShapes() {
  const ModelConfig small = shapeConfig("tinyllama-1.1b");
  QCOMPARE(small.nKvHeads, 4);
  QCOMPARE(small.headDim, 64);
  QCOMPARE(shapeConfig("llama-2-13b").nLayers, 40);
  ModelConfig large = shapeConfig("llama-2-7b");
  QCOMPARE(large.headDim, 128);
  QCOMPARE(large.rope, parse(llama2()).rope);
  try {
    shapeConfig("llama-9");
    QFAIL("accepted");
  } catch (const Error& error) {
    QCOMPARE(error.code(), ErrorCode::kInvalidArgument);
    QVERIFY(error.hint().find("llama-2-7b, llama-2-13b, tinyllama-1.1b") != std::string::npos);
  }
}

/// Any text is either read into a config within the bounds, or refused with an Error.
void ModelConfigTest::survivesMutations() {
  Json json = llama2();
  json["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}};
  const std::string original = json.dump();
  std::mt19937 random(11);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = original;
    for (unsigned change = 0; change <= random() % 3; ++change) {
      const std::size_t at = random() % text.size();
      constexpr std::string_view kLikely = "0123456789-.e{}[]\",: ntf";
      if (random() % 3 == 0) {
        text.erase(at, 1 + random() % 4);
      } else if (random() % 2 == 0) {
        text[at] = kLikely[random() % kLikely.size()];
      } else {
        text[at] = static_cast<char>(random());
      }
    }
    try {
      const ModelConfig config = parseModelConfig(text, "config.json");
      QVERIFY(config.nHeads > 0 && config.nKvHeads > 0 && config.nHeads % config.nKvHeads == 0);
      QVERIFY(config.headDim > 0 && config.headDim <= 256 && config.headDim % 2 == 0);
      QVERIFY(config.rope.factor >= 1.0 && config.rope.theta >= 1.0);
      ++accepted;
    } catch (const Error& error) {
      QVERIFY(error.message().find('\n') == std::string::npos);
    }
  }
  QVERIFY(accepted > 100);
}

}  // namespace longhand::engine

QTEST_GUILESS_MAIN(longhand::engine::ModelConfigTest)
#include "model_config_test.moc"
