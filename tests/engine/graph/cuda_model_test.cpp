// Whole models on the CUDA backend, which the emulation runs: loaded as a plug-in like the real
// one.
#include <QTest>

#include "engine/engine.h"
#include "tests/cuda_on_cpu/emulated_plugin.h"
#include "tests/engine/engine_harness.h"
#include "tests/engine/reference_prompts.h"

namespace longhand {

using namespace tests;  // NOLINT: a test file

class CudaModelTest : public QObject {
  Q_OBJECT

 private slots:
  void greedyTokensEqualTheReference_data();
  void greedyTokensEqualTheReference();
  void logitsEqualTheReference_data();
  void logitsEqualTheReference();
  void bundledModelAnswersOnEveryPreset_data();
  void bundledModelAnswersOnEveryPreset();
};

namespace {

/// Each thread of the emulation is a thread to ThreadSanitizer, which gets the short prompts.
#ifdef __SANITIZE_THREAD__
constexpr bool kHasTsan = true;
#else
constexpr bool kHasTsan = false;
#endif
constexpr std::size_t kLongestPrompt = kHasTsan ? 9 : 100;

constexpr const char* kSchedules[] = {"forward", "reverse", "random"};

std::filesystem::path folderOf(const QString& model) {
  return model == "longhand-demo" ? resourcePath("longhand-demo") : modelPath(model.toStdString());
}
std::filesystem::path referenceOf(const QString& model) {
  return model == "longhand-demo" ? dataPath("longhand-demo/longhand-demo.json")
                                  : referencePath("stories260K-fp32.json");
}

std::unique_ptr<engine::Engine> loadOnEmulation(const QString& model,
                                                const engine::KvCacheConfig& cache) {
  engine::EngineOptions options;
  options.backend = "cuda";
  options.cudaPlugin = LONGHAND_EMULATED_PLUGIN;
  return loadEngine(folderOf(model), cache, options);
}

void addPromptsInSchedules() {
  QTest::addColumn<QString>("model");
  QTest::addColumn<int>("index");
  QTest::addColumn<int>("schedule");
  for (const char* model : {"stories260K", "longhand-demo"}) {
    if (!std::filesystem::exists(referenceOf(model))) continue;
    const nlohmann::json prompts = readJson(referenceOf(model)).at("prompts");
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      // Each prompt takes seconds: the first runs in all schedules, the others in turn, and those
      // of more than 100 tokens of the larger model not at all.
      const bool isLarge = QLatin1String(model) == "longhand-demo";
      if ((isLarge || kHasTsan) && idsOf(prompts[i]).size() > kLongestPrompt) continue;
      const std::string name = prompts[i].at("name");
      for (int schedule = 0; schedule < 3; ++schedule) {
        if ((i > 0 || (isLarge && kHasTsan)) && schedule != static_cast<int>(i) % 3) continue;
        QTest::addRow("%s, %s, %s", model, name.c_str(), kSchedules[schedule])
            << model << static_cast<int>(i) << schedule;
      }
    }
  }
}

}  // namespace

void CudaModelTest::greedyTokensEqualTheReference_data() { addPromptsInSchedules(); }

void CudaModelTest::greedyTokensEqualTheReference() {
  QFETCH(QString, model);
  QFETCH(int, index);
  QFETCH(int, schedule);
  LONGHAND_SKIP_WITHOUT(folderOf(model));
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  plugin.kernelOptions().schedule = static_cast<cuda_on_cpu::Schedule>(schedule);
  const auto engine = loadOnEmulation(model, unroundedCache());
  QVERIFY(engine->backendDescription().find("CUDA") != std::string::npos);
  const nlohmann::json prompt =
      readJson(referenceOf(model)).at("prompts").at(static_cast<std::size_t>(index));
  compareGreedy(*engine, prompt, idsOf(prompt));
}

void CudaModelTest::logitsEqualTheReference_data() { addWeightFormats(); }

void CudaModelTest::logitsEqualTheReference() {
  QFETCH(QString, folder);
  QFETCH(int, format);
  QFETCH(QString, variant);
  LONGHAND_SKIP_WITHOUT(modelPath(folder.toStdString()));
  LONGHAND_SKIP_WITHOUT(referencePath("stories260K-weights.json"));
  const GoldenFile golden(referencePath("stories260K-weights.safetensors"));
  const nlohmann::json prompts = readJson(referencePath("stories260K-fp32.json")).at("prompts");
  engine::EngineOptions options;
  options.weights = static_cast<engine::WeightFormat>(format);
  options.backend = "cuda";
  options.cudaPlugin = LONGHAND_EMULATED_PLUGIN;
  const auto engine = loadEngine(modelPath(folder.toStdString()), unroundedCache(), options);
  for (const nlohmann::json& prompt : prompts) {
    const std::string name = prompt.at("name");
    if (idsOf(prompt).size() > kLongestPrompt) continue;
    const std::vector<double> expected =
        golden.at(variant.toStdString() + "." + name + ".logits_last").doubles();
    // One token at a time is all in floats, but for NF4's codebook (2^-12).
    const std::vector<float> steps = engine->logits(idsOf(prompt), false, true);
    LONGHAND_VERIFY_AT_MOST(maxDifference(steps, expected),
                            variant.startsWith("nf4") ? 0.01 : 1e-4);
    // A prefill rounds the inputs of its products to F16: by 2^-12 of their size on average, in
    // five layers of 7 products, of logits that are some 10 large.
    const std::vector<float> prefill = engine->logits(idsOf(prompt), false, false);
    LONGHAND_VERIFY_AT_MOST(maxDifference(prefill, expected), 0.03);
  }
}

void CudaModelTest::bundledModelAnswersOnEveryPreset_data() {
  QTest::addColumn<int>("nbits");
  for (const int nbits : {16, 8, 4}) {
    if (kHasTsan && nbits != 4) continue;
    QTest::addRow("%d bits", nbits) << nbits;
  }
}

void CudaModelTest::bundledModelAnswersOnEveryPreset() {
  QFETCH(int, nbits);
  engine::KvCacheConfig cache = f16Cache();
  cache.keyNbits = cache.valueNbits = nbits;
  cache.residualLength = 32;
  cache.groupSize = 32;
  const auto engine = loadOnEmulation("longhand-demo", cache);
  const nlohmann::json prompt = readJson(referenceOf("longhand-demo")).at("prompts").at(2);
  const engine::GenerateResult result = engine->generate(idsOf(prompt), greedy(64), {}, {});
  QCOMPARE(QString::fromStdString(result.text).trimmed(),
           QString::fromStdString(prompt.at("text")).trimmed());
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::CudaModelTest)
#include "cuda_model_test.moc"
