#include "engine/perplexity.h"

#include <QTest>

#include "engine/log_likelihood.h"
#include "tests/engine/engine_harness.h"

namespace longhand {

using namespace tests;  // NOLINT: a test file

class PerplexityTest : public QObject {
  Q_OBJECT

 private slots:
  void storyEqualsTheReference_data();
  void storyEqualsTheReference();
  void everyTokenEqualsTheReference();
  void sampleDocumentEqualsTheReference();
  void reportsProgressAndStops();
  void refusesWhatDoesNotFit();
  void negativeLogLikelihoodIsThatOfTheSoftmax();
};

namespace {

/// The sample document's ids behind BOS, as one window.
std::vector<std::int32_t> documentIds() {
  auto ids = readJson(dataPath("longhand-demo/longhand-demo.json"))
                 .at("document")
                 .at("ids")
                 .get<std::vector<std::int32_t>>();
  ids.erase(ids.begin());
  return ids;
}

}  // namespace

void PerplexityTest::storyEqualsTheReference_data() {
  QTest::addColumn<bool>("stepwise");
  QTest::newRow("prefill") << false;
  QTest::newRow("stepwise") << true;
}

void PerplexityTest::storyEqualsTheReference() {
  QFETCH(bool, stepwise);
  LONGHAND_SKIP_WITHOUT(modelPath("stories260K"));
  LONGHAND_SKIP_WITHOUT(referencePath("stories260K-fp32.json"));
  const nlohmann::json story = readJson(referencePath("stories260K-fp32.json")).at("story");
  const auto engine = loadEngine(modelPath("stories260K"), unroundedCache());
  const engine::PerplexityResult result =
      engine::perplexity(*engine, story.at("ids").get<std::vector<std::int32_t>>(),
                         story.at("window"), stepwise, {}, {});
  QCOMPARE(result.tokens, story.at("n_tokens").get<std::int64_t>());
  const double expected = story.at("ppl");
  LONGHAND_VERIFY_AT_MOST(std::abs(result.perplexity - expected), 1e-5 * expected);
  const double nllSum = story.at("nll_sum");
  LONGHAND_VERIFY_AT_MOST(std::abs(result.nllSum - nllSum), 1e-5 * nllSum);
}

void PerplexityTest::everyTokenEqualsTheReference() {
  const GoldenFile golden(dataPath("longhand-demo/longhand-demo.safetensors"));
  const std::vector<double> expected = golden.at("document.nll").doubles();
  std::vector<std::int32_t> fed = documentIds();
  const std::vector<std::int32_t> predicted = fed;
  fed.insert(fed.begin(), 1);
  fed.pop_back();
  QCOMPARE(expected.size(), predicted.size());
  const auto engine = loadEngine(resourcePath("longhand-demo"), unroundedCache());
  const auto vocab = static_cast<std::size_t>(engine->modelConfig().vocabSize);
  double worst = 0.0;
  engine->forEachLogits(fed, false,
                        [&](std::int64_t first, std::int64_t nRows, std::span<const float> logits) {
                          for (std::size_t r = 0; r < static_cast<std::size_t>(nRows); ++r) {
                            const std::size_t i = static_cast<std::size_t>(first) + r;
                            const double nll = engine::negativeLogLikelihood(
                                logits.subspan(r * vocab, vocab), predicted[i]);
                            worst = std::max(worst, std::abs(nll - expected[i]));
                          }
                        },
                        {});
  LONGHAND_VERIFY_AT_MOST(worst, 1e-4);
}

void PerplexityTest::sampleDocumentEqualsTheReference() {
  const nlohmann::json document =
      readJson(dataPath("longhand-demo/longhand-demo.json")).at("document");
  const auto engine = loadEngine(resourcePath("longhand-demo"), f16Cache());
  const engine::PerplexityResult result =
      engine::perplexity(*engine, documentIds(), 0, true, {}, {});
  const double expected = document.at("ppl_f16_kv");
  LONGHAND_VERIFY_AT_MOST(std::abs(result.perplexity - expected), 1e-4 * expected);
}

void PerplexityTest::reportsProgressAndStops() {
  const auto engine = loadEngine(resourcePath("longhand-demo"), f16Cache());
  const std::vector<std::int32_t> ids = documentIds();
  std::int64_t last = 0;
  std::stop_source source;
  const auto progress = [&](std::int64_t done, std::int64_t total) {
    QCOMPARE(total, static_cast<std::int64_t>(ids.size()));
    QVERIFY(done > last);
    last = done;
    if (done >= 300) source.request_stop();
  };
  try {
    engine::perplexity(*engine, ids, 100, false, progress, source.get_token());
    QFAIL("was not stopped");
  } catch (const engine::Error& error) {
    QVERIFY(error.code() == engine::ErrorCode::kCancelled);
  }
  QCOMPARE(last, 300);
}

void PerplexityTest::refusesWhatDoesNotFit() {
  engine::EngineOptions options;
  options.contextLength = 64;
  const auto engine = loadEngine(resourcePath("longhand-demo"), f16Cache(), options);
  const std::vector<std::int32_t> ids(100, 5);
  QVERIFY_EXCEPTION_THROWN(engine::perplexity(*engine, ids, 65, false, {}, {}), engine::Error);
  QVERIFY_EXCEPTION_THROWN(engine::perplexity(*engine, ids, -1, false, {}, {}), engine::Error);
  QVERIFY_EXCEPTION_THROWN(engine::perplexity(*engine, {}, 0, false, {}, {}), engine::Error);
  QCOMPARE(engine::perplexity(*engine, ids, 64, false, {}, {}).tokens, 100);
  QCOMPARE(engine::perplexity(*engine, ids, 64, false, {}, {}).window, 64);
  QCOMPARE(engine::perplexity(*engine, ids, 0, false, {}, {}).window, 63);
}

void PerplexityTest::negativeLogLikelihoodIsThatOfTheSoftmax() {
  const std::vector<float> equal(8, 3.0F);
  LONGHAND_VERIFY_AT_MOST(std::abs(engine::negativeLogLikelihood(equal, 5) - std::log(8.0)), 1e-12);
  const std::vector<float> huge{1000.0F, 0.0F};
  QCOMPARE(engine::negativeLogLikelihood(huge, 0), 0.0);
  QCOMPARE(engine::negativeLogLikelihood(huge, 1), 1000.0);
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::PerplexityTest)
#include "perplexity_test.moc"
