// How far each CPU path strays from the slow twin with the same weights and the same cache, on a
// text: not a test, excluded from ctest's presets by its label.
//   path_accuracy_bench --model resources/longhand-demo --file sample-document.txt
//     --weights nf4,int8,f16 --cache 16/16,4/4,2/2 --mode prefill,stepwise --paths avx2,avx512-vnni
// A line gives the perplexity, its change, the standard error of that change (from the changes of
// the single tokens: one of less than two standard errors may be chance), the error of logits as a
// part of their deviation (rms and largest), and the tokens whose best guess is another.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include <QCommandLineParser>
#include <QCoreApplication>

#include "engine/perplexity.h"
#include "tests/engine/engine_harness.h"

namespace longhand {
namespace {

using namespace tests;  // NOLINT: a test file

struct Options {
  std::filesystem::path model;
  std::filesystem::path file;
  QStringList weights;
  QStringList caches;
  QStringList modes;
  QStringList paths;
  std::int64_t window = 0;
  std::size_t firstToken = 0;
  std::size_t tokens = 0;
  engine::KvCacheConfig cache;
};

engine::WeightFormat formatNamed(const QString& name) {
  using engine::WeightFormat;
  static const QHash<QString, WeightFormat> kFormats = {{"f32", WeightFormat::kF32},
                                                        {"f16", WeightFormat::kF16},
                                                        {"bf16", WeightFormat::kBF16},
                                                        {"nf4", WeightFormat::kNf4},
                                                        {"int8", WeightFormat::kInt8}};
  return kFormats.value(name, WeightFormat::kNf4);
}

/// What a path makes of the text.
struct Reading {
  std::vector<double> nll;    // [tokens]
  std::vector<float> logits;  // [tokens, vocab]
};

Reading read(const Options& options, const QString& weights, const QString& cache, bool stepwise,
             const QString& path) {
  engine::EngineOptions load;
  load.weights = formatNamed(weights);
  load.cpuPath = path.toStdString();
  load.threads = 2;
  engine::KvCacheConfig config = options.cache;
  config.keyNbits = cache.section('/', 0, 0).toInt();
  config.valueNbits = cache.section('/', 1, 1).toInt();
  const auto engine = loadEngine(options.model, config, load);
  std::ifstream file(options.file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::int32_t> ids = engine->tokenizer().encode(text);
  ids.erase(ids.begin(),
            ids.begin() + static_cast<std::ptrdiff_t>(std::min(options.firstToken, ids.size())));
  ids.resize(std::min(ids.size(), options.tokens));
  const auto vocab = static_cast<std::size_t>(engine->modelConfig().vocabSize);
  Reading reading;
  for (std::size_t first = 0; first < ids.size();
       first += static_cast<std::size_t>(options.window)) {
    const std::size_t count =
        std::min(static_cast<std::size_t>(options.window), ids.size() - first);
    std::vector<std::int32_t> fed{engine->modelConfig().bosToken};
    fed.insert(fed.end(), ids.begin() + static_cast<std::ptrdiff_t>(first),
               ids.begin() + static_cast<std::ptrdiff_t>(first + count - 1));
    engine->forEachLogits(fed, stepwise,
                          [&](std::int64_t row, std::int64_t nRows, std::span<const float> logits) {
                            for (std::int64_t r = 0; r < nRows; ++r) {
                              reading.nll.push_back(engine::negativeLogLikelihood(
                                  logits.subspan(static_cast<std::size_t>(r) * vocab, vocab),
                                  ids[first + static_cast<std::size_t>(row + r)]));
                            }
                            reading.logits.insert(reading.logits.end(), logits.begin(),
                                                  logits.end());
                          },
                          {});
  }
  return reading;
}

double meanOf(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

void print(const QString& name, const Reading& slow, const Reading& fast) {
  const std::size_t nTokens = slow.nll.size();
  const std::size_t vocab = slow.logits.size() / nTokens;
  std::vector<double> changes(nTokens);
  for (std::size_t i = 0; i < nTokens; ++i) changes[i] = fast.nll[i] - slow.nll[i];
  const double mean = meanOf(changes);
  double squares = 0.0;
  for (const double change : changes) squares += (change - mean) * (change - mean);
  const double standardError = std::sqrt(squares) / static_cast<double>(nTokens);
  double sum = 0.0;
  double sumOfSquares = 0.0;
  double error = 0.0;
  double largest = 0.0;
  for (std::size_t i = 0; i < slow.logits.size(); ++i) {
    const auto expected = static_cast<double>(slow.logits[i]);
    const double difference = static_cast<double>(fast.logits[i]) - expected;
    sum += expected;
    sumOfSquares += expected * expected;
    error += difference * difference;
    largest = std::max(largest, std::abs(difference));
  }
  const auto count = static_cast<double>(slow.logits.size());
  const double deviation = std::sqrt(sumOfSquares / count - std::pow(sum / count, 2));
  std::int64_t nOthers = 0;
  for (std::size_t i = 0; i < nTokens; ++i) {
    const auto row = [&](const Reading& r) {
      return std::span(r.logits).subspan(i * vocab, vocab);
    };
    nOthers += argmax(row(slow)) != argmax(row(fast)) ? 1 : 0;
  }
  std::printf("%-44s %10.5f %+8.3f %% +-%6.3f   %8.5f %8.4f %6lld\n", qPrintable(name),
              std::exp(meanOf(fast.nll)), 100.0 * std::expm1(mean), 100.0 * standardError,
              std::sqrt(error / count) / deviation, largest / deviation,
              static_cast<long long>(nOthers));
  std::fflush(stdout);
}

Options parse(const QStringList& arguments) {
  QCommandLineParser parser;
  const auto add = [&](const char* name, const char* value) {
    parser.addOption(QCommandLineOption(name, {}, name, value));
  };
  add("model", "");
  add("file", "");
  add("weights", "nf4");
  add("cache", "16/16");
  add("mode", "prefill,stepwise");
  add("paths", "portable,avx2,avx-vnni,avx512,avx512-vnni,avx512-bf16");
  add("window", "256");
  add("first-token", "0");
  add("tokens", "1000");
  add("group-size", "64");
  add("residual-length", "256");
  add("sink-length", "4");
  add("sliding-window", "0");
  add("exact-type", "f16");
  parser.process(arguments);
  const auto list = [&](const char* name) { return parser.value(name).split(','); };
  Options options;
  options.model = parser.value("model").toStdString();
  options.file = parser.value("file").toStdString();
  options.weights = list("weights");
  options.caches = list("cache");
  options.modes = list("mode");
  options.paths = list("paths");
  options.window = parser.value("window").toLongLong();
  options.firstToken = parser.value("first-token").toULongLong();
  options.tokens = parser.value("tokens").toULongLong();
  options.cache.groupSize = parser.value("group-size").toInt();
  options.cache.residualLength = parser.value("residual-length").toLongLong();
  options.cache.sinkLength = parser.value("sink-length").toLongLong();
  options.cache.slidingWindow = parser.value("sliding-window").toLongLong();
  options.cache.exactType =
      parser.value("exact-type") == "f32" ? kernels::DataType::kF32 : kernels::DataType::kF16;
  return options;
}

void measure(const Options& options) {
  for (const QString& weights : options.weights) {
    for (const QString& cache : options.caches) {
      for (const QString& mode : options.modes) {
        const QString name = weights + ", " + cache + ", " + mode + ", ";
        const bool stepwise = mode == "stepwise";
        const Reading slow = read(options, weights, cache, stepwise, "reference");
        print(name + "slow twin", slow, slow);
        for (const QString& path : options.paths) {
          print(name + path, slow, read(options, weights, cache, stepwise, path));
        }
      }
    }
  }
}

}  // namespace
}  // namespace longhand

int main(int argc, char** argv) {
  const QCoreApplication app(argc, argv);
  try {
    longhand::measure(longhand::parse(QCoreApplication::arguments()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
