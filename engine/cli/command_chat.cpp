#include <unistd.h>

#include <iostream>

#include "engine/cli/chat_session.h"
#include "engine/cli/commands.h"
#include "engine/cli/output.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {

Command addChatCommand(CLI::App& program) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* parser =
      program.add_subcommand("chat", "Talks with the model, about documents if you like");
  parser->add_option("--document", options->documents, "A text file to talk about; -: stdin")
      ->type_name("FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  parser->add_option("--system", options->system, "System text: how to answer")->type_name("TEXT");
  parser->add_flag("--json", options->isJson,
                   "Print one line of JSON for each answer, as generate does, and question");
  options->model.addTo(*parser);
  options->cache.addTo(*parser);
  options->sampler.addTo(*parser);
  options->session.addTo(*parser);
  return {parser, [options](Interrupt& interrupt) {
            ChatSession session(*options, interrupt);
            return session.run();
          }};
}

}  // namespace longhand::engine::cli
