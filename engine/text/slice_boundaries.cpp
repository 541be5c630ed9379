#include "engine/text/slice_boundaries.h"

namespace longhand::engine {

void SliceBoundaries::addPiece(std::string_view piece) {
  for (std::size_t i = 0; i < piece.size(); ++i) {
    if (piece[i] == '\n') pieceWithLineFeed_ = true;
    if (i == 0) continue;
    const auto first = static_cast<unsigned char>(piece[i - 1]);
    const auto second = static_cast<unsigned char>(piece[i]);
    if (first < kAscii && second < kAscii) neighbours_.set(first * kAscii + second);
  }
}

bool SliceBoundaries::isBoundary(std::string_view text, std::size_t at) const {
  const auto first = static_cast<unsigned char>(text[at - 1]);
  const auto second = static_cast<unsigned char>(text[at]);
  if (first == '\n' || second == '\n') return true;
  return first < kAscii && second < kAscii && !neighbours_.test(first * kAscii + second);
}

std::size_t SliceBoundaries::boundaryFrom(std::string_view text, std::size_t at) const {
  if (at == 0) at = 1;
  while (at < text.size() && !isBoundary(text, at)) ++at;
  return at < text.size() ? at : text.size();
}

}  // namespace longhand::engine
