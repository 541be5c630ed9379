#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iomanip>
#include <iostream>
#include <random>

#include "engine/cli/commands.h"
#include "engine/cli/engine_setup.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"
#include "engine/error.h"
#include "engine/session.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

struct BenchOptions {
  ModelOptions model;
  CacheOptions cache;
  std::string shape;
  std::vector<std::int64_t> depths = {0};
  std::vector<std::string> caches;
  std::int64_t prefillTokens = 128;
  std::int64_t decodeTokens = 32;
  bool isJson = false;
};

struct BenchRow {
  std::int64_t depth = 0;
  KvCacheConfig cache;
  double prefillTokensPerSecond = 0.0;
  double decodeTokensPerSecond = 0.0;
  MemoryUse use;
};

/// "8/4": bits of keys and values, everything else as `base`.
KvCacheConfig parseCache(const std::string& text, KvCacheConfig base) {
  const char* const end = text.data() + text.size();
  const auto [slash, keyError] = std::from_chars(text.data(), end, base.keyNbits);
  std::from_chars_result value{slash, std::errc::invalid_argument};
  if (keyError == std::errc() && slash != end && *slash == '/') {
    value = std::from_chars(slash + 1, end, base.valueNbits);
  }
  if (value.ec != std::errc() || value.ptr != end) {
    throw Error(ErrorCode::kInvalidArgument, "\"" + text + "\" is no cache setting.",
                "Write bits of keys / bits of values, like 4/2.");
  }
  base.firstLayers = 0;
  base.validate();
  return base;
}

/// The same tokens for every run; none of them special.
std::vector<std::int32_t> randomTokens(std::int64_t count, std::int64_t vocabSize) {
  constexpr std::int64_t kFirstOrdinary = 3;  // after <unk>, <s>, </s>
  std::mt19937 random(1);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  const auto nOrdinary =
      static_cast<std::uint32_t>(std::max<std::int64_t>(1, vocabSize - kFirstOrdinary));
  const auto first = static_cast<std::int32_t>(std::min(kFirstOrdinary, vocabSize - 1));
  for (std::int32_t& token : tokens)
    token = first + static_cast<std::int32_t>(random() % nOrdinary);
  return tokens;
}

class Bench {
 public:
  Bench(const BenchOptions& options, Interrupt& interrupt) : options_(options), scope_(interrupt) {
    const std::int64_t maxDepth = *std::max_element(options.depths.begin(), options.depths.end());
    ModelOptions model = options.model;
    model.contextLength = std::max(
        model.contextLength, maxDepth + std::max(options.prefillTokens, options.decodeTokens) + 1);
    engine_ = load(model);
    tokens_ = randomTokens(maxDepth + options.prefillTokens, engine_->modelConfig().vocabSize);
    measure(std::min<std::int64_t>(8, options.prefillTokens), 2);  // wakes threads and memory
  }

  const Engine& engine() const { return *engine_; }

  void setCache(const KvCacheConfig& config) {
    engine_->configureCache(config, engine_->contextLength());
  }

  /// Depths must come in rising order, so that each builds on the one before.
  BenchRow row(std::int64_t depth) {
    BenchRow row;
    row.depth = depth;
    row.cache = engine_->cacheConfig();
    const std::int64_t before = std::max<std::int64_t>(depth, 1);  // there is no decode without
    row.decodeTokensPerSecond = measure(before, options_.decodeTokens).decodeTokensPerSecond;
    if (depth == 0) engine_->clear();
    row.prefillTokensPerSecond = measure(depth + options_.prefillTokens, 1).prefillTokensPerSecond;
    row.use = engine_->memory().use;
    return row;
  }

 private:
  std::unique_ptr<Engine> load(const ModelOptions& model) const {
    if (options_.shape.empty()) return loadEngine(model, options_.cache, scope_.stop());
    const ModelConfig config = shapeConfig(options_.shape);
    return Engine::loadRandom(config, engineOptions(model, options_.cache, config), 1,
                              scope_.stop());
  }

  /// A prompt of `nPrompt` tokens, then `nGenerated` tokens.
  GenerateResult measure(std::int64_t nPrompt, std::int64_t nGenerated) {
    GenerateOptions options;
    options.sampler.temperature = 0.0;
    options.maxTokens = nGenerated;
    options.ignoresEndOfText = true;
    GenerateObserver observer;
    observer.prefill = showPrefillProgress;
    GenerateResult result =
        engine_->generate(std::span(tokens_).first(static_cast<std::size_t>(nPrompt)), options,
                          observer, scope_.stop());
    if (result.stopReason == StopReason::kCancelled) {
      throw Error(ErrorCode::kCancelled, "Stopped before all was measured.");
    }
    return result;
  }

  const BenchOptions& options_;
  InterruptScope scope_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::int32_t> tokens_;
};

nlohmann::json rowJson(const BenchRow& row) {
  return {{"depth", row.depth},
          {"key_bits", row.cache.keyNbits},
          {"value_bits", row.cache.valueNbits},
          {"group_size", row.cache.groupSize},
          {"residual_length", row.cache.residualLength},
          {"prefill_tokens_per_second", row.prefillTokensPerSecond},
          {"decode_tokens_per_second", row.decodeTokensPerSecond},
          {"bytes", memoryJson(row.use)}};
}

void printHeader() {
  std::cout
      << "    depth  keys values   prefill tokens/s    decode tokens/s  KV cache GiB  all GiB\n";
}

void printRow(const BenchRow& row) {
  const std::uint64_t cacheBytes = row.use[MemoryCategory::kKvCodes] +
                                   row.use[MemoryCategory::kKvScales] +
                                   row.use[MemoryCategory::kKvExact];
  std::cout << std::setw(9) << row.depth << std::setw(6) << row.cache.keyNbits << std::setw(7)
            << row.cache.valueNbits << std::fixed << std::setprecision(2) << std::setw(19)
            << row.prefillTokensPerSecond << std::setw(19) << row.decodeTokensPerSecond
            << std::setw(14) << formatGiB(cacheBytes) << std::setw(9) << formatGiB(row.use.total())
            << std::endl;
}

int bench(BenchOptions options, Interrupt& interrupt) {
  if (!options.shape.empty() && !options.model.model.empty()) {
    throw UsageError("give either --shape or --model");
  }
  std::sort(options.depths.begin(), options.depths.end());
  options.depths.erase(std::unique(options.depths.begin(), options.depths.end()),
                       options.depths.end());
  const KvCacheConfig base = options.cache.config(options.model.weightFormat());
  std::vector<KvCacheConfig> configs;
  for (const std::string& text : options.caches) configs.push_back(parseCache(text, base));
  if (configs.empty()) configs.push_back(base);

  Bench bench(options, interrupt);
  nlohmann::json rows = nlohmann::json::array();
  if (!options.isJson) {
    std::cout << bench.engine().modelConfig().name << ", weights "
              << weightFormatName(bench.engine().weightFormat()) << ", "
              << bench.engine().backendDescription() << '\n';
    if (const std::string& why = bench.engine().whyNotDevice(); !why.empty()) {
      std::cout << "No graphics card is used: " << why << '\n';
    }
    printHeader();
  }
  for (const KvCacheConfig& config : configs) {
    bench.setCache(config);
    for (const std::int64_t depth : options.depths) {
      const BenchRow row = bench.row(depth);
      rows.push_back(rowJson(row));
      if (!options.isJson) printRow(row);
    }
  }
  if (options.isJson) {
    printJson({{"model", bench.engine().modelConfig().name},
               {"weights", weightFormatName(bench.engine().weightFormat())},
               {"backend", bench.engine().backendDescription()},
               {"why_not_device", bench.engine().whyNotDevice()},
               {"prefill_tokens", options.prefillTokens},
               {"decode_tokens", options.decodeTokens},
               {"rows", rows}});
  }
  return kSuccess;
}

}  // namespace

Command addBenchCommand(CLI::App& program) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* parser = program.add_subcommand(
      "bench", "Measures prefill and decode behind a given number of tokens in the cache");
  parser->add_option("--shape", options->shape, "Random weights in the shape of a known model")
      ->check(CLI::IsMember({"llama-2-7b", "llama-2-13b", "tinyllama-1.1b"}));
  parser->add_option("--depth", options->depths, "Tokens in the cache before measuring: 0,1024")
      ->delimiter(',')
      ->check(wholeNumber(0, kMaxContextLength))
      ->type_name("LIST");
  parser
      ->add_option("--cache", options->caches,
                   "Several settings, bits of keys / values: 16/16,4/4,4/2")
      ->delimiter(',')
      ->type_name("LIST");
  parser->add_option("--prefill-tokens", options->prefillTokens, "Tokens to prefill at each depth")
      ->check(wholeNumber(1, kMaxContextLength))
      ->capture_default_str();
  parser->add_option("--decode-tokens", options->decodeTokens, "Tokens to decode at each depth")
      ->check(wholeNumber(2, 1000000))
      ->capture_default_str();
  parser->add_flag("--json", options->isJson,
                   "Print JSON: rows with depth, key_bits, value_bits, prefill_tokens_per_second, "
                   "decode_tokens_per_second, bytes");
  options->model.addTo(*parser);
  options->cache.addTo(*parser);
  return {parser, [options](Interrupt& interrupt) { return bench(*options, interrupt); }};
}

}  // namespace longhand::engine::cli
