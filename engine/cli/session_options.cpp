#include "engine/cli/session_options.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "engine/cli/output.h"
#include "engine/session/session_file.h"

namespace longhand::engine::cli {
namespace {

constexpr const char* kSessionGroup = "Sessions";

/// Progress on stderr when it is a terminal; the line is gone when all is done.
SessionProgress showProgress(const char* verb) {
  if (!isTerminal(STDERR_FILENO)) return {};
  return [verb](std::uint64_t done, std::uint64_t total) {
    std::cerr << '\r' << verb << ' ' << formatBytes(done) << " of " << formatBytes(total)
              << "\x1B[K";
    if (done >= total) std::cerr << "\r\x1B[K";
    std::cerr << std::flush;
  };
}

}  // namespace

void SessionOptions::addTo(CLI::App& command) {
  command
      .add_option(
          "--restore-session", restoreFile,
          "Begin with what --save-session kept: nothing of it is read again. Needs the same "
          "model and cache settings")
      ->type_name("FILE")
      ->group(kSessionGroup);
  command
      .add_option("--save-session", saveFile,
                  "At the end, keep what was read and said in this file")
      ->type_name("FILE")
      ->group(kSessionGroup);
}

void SessionOptions::requireTarget() const {
  if (!saveFile.empty()) requireSessionTarget(saveFile);
}

void SessionOptions::restore(Engine& engine, std::stop_token stop) const {
  if (restoreFile.empty()) return;
  engine.restoreSession(restoreFile, showProgress("Restoring"), std::move(stop));
}

void SessionOptions::save(const Engine& engine, std::stop_token stop) const {
  if (saveFile.empty()) return;
  engine.saveSession(saveFile, showProgress("Saving"), std::move(stop));
}

}  // namespace longhand::engine::cli
