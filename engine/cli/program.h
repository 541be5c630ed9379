#pragma once
// What the programs in a terminal have in common: how they end, and what they say then.

#include <string>

#include "engine/cli/commands.h"

#include <CLI/CLI.hpp>

namespace longhand::engine::cli {

/// One line on stderr, after the program's name. Returns `status`.
int report(const CLI::App& program, const std::string& text, int status);
/// The same for what the parser or a command refuses.
int reportUsage(const CLI::App& program, const std::string& reason);
/// Output that could not be written (a full disk) is a failure, too.
int finishOutput(const CLI::App& program, int status);
/// Runs the command; errors become lines on stderr and exit statuses.
int runCommand(const CLI::App& program, const Command& command, Interrupt& interrupt);

/// Calls `run` as main() should: with all three standard streams open, and no exception behind it.
int runAsProgram(const CLI::App& program, const std::function<int()>& run);

}  // namespace longhand::engine::cli
