#include "engine/cli/selftest/selftest_report.h"

#include <cmath>
#include <fstream>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/throttle.h"

namespace longhand::engine::cli {

std::string decimalText(double value, int decimals, int width) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << std::setw(width) << value;
  return text.str();
}

std::string padded(const std::string& text, std::size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text + " ";
}

SelftestReport::SelftestReport(std::ostream& table, std::ostream& progress,
                               std::filesystem::path jsonFile, double budgetSeconds)
    : table_(table),
      progress_(progress),
      jsonFile_(std::move(jsonFile)),
      budgetSeconds_(budgetSeconds),
      json_({{"is_complete", false}, {"has_failed", false}}) {
  std::error_code error;
  const auto target = std::filesystem::canonical(jsonFile_, error);  // not the link to it
  if (!error) jsonFile_ = target;
  // A whole new file takes the old one's place: a device or a pipe would be lost.
  if (std::filesystem::exists(jsonFile_, error) &&
      !std::filesystem::is_regular_file(jsonFile_, error)) {
    throw Error(ErrorCode::kFileUnwritable, jsonFile_.string() + " is not a file.",
                "Choose another file for --json.");
  }
  save();
}

double SelftestReport::secondsPassed() const { return secondsSince(start_); }

void SelftestReport::say(const std::string& text) {
  progress_ << "[" << decimalText(secondsPassed(), 1, 6) << " s] " << text << std::endl;
}

void SelftestReport::heading(const std::string& text) { table_ << "\n" << text << std::endl; }

void SelftestReport::row(const char* section, nlohmann::json numbers, const std::string& line) {
  json_[section].push_back(std::move(numbers));
  table_ << line << std::endl;
  save();
}

void SelftestReport::note(const char* key, nlohmann::json value) {
  json_[key] = std::move(value);
  save();
}

void SelftestReport::leaveOut(const std::string& what, const std::string& why) {
  json_["left_out"].push_back({{"what", what}, {"why", why}});
  say("left out: " + what + ": " + why);
  save();
}

void SelftestReport::fail(const std::string& what) {
  hasFailed_ = true;
  json_["has_failed"] = true;
  json_["failures"].push_back(what);
  say("WRONG: " + what);
  save();
}

std::size_t SelftestReport::nLeftOut() const {
  return json_.contains("left_out") ? json_["left_out"].size() : 0;
}

void SelftestReport::finish(const std::string& verdict) {
  if (json_.contains("left_out")) {
    heading("Left out");
    for (const nlohmann::json& each : json_["left_out"]) {
      table_ << "  " << each["what"].get<std::string>() << ": " << each["why"].get<std::string>()
             << "\n";
    }
  }
  json_["is_complete"] = true;
  json_["seconds"] = secondsPassed();
  json_["verdict"] = verdict;
  heading(verdict);
  table_ << decimalText(secondsPassed(), 1) << " s" << std::endl;
  save();
}

/// A reader, or whoever ends this program, finds the old file or the new one, never a part.
void SelftestReport::save() const {
  if (jsonFile_.empty()) return;
  std::filesystem::path part = jsonFile_;
  part += ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << json_.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, jsonFile_, error);
  if (!file || error) {
    throw Error(ErrorCode::kFileUnwritable, jsonFile_.string() + ": cannot be written.",
                "Choose another file for --json.");
  }
}

}  // namespace longhand::engine::cli
