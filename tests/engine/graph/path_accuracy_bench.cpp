// How far each CPU path strays from the slow twin with the same weights and the same cache, on a
// text: not a test, excluded from ctest's presets by its label.
//   path_accuracy_bench --model resources/longhand-demo --file sample-document.txt
//     --weights nf4,int8,f16 --cache 16/16,4/4,2/2 --mode prefill,stepwise --paths avx2,avx512-vnni
// A line gives the perplexity, its change, the standard error of that change (from the changes of
// the single tokens: one of less than two standard errors may be chance), the error of logits as a
// part of their deviation (rms and largest), and the tokens whose best guess is another.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include <QCommandLineParser>
#include <QCoreApplication>

#include "tests/engine/engine_harness.h"
#include "tests/engine/graph/text_reading.h"

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
  std::optional<std::int64_t> longestFloatRow;
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

TextReading read(const Options& options, const QString& weights, const QString& cache,
                 bool stepwise, const QString& path) {
  engine::EngineOptions load;
  load.weights = formatNamed(weights);
  load.cpuPath = path.toStdString();
  load.threads = 2;
  load.longestFloatRow = options.longestFloatRow;
  engine::KvCacheConfig config = options.cache;
  config.keyNbits = cache.section('/', 0, 0).toInt();
  config.valueNbits = cache.section('/', 1, 1).toInt();
  const auto engine = loadEngine(options.model, config, load);
  std::ifstream file(options.file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::int32_t> all = engine->tokenizer().encode(text);
  const std::size_t first = std::min(options.firstToken, all.size());
  const auto ids = std::span(all).subspan(first, std::min(options.tokens, all.size() - first));
  return readText(*engine, ids, options.window, stepwise);
}

void print(const QString& name, const TextReading& slow, const TextReading& fast) {
  const ReadingDifference difference = differenceOf(slow, fast);
  std::printf("%-44s %10.5f %+8.3f %% +-%6.3f   %8.5f %8.4f %6lld\n", qPrintable(name),
              difference.perplexity, 100.0 * difference.change, 100.0 * difference.standardError,
              difference.rms, difference.largest, static_cast<long long>(difference.nOtherGuesses));
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
  add("longest-float-row", "");  // 0: integer products also in small models
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
  if (parser.isSet("longest-float-row")) {
    options.longestFloatRow = parser.value("longest-float-row").toLongLong();
  }
  return options;
}

void measure(const Options& options) {
  for (const QString& weights : options.weights) {
    for (const QString& cache : options.caches) {
      for (const QString& mode : options.modes) {
        const QString name = weights + ", " + cache + ", " + mode + ", ";
        const bool stepwise = mode == "stepwise";
        const TextReading slow = read(options, weights, cache, stepwise, "reference");
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
