#include "engine/text/stop_text.h"

#include <algorithm>
#include <utility>

namespace longhand::engine {
namespace {

std::vector<std::size_t> borders(std::string_view text) {
  std::vector<std::size_t> border(text.size() + 1, 0);
  for (std::size_t i = 1; i < text.size(); ++i) {
    std::size_t length = border[i];
    while (length > 0 && text[i] != text[length]) length = border[length];
    border[i + 1] = text[i] == text[length] ? length + 1 : 0;
  }
  return border;
}

}  // namespace

StopTextScanner::StopTextScanner(const std::vector<std::string>& stopTexts) {
  for (const std::string& text : stopTexts) {
    if (!text.empty()) patterns_.push_back({text, borders(text), 0});
  }
}

std::string StopTextScanner::append(std::string_view text) {
  if (isHit_) return {};
  if (patterns_.empty()) return std::string(text);
  held_ += text;
  std::size_t nHeld = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    nHeld = 0;
    std::size_t nHit = 0;
    for (Pattern& p : patterns_) {
      while (p.nMatched > 0 && p.text[p.nMatched] != text[i]) p.nMatched = p.border[p.nMatched];
      if (p.text[p.nMatched] == text[i]) ++p.nMatched;
      nHeld = std::max(nHeld, p.nMatched);
      if (p.nMatched == p.text.size()) nHit = std::max(nHit, p.nMatched);
    }
    if (nHit > 0) {
      isHit_ = true;
      held_.resize(held_.size() - (text.size() - i - 1) - nHit);
      return std::exchange(held_, {});
    }
  }
  if (text.empty()) return {};
  std::string released = held_.substr(0, held_.size() - nHeld);
  held_.erase(0, released.size());
  return released;
}

std::string StopTextScanner::finish() {
  for (Pattern& p : patterns_) p.nMatched = 0;
  isHit_ = false;
  return std::exchange(held_, {});
}

}  // namespace longhand::engine
