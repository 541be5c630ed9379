// longhand-cli: everything the engine can do, in a terminal.

#include <array>

#include "engine/cli/program.h"

namespace {

using namespace longhand::engine::cli;  // NOLINT(google-build-using-namespace): the program itself

int runProgram(CLI::App& program, int argc, char** argv) {
  Interrupt interrupt;
  program.set_version_flag("--version", "longhand-cli " LONGHAND_VERSION);
  program.set_help_all_flag("--help-all", "Print the help of all commands and exit");
  program.require_subcommand(0, 1);  // its own check would hide a misspelled command
  const std::array commands = {
      addChatCommand(program),   addGenerateCommand(program),   addTokenizeCommand(program),
      addLogitsCommand(program), addPerplexityCommand(program), addQualityCommand(program),
      addPlanCommand(program),   addBenchCommand(program),      addSelftestCommand(program)};

  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help, --version
    if (error.get_exit_code() == 0) return finishOutput(program, program.exit(error));
    return reportUsage(program, error.what());
  }
  for (const Command& command : commands) {
    if (command.parser->parsed()) return runCommand(program, command, interrupt);
  }
  return reportUsage(program, "A command is missing");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("Runs Llama models with a quantized KV cache, for long documents.",
                   "longhand-cli");
  return runAsProgram(program, [&] { return runProgram(program, argc, argv); });
}
