#include "engine/base/error_words.h"

#include <array>
#include <cstddef>
#include <cstdio>

namespace longhand::engine {

std::string quotedName(std::string_view name) {
  constexpr std::size_t kLongest = 100;
  std::string result = "'";
  for (const char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  if (name.size() > kLongest) {
    // A cut inside a UTF-8 character would make the whole message invalid UTF-8.
    std::size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0U) == 0x80U) --end;
    result.resize(1 + end);
    result += "...";
  }
  return result + "'";
}

std::string shapeText(std::span<const std::int64_t> shape) {
  constexpr std::size_t kMostExtents = 8;
  std::string result = "[";
  for (std::size_t i = 0; i < shape.size() && i < kMostExtents; ++i) {
    if (i > 0) result += ", ";
    result += std::to_string(shape[i]);
  }
  if (shape.size() > kMostExtents) result += ", ...";
  return result + "]";
}

std::string bytesText(std::uint64_t bytes) {
  constexpr double kMiB = 1024.0 * 1024.0;
  constexpr double kGiB = 1024.0 * kMiB;
  const auto value = static_cast<double>(bytes);
  if (value < kMiB) return std::to_string(bytes) + " bytes";
  std::array<char, 40> text{};
  const bool inGiB = value >= kGiB;
  std::snprintf(text.data(), text.size(), "%.1f %s", value / (inGiB ? kGiB : kMiB),
                inGiB ? "GiB" : "MiB");
  return text.data();
}

}  // namespace longhand::engine
