#pragma once
// What a self-test has found so far: a table for people, JSON for programs, and the time left.

#include <chrono>
#include <filesystem>
#include <iosfwd>
#include <string>

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {

/// One thread at a time. The streams must outlive it.
class SelftestReport {
 public:
  /// Throws Error kFileUnwritable where the file cannot be written. An empty path: no file.
  SelftestReport(std::ostream& table, std::ostream& progress, std::filesystem::path jsonFile,
                 double budgetSeconds);

  double secondsPassed() const;
  /// Until the budget is used up; negative afterwards.
  double secondsLeft() const { return budgetSeconds_ - secondsPassed(); }

  /// What comes next, with the time, on the stream for progress.
  void say(const std::string& text);
  void heading(const std::string& text);
  /// A line of the table, and its numbers as the next element of `section` in the JSON.
  void row(const char* section, nlohmann::json numbers, const std::string& line);
  void note(const char* key, nlohmann::json value);
  /// Something that is not measured, and why.
  void leaveOut(const std::string& what, const std::string& why);

  /// A kernel that is wrong, or a device that failed: the self-test has failed.
  void fail(const std::string& what);
  bool hasFailed() const { return hasFailed_; }
  bool hasRows(const char* section) const { return json_.contains(section); }
  std::size_t nLeftOut() const;
  /// The list of what was left out, then one sentence.
  void finish(const std::string& verdict);

 private:
  void save() const;

  std::ostream& table_;
  std::ostream& progress_;
  std::filesystem::path jsonFile_;
  double budgetSeconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  nlohmann::json json_;
  bool hasFailed_ = false;
};

/// "12.34", with so many decimals; right-aligned in `width` characters.
std::string decimalText(double value, int decimals, int width = 0);
/// `text`, filled up with spaces on the right.
std::string padded(const std::string& text, std::size_t width);

}  // namespace longhand::engine::cli
