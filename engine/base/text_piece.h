#pragma once
// A stretch of a prompt that knows who wrote it, so that a document can never end a turn.

#include <cstdint>
#include <string>

namespace longhand::engine {

/// Only what a model's template wrote may become control tokens.
enum class TextOrigin : std::uint8_t { kTemplate, kUser };

/// UTF-8 of one origin. A prompt is a list of them in order; neighbours may share an origin.
struct TextPiece {
  std::string text;
  TextOrigin origin = TextOrigin::kUser;

  bool operator==(const TextPiece&) const = default;
};

}  // namespace longhand::engine
