// The graph against values that were computed independently in float64.
#include "engine/graph/llama.h"

#include <QTest>

#include "engine/engine.h"
#include "tests/engine/engine_harness.h"
#include "tests/engine/reference_prompts.h"

namespace longhand {

using namespace tests;  // NOLINT: a test file

class LlamaTest : public QObject {
  Q_OBJECT

 private slots:
  void logitsEqualTheReference_data();
  void logitsEqualTheReference();
  void hiddenStatesEqualTheReference_data();
  void hiddenStatesEqualTheReference();
  void greedyTokensEqualTheReference_data();
  void greedyTokensEqualTheReference();
  void everyWeightFormatEqualsItsReference_data();
  void everyWeightFormatEqualsItsReference();
  void shardedModelEqualsTheSingleFile();
  void longhandDemoEqualsTheReference_data();
  void longhandDemoEqualsTheReference();
  void wideHeadsEqualTheReference();
  void ropeOverridesEqualTheReference_data();
  void ropeOverridesEqualTheReference();
  void everyCpuPathAndTheSlowTwinAgree_data();
  void everyCpuPathAndTheSlowTwinAgree();

 private:
  static void addPrompts(const nlohmann::json& reference);
};

void LlamaTest::addPrompts(const nlohmann::json& reference) {
  QTest::addColumn<int>("index");
  const nlohmann::json& prompts = reference.at("prompts");
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    QTest::newRow(prompts[i].at("name").get<std::string>().c_str()) << static_cast<int>(i);
  }
}

namespace {

/// Needs a folder of third-party weights and reference values, which may both be missing.
#define LONGHAND_NEED_STORIES()                    \
  LONGHAND_SKIP_WITHOUT(modelPath("stories260K")); \
  LONGHAND_SKIP_WITHOUT(referencePath("stories260K-fp32.json"))

nlohmann::json storiesReference() {
  const std::filesystem::path path = referencePath("stories260K-fp32.json");
  if (!std::filesystem::exists(path)) return {{"prompts", nlohmann::json::array()}};
  return readJson(path);
}

}  // namespace

void LlamaTest::logitsEqualTheReference_data() { addPrompts(storiesReference()); }

void LlamaTest::logitsEqualTheReference() {
  LONGHAND_NEED_STORIES();
  QFETCH(int, index);
  const nlohmann::json prompt =
      storiesReference().at("prompts").at(static_cast<std::size_t>(index));
  const std::string name = prompt.at("name");
  const GoldenFile golden(referencePath("stories260K-fp32.safetensors"));
  const auto engine = loadEngine(modelPath("stories260K"), unroundedCache());

  for (const bool stepwise : {false, true}) {
    const std::vector<float> last = engine->logits(idsOf(prompt), false, stepwise);
    LONGHAND_VERIFY_AT_MOST(maxDifference(last, golden.at(name + ".logits_last").doubles()), 1e-4);
    if (!golden.contains(name + ".logits_all")) continue;
    const std::vector<float> all = engine->logits(idsOf(prompt), true, stepwise);
    LONGHAND_VERIFY_AT_MOST(maxDifference(all, golden.at(name + ".logits_all").doubles()), 1e-4);
  }
}

void LlamaTest::hiddenStatesEqualTheReference_data() { addPrompts(storiesReference()); }

void LlamaTest::hiddenStatesEqualTheReference() {
  LONGHAND_NEED_STORIES();
  QFETCH(int, index);
  const nlohmann::json prompt =
      storiesReference().at("prompts").at(static_cast<std::size_t>(index));
  const std::string name = prompt.at("name");
  const GoldenFile golden(referencePath("stories260K-fp32.safetensors"));
  const auto engine = loadEngine(modelPath("stories260K"), unroundedCache());
  const std::vector<float> hidden = engine->hiddenStates(idsOf(prompt));
  const auto width = static_cast<std::size_t>(engine->modelConfig().hiddenSize);
  const std::size_t nTokens = idsOf(prompt).size();
  QCOMPARE(hidden.size(), 6 * nTokens * width);

  for (std::size_t layer = 0; layer < 6; ++layer) {
    const std::span<const float> last =
        std::span(hidden).subspan((layer * nTokens + nTokens - 1) * width, width);
    double sum = 0.0;
    for (const float x : last) sum += static_cast<double>(x) * static_cast<double>(x);
    const double expected = prompt.at("hidden_norm_last").at(layer);
    LONGHAND_VERIFY_AT_MOST(std::abs(std::sqrt(sum) - expected), 1e-4 * expected);
  }
  if (golden.contains(name + ".hidden")) {
    const std::vector<double> expected = golden.at(name + ".hidden").doubles();
    double largest = 0.0;
    for (const double x : expected) largest = std::max(largest, std::abs(x));
    LONGHAND_VERIFY_AT_MOST(maxDifference(hidden, expected), 1e-4 * largest);
  }
}

void LlamaTest::greedyTokensEqualTheReference_data() { addPrompts(storiesReference()); }

void LlamaTest::greedyTokensEqualTheReference() {
  LONGHAND_NEED_STORIES();
  QFETCH(int, index);
  const nlohmann::json prompt =
      storiesReference().at("prompts").at(static_cast<std::size_t>(index));
  const auto engine = loadEngine(modelPath("stories260K"), unroundedCache());
  compareGreedy(*engine, prompt, idsOf(prompt));
}

void LlamaTest::everyWeightFormatEqualsItsReference_data() { addWeightFormats(); }

void LlamaTest::everyWeightFormatEqualsItsReference() {
  QFETCH(QString, folder);
  QFETCH(int, format);
  QFETCH(QString, variant);
  LONGHAND_SKIP_WITHOUT(modelPath(folder.toStdString()));
  LONGHAND_SKIP_WITHOUT(referencePath("stories260K-weights.json"));
  const GoldenFile golden(referencePath("stories260K-weights.safetensors"));
  const nlohmann::json prompts = readJson(referencePath("stories260K-weights.json"))
                                     .at("variants")
                                     .at(variant.toStdString())
                                     .at("prompts");
  const nlohmann::json ids = storiesReference().at("prompts");
  engine::EngineOptions options;
  options.weights = static_cast<engine::WeightFormat>(format);
  options.cpuPath = "portable";  // floats; fast_path_test has the budget of integers
  const auto engine = loadEngine(modelPath(folder.toStdString()), unroundedCache(), options);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string name = prompts[i].at("name");
    const std::vector<float> logits = engine->logits(idsOf(ids.at(i)), false, false);
    const std::string tensor = variant.toStdString() + "." + name + ".logits_last";
    LONGHAND_VERIFY_AT_MOST(maxDifference(logits, golden.at(tensor).doubles()), 1e-4);
    compareGreedy(*engine, prompts[i], idsOf(ids.at(i)));
  }
}

void LlamaTest::shardedModelEqualsTheSingleFile() {
  LONGHAND_SKIP_WITHOUT(modelPath("stories260K-sharded"));
  const std::vector<std::int32_t> ids{1, 403, 407, 261, 378};
  const auto whole = loadEngine(modelPath("stories260K"), unroundedCache());
  const auto sharded = loadEngine(modelPath("stories260K-sharded"), unroundedCache());
  QCOMPARE(sharded->logits(ids, true, false), whole->logits(ids, true, false));
}

void LlamaTest::longhandDemoEqualsTheReference_data() {
  addPrompts(readJson(dataPath("longhand-demo/longhand-demo.json")));
}

void LlamaTest::longhandDemoEqualsTheReference() {
  QFETCH(int, index);
  const nlohmann::json prompt = readJson(dataPath("longhand-demo/longhand-demo.json"))
                                    .at("prompts")
                                    .at(static_cast<std::size_t>(index));
  const std::string name = prompt.at("name");
  const GoldenFile golden(dataPath("longhand-demo/longhand-demo.safetensors"));
  const auto engine = loadEngine(resourcePath("longhand-demo"), unroundedCache());
  const std::vector<float> logits = engine->logits(idsOf(prompt), false, false);
  LONGHAND_VERIFY_AT_MOST(maxDifference(logits, golden.at(name + ".logits_last").doubles()), 1e-4);
  compareGreedy(*engine, prompt, idsOf(prompt));
}

void LlamaTest::wideHeadsEqualTheReference() {
  LONGHAND_SKIP_WITHOUT(modelPath("random-hd64"));
  LONGHAND_SKIP_WITHOUT(referencePath("random-hd64.json"));
  const nlohmann::json reference = readJson(referencePath("random-hd64.json"));
  const GoldenFile golden(referencePath("random-hd64.safetensors"));
  const auto engine = loadEngine(modelPath("random-hd64"), unroundedCache());
  const std::vector<float> logits = engine->logits(idsOf(reference), false, false);
  LONGHAND_VERIFY_AT_MOST(maxDifference(logits, golden.at("logits_last").doubles()), 1e-4);
}

void LlamaTest::ropeOverridesEqualTheReference_data() {
  QTest::addColumn<QString>("name");
  for (const char* name : {"linear", "dynamic", "yarn", "theta_1e6"}) {
    QTest::newRow(name) << name;
  }
}

void LlamaTest::ropeOverridesEqualTheReference() {
  QFETCH(QString, name);
  LONGHAND_SKIP_WITHOUT(modelPath("random-hd64"));
  LONGHAND_SKIP_WITHOUT(referencePath("random-hd64.json"));
  engine::RopeConfig rope;
  rope.maxPositionEmbeddings = 128;
  if (name == "linear") {
    rope.scaling = engine::RopeScaling::kLinear;
    rope.factor = 2.5;
  } else if (name == "dynamic") {
    rope.scaling = engine::RopeScaling::kDynamic;
    rope.factor = 4.0;
  } else if (name == "yarn") {
    rope.scaling = engine::RopeScaling::kYarn;
    rope.factor = 4.0;
    rope.maxPositionEmbeddings = 512;
    rope.originalMaxPositionEmbeddings = 128;
  } else {
    rope.theta = 1e6;
  }
  const GoldenFile golden(referencePath("random-hd64.safetensors"));
  const std::vector<double> expected =
      golden.at("rope_" + name.toStdString() + ".logits_last").doubles();
  const std::vector<std::int32_t> ids = idsOf(readJson(referencePath("random-hd64.json")));
  for (const std::int64_t chunkTokens : {0, 64}) {
    engine::EngineOptions options;
    options.rope = rope;
    options.chunkTokens = chunkTokens;
    const auto engine = loadEngine(modelPath("random-hd64"), unroundedCache(), options);
    LONGHAND_VERIFY_AT_MOST(maxDifference(engine->logits(ids, false, false), expected), 1e-4);
  }
}

void LlamaTest::everyCpuPathAndTheSlowTwinAgree_data() {
  QTest::addColumn<QString>("path");
  for (const char* path :
       {"reference", "portable", "avx2", "avx-vnni", "avx512", "avx512-vnni", "avx512-bf16"})
    QTest::newRow(path) << path;
}

void LlamaTest::everyCpuPathAndTheSlowTwinAgree() {
  QFETCH(QString, path);
  const nlohmann::json prompt =
      readJson(dataPath("longhand-demo/longhand-demo.json")).at("prompts").at(2);
  const GoldenFile golden(dataPath("longhand-demo/longhand-demo.safetensors"));
  engine::EngineOptions options;
  options.cpuPath = path.toStdString();
  options.threads = 2;
  const auto engine = loadEngine(resourcePath("longhand-demo"), unroundedCache(), options);
  const std::vector<float> logits = engine->logits(idsOf(prompt), false, false);
  LONGHAND_VERIFY_AT_MOST(maxDifference(logits, golden.at("fact.logits_last").doubles()), 1e-4);
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::LlamaTest)
#include "llama_test.moc"
