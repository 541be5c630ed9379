#pragma once
// UTF-8 as the Unicode standard defines it (section 3.9, table 3-7): no overlong forms, no
// surrogates, nothing above U+10FFFF.

#include <cstddef>
#include <string_view>

namespace longhand::engine {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Start {
  kComplete,    // a whole character stands at the start
  kIncomplete,  // more bytes could still make one of it
  kInvalid,     // the first byte can begin no character together with what follows
};

struct Utf8Character {
  Utf8Start kind = Utf8Start::kInvalid;
  std::size_t nBytes = 0;  // of the character when kComplete; 0 else
  char32_t codePoint = 0;  // when kComplete
};

/// The character at the start of `text`, which must not be empty.
Utf8Character firstCharacter(std::string_view text);

/// `text` without white space at both ends, where white space is what Python's str.strip() takes
/// (Unicode White_Space and U+001C to U+001F).
std::string_view stripWhiteSpace(std::string_view text);

}  // namespace longhand::engine
