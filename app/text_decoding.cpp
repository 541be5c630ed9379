#include "app/text_decoding.h"

#include <iconv.h>
#include <uchardet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>

#include <QStringDecoder>

namespace longhand::app {

namespace {

struct ByteOrderMark {
  QByteArrayView bytes;
  QStringConverter::Encoding encoding;
};

// UTF-32LE begins like UTF-16LE and therefore comes first.
const std::array<ByteOrderMark, 5> kByteOrderMarks = {{
    {QByteArrayView("\xFF\xFE\0\0", 4), QStringConverter::Utf32LE},
    {QByteArrayView("\0\0\xFE\xFF", 4), QStringConverter::Utf32BE},
    {QByteArrayView("\xEF\xBB\xBF", 3), QStringConverter::Utf8},
    {QByteArrayView("\xFF\xFE", 2), QStringConverter::Utf16LE},
    {QByteArrayView("\xFE\xFF", 2), QStringConverter::Utf16BE},
}};

const ByteOrderMark* byteOrderMark(const QByteArray& bytes) {
  for (const ByteOrderMark& mark : kByteOrderMarks) {
    if (bytes.startsWith(mark.bytes)) return &mark;
  }
  return nullptr;
}

std::int64_t countReplacements(const QString& text) {
  return text.count(QChar(QChar::ReplacementCharacter));
}

/// Nothing when iconv does not know the encoding. Bad bytes become U+FFFD one by one.
std::optional<DecodedText> decodeWithIconv(const QByteArray& bytes, const char* encoding) {
  const iconv_t converter = iconv_open("UTF-8", encoding);
  // iconv's way to say that it failed, a pointer of all ones, is compared as a number.
  if (reinterpret_cast<std::intptr_t>(converter) == -1) return std::nullopt;
  const auto close = [](void* open) { iconv_close(open); };
  const std::unique_ptr<void, decltype(close)> owner(converter, close);

  DecodedText result;
  result.encoding = QString::fromLatin1(encoding);
  QByteArray output;
  std::array<char, 1 << 16> buffer;
  QByteArray input = bytes;  // iconv wants non-const bytes, which it does not change
  char* from = input.data();
  std::size_t left = static_cast<std::size_t>(input.size());
  while (left > 0) {
    char* to = buffer.data();
    std::size_t room = buffer.size();
    const std::size_t status = iconv(converter, &from, &left, &to, &room);
    const int reason = errno;
    output.append(buffer.data(), static_cast<qsizetype>(buffer.size() - room));
    if (status != static_cast<std::size_t>(-1) || reason == E2BIG) continue;
    output.append("\xEF\xBF\xBD");
    ++result.badCharacters;
    ++from;
    --left;
  }
  result.text = QString::fromUtf8(output);
  return result;
}

QByteArray detectEncoding(const QByteArray& bytes) {
  // Enough to tell encodings apart; the detector is slow on more.
  constexpr qsizetype kSampleBytes = 1 << 20;
  const std::unique_ptr<uchardet, decltype(&uchardet_delete)> detector(uchardet_new(),
                                                                       &uchardet_delete);
  const QByteArrayView sample = QByteArrayView(bytes).first(std::min(bytes.size(), kSampleBytes));
  if (uchardet_handle_data(detector.get(), sample.data(),
                           static_cast<std::size_t>(sample.size())) != 0) {
    return {};
  }
  uchardet_data_end(detector.get());
  return QByteArray(uchardet_get_charset(detector.get()));
}

}  // namespace

bool looksLikeText(const QByteArray& bytes) {
  const ByteOrderMark* mark = byteOrderMark(bytes);
  if (mark != nullptr && mark->encoding != QStringConverter::Utf8) return true;
  std::int64_t controls = 0;
  for (const char c : bytes) {
    if (c == '\0') return false;
    const auto byte = static_cast<unsigned char>(c);
    const bool isSpace = byte >= '\t' && byte <= '\r';
    constexpr unsigned char kEscape = 0x1B;  // in ISO-2022-JP and in coloured logs
    if ((byte < ' ' && !isSpace && byte != kEscape) || byte == 0x7F) ++controls;
  }
  return controls * 100 <= bytes.size();
}

DecodedText decodeText(const QByteArray& bytes) {
  DecodedText result;
  if (const ByteOrderMark* mark = byteOrderMark(bytes)) {
    QStringDecoder decoder(mark->encoding, QStringConverter::Flag::Stateless);
    result.text = decoder(QByteArrayView(bytes).sliced(mark->bytes.size()));
    result.encoding = QString::fromLatin1(QStringConverter::nameForEncoding(mark->encoding));
    result.badCharacters = countReplacements(result.text);
    return result;
  }
  QStringDecoder utf8(QStringConverter::Utf8, QStringConverter::Flag::Stateless);
  QString text = utf8(bytes);
  if (!utf8.hasError()) {
    result.text = std::move(text);
    result.encoding = QStringLiteral("UTF-8");
    return result;
  }
  const QByteArray detected = detectEncoding(bytes);
  for (const char* encoding : {detected.constData(), "WINDOWS-1252"}) {
    if (*encoding == '\0') continue;
    if (auto decoded = decodeWithIconv(bytes, encoding)) {
      decoded->guessed = true;
      return *decoded;
    }
  }
  result.text = std::move(text);
  result.encoding = QStringLiteral("UTF-8");
  result.guessed = true;
  result.badCharacters = countReplacements(result.text);
  return result;
}

}  // namespace longhand::app
