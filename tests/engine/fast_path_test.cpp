// The accuracy budget of the fast path: what the best kernels of this machine make of quantized
// weights (products of 8-bit integers where the CPU has them) against the slow twin, which takes
// the same weights and multiplies in double.
//
// Limits: a product of bytes is off by about 0.7 % of its size (int8_matvec.h), independently from
// layer to layer and one order below what NF4 itself does to a weight. So logits may differ by 5 %
// of their standard deviation, 25 % where they differ most, and the perplexity of a text that the
// model knows how to read by 0.2 %. (Of a text that it does not, which has perplexities of
// thousands, the noise of some hundred tokens alone is more.)

#include <cmath>
#include <random>

#include <QTest>

#include "engine/perplexity.h"
#include "tests/engine/engine_harness.h"

namespace longhand {

using namespace tests;  // NOLINT: a test file

class FastPathTest : public QObject {
  Q_OBJECT

 private slots:
  void logitsStayWithinTheBudget_data();
  void logitsStayWithinTheBudget();
  void perplexityStaysWithinTheBudget_data();
  void perplexityStaysWithinTheBudget();
};

namespace {

constexpr double kRmsLimit = 0.05;
constexpr double kMaxLimit = 0.25;
constexpr double kPerplexityLimit = 0.002;

std::filesystem::path folderOf(const QString& model) {
  return model == "longhand-demo" ? resourcePath("longhand-demo") : modelPath(model.toStdString());
}

std::unique_ptr<engine::Engine> loadOn(const char* path, const QString& model, int format) {
  engine::EngineOptions options;
  options.weights = static_cast<engine::WeightFormat>(format);
  options.cpuPath = path;
  options.threads = 2;
  return loadEngine(folderOf(model), unroundedCache(), options);
}

/// A text of the kind that the model was trained on; random tokens for random weights.
std::vector<std::int32_t> textOf(const engine::Engine& engine, const QString& model,
                                 std::size_t limit) {
  std::vector<std::int32_t> ids;
  if (model == "longhand-demo") {
    ids = readJson(dataPath("longhand-demo/longhand-demo.json"))
              .at("document")
              .at("ids")
              .get<std::vector<std::int32_t>>();
    ids.erase(ids.begin());  // BOS
  } else if (model == "stories260K") {
    std::ifstream file(dataPath("texts/story.txt"));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    ids = engine.tokenizer().encode(text);
  } else {
    std::mt19937 random(1);
    const auto vocabSize = static_cast<std::uint32_t>(engine.modelConfig().vocabSize);
    while (ids.size() < limit) ids.push_back(static_cast<std::int32_t>(random() % vocabSize));
  }
  ids.resize(std::min(ids.size(), limit));
  return ids;
}

void addModels(std::initializer_list<const char*> models) {
  QTest::addColumn<QString>("model");
  QTest::addColumn<int>("format");
  for (const char* model : models) {
    QTest::addRow("%s, NF4", model) << model << static_cast<int>(engine::WeightFormat::kNf4);
    QTest::addRow("%s, int8", model) << model << static_cast<int>(engine::WeightFormat::kInt8);
  }
}

}  // namespace

void FastPathTest::logitsStayWithinTheBudget_data() {
  addModels({"stories260K", "longhand-demo", "random-hd64"});
}

void FastPathTest::logitsStayWithinTheBudget() {
  QFETCH(QString, model);
  QFETCH(int, format);
  LONGHAND_SKIP_WITHOUT(folderOf(model));
  const auto slow = loadOn("reference", model, format);
  const auto fast = loadOn("auto", model, format);
  const std::vector<std::int32_t> ids = textOf(*slow, model, 64);
  const std::vector<float> expected = slow->logits(ids, true, false);
  double sum = 0.0;
  double sumOfSquares = 0.0;
  for (const float logit : expected) {
    sum += static_cast<double>(logit);
    sumOfSquares += static_cast<double>(logit) * static_cast<double>(logit);
  }
  const auto count = static_cast<double>(expected.size());
  const double deviation = std::sqrt(sumOfSquares / count - std::pow(sum / count, 2));

  for (const bool stepwise : {false, true}) {  // the kernels for many tokens, and for one
    const std::vector<float> actual = fast->logits(ids, true, stepwise);
    QCOMPARE(actual.size(), expected.size());
    double largest = 0.0;
    double squares = 0.0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const double error = static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
      if (!(std::abs(error) <= largest)) largest = std::abs(error);  // a NaN shows
      squares += error * error;
    }
    qInfo("%s: error of logits: %.5f (rms), %.5f (largest) of their deviation %.3f",
          stepwise ? "stepwise" : "prefill", std::sqrt(squares / count) / deviation,
          largest / deviation, deviation);
    LONGHAND_VERIFY_AT_MOST(std::sqrt(squares / count), kRmsLimit * deviation);
    LONGHAND_VERIFY_AT_MOST(largest, kMaxLimit * deviation);
  }
}

void FastPathTest::perplexityStaysWithinTheBudget_data() {
  addModels({"stories260K", "longhand-demo"});
}

void FastPathTest::perplexityStaysWithinTheBudget() {
  QFETCH(QString, model);
  QFETCH(int, format);
  LONGHAND_SKIP_WITHOUT(folderOf(model));
  const auto slow = loadOn("reference", model, format);
  const auto fast = loadOn("auto", model, format);
  const std::vector<std::int32_t> ids = textOf(*slow, model, 1000);
  constexpr std::int64_t kWindow = 256;
  const double expected = engine::perplexity(*slow, ids, kWindow, false, {}, {}).perplexity;
  for (const bool stepwise : {false, true}) {
    const double actual = engine::perplexity(*fast, ids, kWindow, stepwise, {}, {}).perplexity;
    qInfo("%s: perplexity %.5f, slow twin %.5f: %+.4f %%", stepwise ? "stepwise" : "prefill",
          actual, expected, 100.0 * (actual / expected - 1.0));
    LONGHAND_VERIFY_AT_MOST(std::abs(actual / expected - 1.0), kPerplexityLimit);
  }
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::FastPathTest)
#include "fast_path_test.moc"
