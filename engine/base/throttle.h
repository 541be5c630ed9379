#pragma once
// Time as loops measure it: the seconds since a moment, and a gate for reports of progress.

#include <chrono>
#include <optional>

namespace longhand::engine {

inline double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Lets something through at most once per interval; the first time always.
class Throttle {
 public:
  explicit Throttle(std::chrono::milliseconds interval) : interval_(interval) {}

  bool isDue() {
    const auto now = std::chrono::steady_clock::now();
    if (last_ && now - *last_ < interval_) return false;
    last_ = now;
    return true;
  }

 private:
  std::chrono::milliseconds interval_;
  std::optional<std::chrono::steady_clock::time_point> last_;
};

}  // namespace longhand::engine
