#include "engine/cli/prompt_options.h"

#include <charconv>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/cli/engine_setup.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"

namespace longhand::engine::cli {

void PromptOptions::addTo(CLI::App& command) {
  command.add_option("--prompt", text, "The prompt; the token BOS is put before it")
      ->type_name("TEXT");
  command
      .add_option("--prompt-file", file,
                  "The same from a text file, without its last newline; -: from stdin")
      ->type_name("FILE");
  command.add_option("--tokens", tokens, "The prompt as token ids, BOS included: 1,2,3")
      ->type_name("IDS");
}

void PromptOptions::requireOne() const {
  const int nSources = (text ? 1 : 0) + (file.empty() ? 0 : 1) + (tokens ? 1 : 0);
  if (nSources != 1) {
    throw UsageError("give one of --prompt, --prompt-file and --tokens");
  }
}

std::string PromptOptions::readText() const { return text ? *text : readPromptFile(file); }

std::vector<std::int32_t> PromptOptions::encode(const Engine& engine, std::stop_token stop) const {
  if (!tokens) {
    std::vector<std::int32_t> ids =
        engine.tokenizer().encode(readText(), stoppedBy(std::move(stop)));
    ids.insert(ids.begin(), engine.modelConfig().bosToken);
    return ids;
  }
  std::vector<std::int32_t> ids = parseTokens(*tokens);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= engine.modelConfig().vocabSize) {
      throw Error(ErrorCode::kInvalidArgument,
                  "Token " + std::to_string(id) + " is not in the model's vocabulary of " +
                      std::to_string(engine.modelConfig().vocabSize) + " tokens.");
    }
  }
  return ids;
}

std::vector<std::int32_t> parseTokens(const std::string& text) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (true) {
    while (at != end && *at == ' ') ++at;
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc()) break;
    ids.push_back(id);
    at = next;
    while (at != end && *at == ' ') ++at;
    if (at == end) return ids;
    if (*at != ',') break;
    ++at;
  }
  throw Error(ErrorCode::kInvalidArgument, "\"" + text + "\" is no list of token ids.",
              "Write it like 1,15043,29991.");
}

}  // namespace longhand::engine::cli
