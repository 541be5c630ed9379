#include "engine/cli/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <new>
#include <string>
#include <system_error>

#include "engine/base/error.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"

namespace longhand::engine::cli {
namespace {

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

}  // namespace

int report(const CLI::App& program, const std::string& text, int status) {
  std::string line = text;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  if (isTerminal(STDERR_FILENO)) std::cerr << "\r\x1B[K";  // a line of progress may stand there
  std::cerr << program.get_name() << ": " << line << std::endl;
  return status;
}

int reportUsage(const CLI::App& program, const std::string& reason) {
  std::string name = program.get_name();
  for (const CLI::App* chosen : program.get_subcommands()) name += " " + chosen->get_name();
  return report(program, reason + " (see " + name + " --help)", kUsage);
}

int finishOutput(const CLI::App& program, int status) {
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0) return status;
  return report(program, "The output could not be written. Is the disk full?", kFailure);
}

int runCommand(const CLI::App& program, const Command& command, Interrupt& interrupt) {
  try {
    return finishOutput(program, command.run(interrupt));
  } catch (const UsageError& error) {
    return reportUsage(program, error.what());
  } catch (const Error& error) {
    return report(program, error.line(),
                  error.code() == ErrorCode::kCancelled ? kInterrupted : kFailure);
  } catch (const std::bad_alloc&) {
    return report(program, "There is not enough main memory. Choose a smaller context or preset.",
                  kFailure);
  } catch (const std::system_error&) {
    throw;  // runAsProgram() says so
  } catch (const std::exception& error) {
    return report(program, std::string("Internal error: ") + error.what(), kFailure);
  }
}

int runAsProgram(const CLI::App& program, const std::function<int()>& run) {
  fillClosedStreams();
  try {
    return run();
  } catch (const std::system_error& error) {  // no thread could be made
    return report(program,
                  std::string("The system refuses what the program needs: ") + error.what() + ".",
                  kFailure);
  } catch (const std::exception& error) {
    return report(program, std::string("Internal error: ") + error.what(), kFailure);
  }
}

}  // namespace longhand::engine::cli
