#include "engine/base/utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace longhand::engine {
namespace {

struct ByteRange {
  std::uint8_t low;
  std::uint8_t high;
};

/// Allowed values of the byte after `lead`; the bytes behind it are always 80..BF.
ByteRange secondByteRange(std::uint8_t lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

/// Bytes of a character that begins with `lead`; 0 when none does.
std::size_t lengthByLead(std::uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead <= 0xF4 ? 4 : 0;
}

bool isWhiteSpace(char32_t c) {
  static constexpr std::array<char32_t, 9> kSingles = {0x20,   0x85,   0xA0,   0x1680, 0x2028,
                                                       0x2029, 0x202F, 0x205F, 0x3000};
  if ((c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || (c >= 0x2000 && c <= 0x200A)) {
    return true;
  }
  return std::find(kSingles.begin(), kSingles.end(), c) != kSingles.end();
}

}  // namespace

Utf8Character firstCharacter(std::string_view text) {
  const auto lead = static_cast<std::uint8_t>(text.front());
  const std::size_t length = lengthByLead(lead);
  if (length == 0) return {};
  if (length == 1) return {Utf8Start::kComplete, 1, lead};
  char32_t codePoint = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Start::kIncomplete, 0, 0};
    const auto byte = static_cast<std::uint8_t>(text[i]);
    const ByteRange allowed = i == 1 ? secondByteRange(lead) : ByteRange{0x80, 0xBF};
    if (byte < allowed.low || byte > allowed.high) return {};
    codePoint = (codePoint << 6U) | (byte & 0x3FU);
  }
  return {Utf8Start::kComplete, length, codePoint};
}

std::string_view stripWhiteSpace(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character first = firstCharacter(text);
    if (first.kind != Utf8Start::kComplete || !isWhiteSpace(first.codePoint)) break;
    text.remove_prefix(first.nBytes);
  }
  while (!text.empty()) {
    // The last character starts at the last byte that is no continuation byte.
    std::size_t start = text.size() - 1;
    while (start > 0 && (static_cast<std::uint8_t>(text[start]) & 0xC0U) == 0x80U) --start;
    const Utf8Character last = firstCharacter(text.substr(start));
    const bool isWhole = last.kind == Utf8Start::kComplete && start + last.nBytes == text.size();
    if (!isWhole || !isWhiteSpace(last.codePoint)) break;
    text.remove_suffix(last.nBytes);
  }
  return text;
}

}  // namespace longhand::engine
