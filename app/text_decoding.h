#pragma once
// Bytes of a text file to characters, whatever the encoding.

#include <QByteArray>
#include <QString>

namespace longhand::app {

struct DecodedText {
  QString text;
  QString encoding;                // "UTF-8", "UTF-16LE", "GB18030", "WINDOWS-1252", ...
  bool guessed = false;            // neither a byte order mark nor valid UTF-8 told it
  std::int64_t badCharacters = 0;  // bytes that mean nothing in this encoding, now U+FFFD
};

/// False for bytes that are no text in any encoding: a NUL without the byte order mark of UTF-16 or
/// UTF-32, or more than 1 % of other control characters.
bool looksLikeText(const QByteArray& bytes);

/// Byte order mark, else UTF-8 when valid, else what uchardet says, else Windows-1252. The mark is
/// removed.
DecodedText decodeText(const QByteArray& bytes);

}  // namespace longhand::app
