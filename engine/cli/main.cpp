// longhand-cli: everything the engine can do, in a terminal.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <new>
#include <string>
#include <system_error>

#include "engine/cli/commands.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"
#include "engine/error.h"

namespace {

using namespace longhand::engine;       // NOLINT(google-build-using-namespace): the program itself
using namespace longhand::engine::cli;  // NOLINT(google-build-using-namespace)

int report(const std::string& text, int status) {
  std::string line = text;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  if (isTerminal(STDERR_FILENO)) std::cerr << "\r\x1B[K";  // a line of progress may stand there
  std::cerr << "longhand-cli: " << line << std::endl;
  return status;
}

int reportUsage(const CLI::App& program, const std::string& reason) {
  std::string name = program.get_name();
  for (const CLI::App* chosen : program.get_subcommands()) name += " " + chosen->get_name();
  return report(reason + " (see " + name + " --help)", kUsage);
}

/// Output that could not be written (a full disk) is a failure, too.
int finishOutput(int status) {
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0) return status;
  return report("The output could not be written. Is the disk full?", kFailure);
}

int runCommand(const CLI::App& program, const Command& command, Interrupt& interrupt) {
  try {
    return finishOutput(command.run(interrupt));
  } catch (const UsageError& error) {
    return reportUsage(program, error.what());
  } catch (const Error& error) {
    return report(error.line(), error.code() == ErrorCode::kCancelled ? kInterrupted : kFailure);
  } catch (const std::bad_alloc&) {
    return report("There is not enough main memory. Choose a smaller context or preset.", kFailure);
  } catch (const std::system_error&) {
    throw;  // main says so
  } catch (const std::exception& error) {
    return report(std::string("Internal error: ") + error.what(), kFailure);
  }
}

/// A file that is opened later must not take the place of a stream that was closed. Reading and
/// writing then fail, as they would have.
void fillClosedStreams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    // The lowest free number, that is, this one; for the other direction.
    [[maybe_unused]] const int filled =
        open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int runProgram(int argc, char** argv) {
  Interrupt interrupt;
  CLI::App program("Runs Llama models with a quantized KV cache, for long documents.",
                   "longhand-cli");
  program.set_version_flag("--version", "longhand-cli " LONGHAND_VERSION);
  program.set_help_all_flag("--help-all", "Print the help of all commands and exit");
  program.require_subcommand(0, 1);  // its own check would hide a misspelled command
  const std::array commands = {addChatCommand(program),       addGenerateCommand(program),
                               addTokenizeCommand(program),   addLogitsCommand(program),
                               addPerplexityCommand(program), addQualityCommand(program),
                               addPlanCommand(program),       addBenchCommand(program)};

  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return finishOutput(program.exit(error));  // --help, --version
    return reportUsage(program, error.what());
  }
  for (const Command& command : commands) {
    if (command.parser->parsed()) return runCommand(program, command, interrupt);
  }
  return reportUsage(program, "A command is missing");
}

}  // namespace

int main(int argc, char** argv) {
  fillClosedStreams();
  try {
    return runProgram(argc, argv);
  } catch (const std::system_error& error) {  // no thread could be made
    return report(std::string("The system refuses what the program needs: ") + error.what() + ".",
                  kFailure);
  } catch (const std::exception& error) {
    return report(std::string("Internal error: ") + error.what(), kFailure);
  }
}
