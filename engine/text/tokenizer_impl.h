#pragma once
// What Tokenizer holds; shared by tokenizer.cpp and stream_detokenizer.cpp only.

#include <sentencepiece_processor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/slice_boundaries.h"
#include "engine/text/tokenizer.h"

namespace longhand::engine {

enum class PieceKind : std::uint8_t { kText, kByte, kControl, kUnknown };

/// A piece as decoding needs it.
struct PieceText {
  PieceKind kind = PieceKind::kText;
  bool beginsWithBlank = false;  // the piece begins with the blank's own sign, U+2581
  std::string text;              // blanks spelled as ' '; the byte of a byte piece
};

struct Tokenizer::Impl {
  sentencepiece::SentencePieceProcessor processor;
  std::vector<PieceText> pieces;  // [vocab]
  // Flags of the model file that sentencepiece does not tell; found by trying (see tokenizer.cpp).
  bool removesLeadingBlank = true;       // one blank in front is dropped when decoding
  bool removesAllLeadingBlanks = false;  // likewise all of them (remove_extra_whitespaces)
  std::uint64_t fingerprint = 0;
  SliceBoundaries boundaries;
  std::size_t lineFeedPrefix = 0;  // ids that encodeWhole("\n") gives in front of the line feed
  bool isSliceable = false;        // nothing in the file makes a slice depend on the others

  std::vector<std::int32_t> encodeWhole(std::string_view text) const;
  /// The ids that a slice has behind others.
  std::vector<std::int32_t> encodeBehind(std::string_view slice) const;
  void findOutWhetherSliceable();

  bool contains(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < pieces.size();
  }
};

}  // namespace longhand::engine
