#include "engine/cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/utf8.h"

namespace longhand::engine::cli {
namespace {

struct CategoryName {
  MemoryCategory category;
  const char* key;
  const char* label;
};

constexpr std::array<CategoryName, kMemoryCategoryCount> kCategories = {{
    {MemoryCategory::kWeights, "weights", "weights"},
    {MemoryCategory::kKvCodes, "kv_codes", "KV codes"},
    {MemoryCategory::kKvScales, "kv_scales", "KV scales"},
    {MemoryCategory::kKvExact, "kv_exact", "KV exact (sink, residual)"},
    {MemoryCategory::kWorkspace, "workspace", "workspace"},
}};

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::string fixed(double value, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string tableLine(const std::string& label, std::uint64_t bytes) {
  const std::string size = formatBytes(bytes);
  std::string line = "  " + label;
  line.resize(std::max<std::size_t>(line.size() + 1, 40 - std::min<std::size_t>(size.size(), 12)),
              ' ');
  return line + size + "\n";
}

/// All bytes of an open file, a pipe as well. `name` is for messages.
std::string readAll(int descriptor, const std::string& name) {
  constexpr std::size_t kStepBytes = std::size_t{1} << 18U;
  constexpr std::size_t kMostBytes = std::size_t{1} << 30U;  // more than any context holds
  std::string text;
  while (true) {
    const std::size_t before = text.size();
    text.resize(before + kStepBytes);
    const ssize_t nRead = ::read(descriptor, text.data() + before, kStepBytes);
    const int error = errno;
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(0, nRead)));
    if (nRead == 0) return text;
    if (nRead < 0 && error != EINTR) {
      throw Error(ErrorCode::kFileUnreadable,
                  name + ": reading failed: " + std::generic_category().message(error) + ".");
    }
    if (text.size() > kMostBytes) {
      throw Error(ErrorCode::kInvalidArgument, name + ": this is more than 1 GiB of text.",
                  "Give a shorter text.");
    }
  }
}

struct Descriptor {
  int value = -1;
  explicit Descriptor(int valueIn) : value(valueIn) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

std::string readFile(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw Error(ErrorCode::kFileNotFound, path.string() + ": there is no such file.");
  }
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value < 0 || std::filesystem::is_directory(path, error)) {
    throw Error(ErrorCode::kFileUnreadable, path.string() + ": cannot be opened for reading.");
  }
  return readAll(file.value, path.string());
}

}  // namespace

void printJson(const nlohmann::json& value) {
  std::cout << value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

std::string formatBytes(std::uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (size >= kGiB) return fixed(size / kGiB, 2) + " GiB";
  if (size >= 1024.0 * 1024.0) return fixed(size / (1024.0 * 1024.0), 2) + " MiB";
  if (size >= 1024.0) return fixed(size / 1024.0, 1) + " KiB";
  return std::to_string(bytes) + " B";
}

std::string formatGiB(std::uint64_t bytes) { return fixed(static_cast<double>(bytes) / kGiB, 3); }

std::uint64_t parseBytes(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 11> kUnits = {{
      {"", 1.0},
      {"B", 1.0},
      {"KiB", 1024.0},
      {"MiB", 1024.0 * 1024.0},
      {"GiB", kGiB},
      {"G", kGiB},
      {"TiB", 1024.0 * kGiB},
      {"kB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
  }};
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, factor] : kUnits) {
    const double bytes = number * factor;
    if (error == std::errc() && unit == name && bytes >= 0.0 && bytes < 9e18) {
      return static_cast<std::uint64_t>(std::llround(bytes));
    }
  }
  throw Error(ErrorCode::kInvalidArgument, "\"" + std::string(text) + "\" is no size in bytes.",
              "Write it like 24GiB.");
}

std::string formatCount(std::int64_t count) {
  std::string text = std::to_string(count);
  const std::size_t nSign = count < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > nSign + 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

nlohmann::json memoryJson(const MemoryUse& use) {
  nlohmann::json bytes = nlohmann::json::object();
  for (const CategoryName& name : kCategories) bytes[name.key] = use[name.category];
  bytes["total"] = use.total();
  return bytes;
}

std::string memoryTable(const MemoryUse& use) {
  std::string table;
  for (const CategoryName& name : kCategories) table += tableLine(name.label, use[name.category]);
  return table + tableLine("total", use.total());
}

std::string readTextFile(const std::filesystem::path& path) {
  std::string text = path == "-" ? readAll(STDIN_FILENO, "The standard input") : readFile(path);
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (text.starts_with("%PDF") || text.starts_with("PK\x03\x04") ||
      text.find('\0') != std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, path.string() + ": this is no plain text in UTF-8.",
                "The terminal reads text files only; the window reads more kinds.");
  }
  return text;
}

std::string readDocument(const std::filesystem::path& path) {
  std::string text = readTextFile(path);
  if (stripWhiteSpace(text).empty()) {
    throw Error(ErrorCode::kInvalidArgument, path.string() + ": the document is blank.",
                "Give a document with text in it.");
  }
  for (std::string_view rest = text; !rest.empty();) {
    if (static_cast<unsigned char>(rest.front()) < 0x80U) {  // most of a text: not a call for each
      rest.remove_prefix(1);
      continue;
    }
    const Utf8Character character = firstCharacter(rest);
    if (character.kind != Utf8Start::kComplete) {
      const auto line =
          std::count(text.begin(), text.end() - static_cast<std::ptrdiff_t>(rest.size()), '\n') + 1;
      throw Error(ErrorCode::kInvalidArgument,
                  path.string() + ": line " + std::to_string(line) + " is not in UTF-8.",
                  "Convert the file, for example with iconv -t UTF-8.");
    }
    rest.remove_prefix(character.nBytes);
  }
  return text;
}

std::string readPromptFile(const std::filesystem::path& path) {
  std::string text = readTextFile(path);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

bool isTerminal(int fileDescriptor) { return isatty(fileDescriptor) == 1; }

}  // namespace longhand::engine::cli
