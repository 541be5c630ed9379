#pragma once
// Runs the real longhand-cli as its users do, for the tests of the terminal.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include <QDebug>
#include <QProcess>
#include <QStringList>
#include <QTemporaryDir>

#include "tests/support/paths.h"

#include <nlohmann/json.hpp>

namespace longhand::tests {

struct Outcome {
  int exitCode = -1;
  std::string out;
  std::string err;

  nlohmann::json parsed() const { return nlohmann::json::parse(out); }
  /// One line on stderr that begins with the program's name and holds `words`.
  bool isErrorLine(const std::string& words) const {
    const bool isOneLine = std::count(err.begin(), err.end(), '\n') == 1 && err.ends_with('\n');
    return out.empty() && isOneLine && err.starts_with("longhand-cli: ") &&
           err.find(words) != std::string::npos;
  }
};

inline Outcome run(const QStringList& arguments, const QByteArray& input = {}) {
  QProcess process;
  process.start(LONGHAND_CLI, arguments);
  process.write(input);
  process.closeWriteChannel();
  if (!process.waitForFinished(60000)) process.kill();
  const bool hasExited = process.exitStatus() == QProcess::NormalExit;
  Outcome outcome{hasExited ? process.exitCode() : -1,
                  process.readAllStandardOutput().toStdString(),
                  process.readAllStandardError().toStdString()};
  if (outcome.exitCode != 0) qDebug() << arguments << outcome.err.c_str();
  return outcome;
}

inline QString pathOf(const std::filesystem::path& path) {
  return QString::fromStdString(path.string());
}

inline QString demoFolder() { return pathOf(resourcePath("longhand-demo")); }

inline QString idList(const std::vector<std::int32_t>& ids) {
  QStringList texts;
  for (const std::int32_t id : ids) texts << QString::number(id);
  return texts.join(',');
}

inline std::vector<nlohmann::json> demoPrompts() {
  std::ifstream file(dataPath("longhand-demo/longhand-demo.json"));
  return nlohmann::json::parse(file)["prompts"];
}

inline nlohmann::json demoPrompt(const std::string& name) {
  for (const nlohmann::json& prompt : demoPrompts()) {
    if (prompt["name"] == name) return prompt;
  }
  return {};
}

/// A writable copy of the bundled model, to be damaged.
inline std::filesystem::path copyDemo(const QTemporaryDir& folder) {
  const std::filesystem::path copy = std::filesystem::path(folder.path().toStdString()) / "model";
  std::filesystem::create_directories(copy);
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.model", "model.safetensors"}) {
    std::filesystem::copy_file(resourcePath("longhand-demo") / name, copy / name);
    std::filesystem::permissions(copy / name, std::filesystem::perms::owner_all);
  }
  return copy;
}

inline bool hasKeys(const nlohmann::json& object, std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [&object](const char* key) { return object.contains(key); });
}

inline double gibOf(const nlohmann::json& bytes, std::initializer_list<const char*> keys) {
  double sum = 0.0;
  for (const char* key : keys) sum += bytes[key].get<double>();
  return sum / (1024.0 * 1024.0 * 1024.0);
}

}  // namespace longhand::tests
