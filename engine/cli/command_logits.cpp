#include <algorithm>
#include <iomanip>
#include <iostream>
#include <numeric>

#include "engine/base/error.h"
#include "engine/cli/commands.h"
#include "engine/cli/engine_setup.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"
#include "engine/cli/prompt_options.h"
#include "engine/log_likelihood.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

constexpr std::size_t kShownTokens = 10;

struct LogitsOptions {
  ModelOptions model;
  CacheOptions cache;
  PromptOptions prompt;
  bool hasAllPositions = false;
  bool isStepwise = false;
  bool isJson = false;
};

void printJsonRows(const std::vector<float>& logits, std::size_t vocabSize, bool hasAllPositions,
                   const std::vector<std::int32_t>& tokens) {
  nlohmann::json json = {{"tokens", tokens}};
  if (!hasAllPositions) {
    json["logits"] = logits;
  } else {
    nlohmann::json rows = nlohmann::json::array();
    for (std::size_t at = 0; at < logits.size(); at += vocabSize) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(at);
      rows.push_back(std::vector<float>(row, row + static_cast<std::ptrdiff_t>(vocabSize)));
    }
    json["logits"] = std::move(rows);
  }
  printJson(json);
}

/// The best tokens of each position.
void printTables(const std::vector<float>& logits, std::size_t vocabSize, const Engine& engine) {
  std::vector<std::int32_t> ids(vocabSize);
  const std::size_t nShown = std::min(kShownTokens, vocabSize);
  for (std::size_t at = 0; at < logits.size(); at += vocabSize) {
    if (logits.size() > vocabSize) std::cout << "position " << at / vocabSize << '\n';
    const float* row = logits.data() + at;
    std::iota(ids.begin(), ids.end(), 0);
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(nShown), ids.end(),
                      [row](std::int32_t a, std::int32_t b) {
                        return row[a] != row[b] ? row[a] > row[b] : a < b;
                      });
    for (std::size_t i = 0; i < nShown; ++i) {
      std::cout << std::setw(7) << ids[i] << std::fixed << std::setprecision(5) << std::setw(14)
                << row[ids[i]];
      if (ids[i] < engine.tokenizer().vocabSize()) {
        std::cout << "  " << engine.tokenizer().piece(ids[i]);
      }
      std::cout << '\n';
    }
  }
}

int logits(const LogitsOptions& options, Interrupt& interrupt) {
  options.prompt.requireOne();
  std::unique_ptr<Engine> engine;
  {
    const InterruptScope scope(interrupt);
    engine = loadEngine(options.model, options.cache, scope.stop());
  }
  const std::vector<std::int32_t> tokens = options.prompt.encode(*engine);
  const std::vector<float> values =
      engine->logits(tokens, options.hasAllPositions, options.isStepwise);
  requireFiniteLogits(values);
  const auto vocabSize = static_cast<std::size_t>(engine->modelConfig().vocabSize);
  if (options.isJson) {
    printJsonRows(values, vocabSize, options.hasAllPositions, tokens);
  } else {
    printTables(values, vocabSize, *engine);
  }
  return kSuccess;
}

}  // namespace

Command addLogitsCommand(CLI::App& program) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* parser =
      program.add_subcommand("logits", "Shows the model's output after a prompt, before sampling");
  options->prompt.addTo(*parser);
  parser->add_flag("--all", options->hasAllPositions, "All positions, not only the last one");
  parser->add_flag("--stepwise", options->isStepwise,
                   "Feed the prompt token by token instead of in one prefill");
  parser->add_flag("--json", options->isJson,
                   "Print JSON: logits (of the last position, or rows for all), tokens");
  options->model.addTo(*parser);
  options->cache.addTo(*parser);
  return {parser, [options](Interrupt& interrupt) { return logits(*options, interrupt); }};
}

}  // namespace longhand::engine::cli
