#pragma once
// The commands of longhand-cli. Each add...Command() puts its subcommand into the parser; when the
// user chose it, `run` does the work and returns the exit status. Errors are thrown.

#include <functional>

#include "engine/cli/interrupt.h"

#include <CLI/CLI.hpp>

namespace longhand::engine::cli {

struct Command {
  CLI::App* parser = nullptr;          // owned by the main parser
  std::function<int(Interrupt&)> run;  // owns the command's options
};

/// Exit statuses.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;
inline constexpr int kInterrupted = 130;  // as shells report Ctrl+C

Command addChatCommand(CLI::App& program);
Command addGenerateCommand(CLI::App& program);
Command addTokenizeCommand(CLI::App& program);
Command addLogitsCommand(CLI::App& program);
Command addPerplexityCommand(CLI::App& program);
Command addQualityCommand(CLI::App& program);
Command addPlanCommand(CLI::App& program);
Command addBenchCommand(CLI::App& program);
Command addSelftestCommand(CLI::App& program);
/// The self-test's options as those of the program itself.
Command makeSelftestCommand(CLI::App& parser);

}  // namespace longhand::engine::cli
