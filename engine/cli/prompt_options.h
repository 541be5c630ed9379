#pragma once
// Where the tokens of a command come from.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

#include <CLI/CLI.hpp>

namespace longhand::engine::cli {

/// Where the tokens of a command come from: one of text, file, ids.
struct PromptOptions {
  std::optional<std::string> text;
  std::string file;
  std::optional<std::string> tokens;

  void addTo(CLI::App& command);
  /// Throws UsageError unless exactly one source was given.
  void requireOne() const;
  /// The text, from the option or the file.
  std::string readText() const;
  /// BOS and the text's tokens, or the given ids. Throws Error kInvalidArgument for ids outside the
  /// vocabulary.
  std::vector<std::int32_t> encode(const Engine& engine, std::stop_token stop = {}) const;
};

/// "1,2,3" -> ids. Throws Error kInvalidArgument.
std::vector<std::int32_t> parseTokens(const std::string& text);

}  // namespace longhand::engine::cli
