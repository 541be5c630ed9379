#pragma once
// Sessions in files: what was read once need not be read again by the next command.

#include <filesystem>
#include <stop_token>
#include <string>

#include "engine/engine.h"

#include <CLI/CLI.hpp>

namespace longhand::engine::cli {

struct SessionOptions {
  std::string restoreFile;
  std::string saveFile;

  void addTo(CLI::App& command);
  /// Where a file to save to was given: throws Error kFileUnwritable when it can already be seen
  /// that save() would fail.
  void requireTarget() const;
  /// Where a file was given: puts it into the engine's cache. Throws as Engine::restoreSession().
  void restore(Engine& engine, std::stop_token stop) const;
  /// Where a file was given: writes the engine's cache to it. Throws as Engine::saveSession().
  void save(const Engine& engine, std::stop_token stop) const;
};

}  // namespace longhand::engine::cli
