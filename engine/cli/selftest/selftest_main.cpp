// longhand-selftest: `longhand-cli selftest` as a program of its own that needs no library but
// glibc, to be carried to a machine with a graphics card.

#include "engine/cli/program.h"

namespace {

using namespace longhand::engine::cli;  // NOLINT(google-build-using-namespace): the program itself

int runProgram(CLI::App& program, int argc, char** argv) {
  Interrupt interrupt;
  program.set_version_flag("--version", "longhand-selftest " LONGHAND_VERSION);
  const Command command = makeSelftestCommand(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help, --version
    if (error.get_exit_code() == 0) return finishOutput(program, program.exit(error));
    return reportUsage(program, error.what());
  }
  return runCommand(program, command, interrupt);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("Checks every kernel against the slow twin and measures the device.",
                   "longhand-selftest");
  return runAsProgram(program, [&] { return runProgram(program, argc, argv); });
}
