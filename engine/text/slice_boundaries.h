#pragma once
// Where a text may be cut so that encoding the slices one by one gives the ids of the whole.
//
// Sentencepiece encodes a text in one go that cannot be stopped (1.4 s a MiB). But it joins
// characters only to pieces of its vocabulary: where two characters stand side by side in no piece,
// no piece of the result reaches over that place, and both sides are encoded as if alone. Pieces
// with a line feed exist in no Llama vocabulary (it becomes a byte piece), so beside a line feed a
// cut is always right; and letters that no piece has side by side are found every few words.

#include <bitset>
#include <cstddef>
#include <string_view>

namespace longhand::engine {

class SliceBoundaries {
 public:
  /// A piece of the vocabulary as text, blanks spelled ' '. To be called for each, once.
  void addPiece(std::string_view piece);

  /// No piece has a line feed; else isBoundary() means nothing.
  bool isLineFeedAlone() const { return !pieceWithLineFeed_; }
  /// Whether a cut before text[at] is right, 0 < at < text.size(). Beside a line feed, else only
  /// between two ASCII characters: what a normalizer does to others is not known.
  bool isBoundary(std::string_view text, std::size_t at) const;
  /// The first boundary at or behind `at`, or text.size().
  std::size_t boundaryFrom(std::string_view text, std::size_t at) const;

 private:
  static constexpr std::size_t kAscii = 128;

  std::bitset<kAscii * kAscii> neighbours_;  // [first][second] stand side by side in a piece
  bool pieceWithLineFeed_ = false;
};

}  // namespace longhand::engine
