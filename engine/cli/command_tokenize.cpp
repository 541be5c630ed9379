#include <iostream>

#include "engine/cli/commands.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

struct TokenizeOptions {
  std::string model;
  std::optional<std::string> text;
  std::string file;
  bool isJson = false;
};

int tokenize(const TokenizeOptions& options) {
  if (options.text.has_value() == !options.file.empty()) {
    throw UsageError("give one of --text and --file");
  }
  ModelOptions model;
  model.model = options.model;
  const Tokenizer tokenizer(model.folder() / "tokenizer.model");
  const std::string text = options.text ? *options.text : readTextFile(options.file);
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  if (options.isJson) {
    std::vector<std::string> pieces;
    pieces.reserve(ids.size());
    for (const std::int32_t id : ids) pieces.push_back(tokenizer.piece(id));
    printJson({{"tokens", ids}, {"pieces", pieces}});
    return kSuccess;
  }
  for (const std::int32_t id : ids) std::cout << id << '\t' << tokenizer.piece(id) << '\n';
  return kSuccess;
}

}  // namespace

Command addTokenizeCommand(CLI::App& program) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* parser = program.add_subcommand(
      "tokenize", "Shows the tokens of a text, as ids and pieces, without BOS and EOS");
  parser->add_option("--model", options->model, "Folder of the model; else the bundled one")
      ->type_name("DIR");
  parser->add_option("--text", options->text, "The text")->type_name("TEXT");
  parser->add_option("--file", options->file, "A text file; -: stdin")->type_name("FILE");
  parser->add_flag("--json", options->isJson, "Print JSON: tokens, pieces");
  return {parser, [options](Interrupt&) { return tokenize(*options); }};
}

}  // namespace longhand::engine::cli
