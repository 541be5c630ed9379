#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <utility>

#include "engine/base/error.h"
#include "engine/cli/commands.h"
#include "engine/cli/engine_setup.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"
#include "engine/cli/prompt_options.h"
#include "engine/cli/results.h"
#include "engine/cli/session_options.h"
#include "engine/text/chat_template.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

/// A model without a chat format, such as a base model, may never end its text by itself.
constexpr std::int64_t kDefaultMaxTokens = 256;

struct GenerateCommandOptions {
  ModelOptions model;
  CacheOptions cache;
  SamplerOptions sampler;
  PromptOptions prompt;
  SessionOptions session;
  bool isChat = false;
  std::string system;
  bool isJson = false;
};

std::vector<std::int32_t> promptTokens(const GenerateCommandOptions& options, const Engine& engine,
                                       std::stop_token stop) {
  if (!options.isChat) return options.prompt.encode(engine, std::move(stop));
  const std::string text = options.prompt.readText();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, "The message is empty.");
  }
  return encodeChat(engine.tokenizer(), options.system, std::vector<ChatTurn>{{text, {}, {}}},
                    stoppedBy(std::move(stop)));
}

int generate(const GenerateCommandOptions& options, Interrupt& interrupt) {
  options.prompt.requireOne();
  if (options.isChat && options.prompt.tokens) {
    throw UsageError("--chat wraps a text, not --tokens");
  }
  if (!options.system.empty() && !options.isChat) throw UsageError("--system needs --chat");

  options.session.requireTarget();

  const InterruptScope scope(interrupt);
  const std::unique_ptr<Engine> engine = loadEngine(options.model, options.cache, scope.stop());
  const std::vector<std::int32_t> prompt = promptTokens(options, *engine, scope.stop());
  options.session.restore(*engine, scope.stop());
  GenerateObserver observer;
  observer.prefill = showPrefillProgress;
  if (!options.isJson) {
    observer.token = [](std::string_view text, std::int32_t) { std::cout << text << std::flush; };
  }
  const GenerateResult result = engine->generate(
      prompt, options.sampler.generateOptions(options.model.folder()), observer, scope.stop());
  if (options.isJson) {
    nlohmann::json json = resultJson(result);
    json["bytes"] = memoryJson(engine->memory().peak);
    printJson(json);
  } else {
    std::cout << std::endl;
    if (isTerminal(STDERR_FILENO)) std::cerr << resultLine(result) << std::endl;
  }
  if (result.stopReason == StopReason::kCancelled) return kInterrupted;
  options.session.save(*engine, scope.stop());
  return kSuccess;
}

}  // namespace

Command addGenerateCommand(CLI::App& program) {
  auto options = std::make_shared<GenerateCommandOptions>();
  CLI::App* parser = program.add_subcommand("generate", "Completes a prompt, streaming the text");
  options->sampler.maxTokens = kDefaultMaxTokens;
  options->prompt.addTo(*parser);
  parser->add_flag("--chat", options->isChat, "Wrap the prompt in the chat format of Llama-2");
  parser->add_option("--system", options->system, "System text of the chat")->type_name("TEXT");
  parser->add_flag("--json", options->isJson,
                   "Print JSON: text, tokens, stop_reason, prefill_tokens_per_second, "
                   "decode_tokens_per_second and more");
  options->model.addTo(*parser);
  options->cache.addTo(*parser);
  options->sampler.addTo(*parser);
  options->session.addTo(*parser);
  return {parser, [options](Interrupt& interrupt) { return generate(*options, interrupt); }};
}

}  // namespace longhand::engine::cli
