#include <unistd.h>

#include <chrono>
#include <functional>
#include <iomanip>
#include <iostream>

#include "engine/cache/cache_json.h"
#include "engine/cli/commands.h"
#include "engine/cli/engine_setup.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"
#include "engine/perplexity.h"
#include "engine/session/session.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  CacheOptions cache;
  std::string file;
  std::string mode = "prefill";
  std::int64_t window = 0;
  bool isJson = false;
};

/// On stderr when it is a terminal, ten times a second at most.
std::function<void(std::int64_t, std::int64_t)> progressLine() {
  if (!isTerminal(STDERR_FILENO)) return {};
  using Clock = std::chrono::steady_clock;
  return [next = Clock::now()](std::int64_t done, std::int64_t total) mutable {
    if (done >= total) std::cerr << "\r\x1B[K" << std::flush;
    if (done >= total || Clock::now() < next) return;
    next = Clock::now() + std::chrono::milliseconds(100);
    std::cerr << "\r" << formatCount(done) << " of " << formatCount(total) << " tokens\x1B[K"
              << std::flush;
  };
}

int measure(const PerplexityOptions& options, Interrupt& interrupt) {
  const InterruptScope scope(interrupt);
  const std::string text = readPromptFile(options.file);
  const std::unique_ptr<Engine> engine = loadEngine(options.model, options.cache, scope.stop());
  const PerplexityResult result =
      perplexity(*engine, engine->tokenizer().encode(text, stoppedBy(scope.stop())), options.window,
                 options.mode == "stepwise", progressLine(), scope.stop());
  if (options.isJson) {
    nlohmann::json json = {{"perplexity", result.perplexity},
                           {"tokens", result.tokens},
                           {"nll_sum", result.nllSum},
                           {"window", result.window},
                           {"mode", options.mode}};
    json.update(writeCacheConfig(engine->cacheConfig()));
    printJson(json);
  } else {
    std::cout << "perplexity " << std::fixed << std::setprecision(4) << result.perplexity
              << " over " << formatCount(result.tokens) << " tokens in windows of "
              << formatCount(result.window) << std::endl;
  }
  return kSuccess;
}

}  // namespace

Command addPerplexityCommand(CLI::App& program) {
  auto options = std::make_shared<PerplexityOptions>();
  CLI::App* parser = program.add_subcommand(
      "perplexity", "Measures how well the model predicts a text: lower is better");
  parser->add_option("--file", options->file, "A text file, without its last newline; -: stdin")
      ->required()
      ->type_name("FILE");
  parser
      ->add_option("--mode", options->mode,
                   "prefill: exact attention within a window. stepwise: token by token, as when "
                   "answering, so that the quantized cache is read")
      ->check(CLI::IsMember({"prefill", "stepwise"}))
      ->capture_default_str();
  parser
      ->add_option("--window", options->window,
                   "Tokens of a window; each begins with BOS and knows nothing of the one before. "
                   "0: the context less one")
      ->check(wholeNumber(0, kMaxContextLength))
      ->type_name("TOKENS");
  parser->add_flag("--json", options->isJson, "Print JSON: perplexity, tokens, window");
  options->model.addTo(*parser);
  options->cache.addTo(*parser);
  return {parser, [options](Interrupt& interrupt) { return measure(*options, interrupt); }};
}

}  // namespace longhand::engine::cli
