#include "engine/base/utf8.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_impl.h"

namespace longhand::engine {

StreamDetokenizer::StreamDetokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

/// The characters that the held back bytes surely are. A run of byte pieces that is complete gets
/// one U+FFFD for each byte that belongs to no character, as sentencepiece's decoder does.
std::string StreamDetokenizer::takeBytes(bool isRunComplete) {
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Character character = firstCharacter(rest);
    if (character.kind == Utf8Start::kComplete) {
      text += rest.substr(0, character.nBytes);
      rest.remove_prefix(character.nBytes);
    } else if (character.kind == Utf8Start::kIncomplete && !isRunComplete) {
      break;
    } else {
      text += kReplacementCharacter;
      rest.remove_prefix(1);
    }
  }
  pending_.erase(0, pending_.size() - rest.size());
  hasOutput_ = hasOutput_ || !text.empty();
  return text;
}

std::string StreamDetokenizer::append(std::int32_t id) {
  const Tokenizer::Impl& impl = *tokenizer_->impl_;
  if (!impl.contains(id)) return {};
  const PieceText& piece = impl.pieces[static_cast<std::size_t>(id)];
  if (piece.kind == PieceKind::kByte) {
    pending_ += piece.text;
    return takeBytes(false);
  }

  std::string text = takeBytes(true);
  if (sawBlank_ || hasOutput_) isAtStart_ = false;
  const bool removesBlank = isAtStart_ && piece.beginsWithBlank && impl.removesLeadingBlank;
  text += removesBlank ? piece.text.substr(1) : piece.text;
  sawBlank_ = removesBlank && !impl.removesAllLeadingBlanks;
  hasOutput_ = hasOutput_ || !text.empty();
  return text;
}

std::string StreamDetokenizer::finish() {
  std::string text = takeBytes(true);
  *this = StreamDetokenizer(*tokenizer_);
  return text;
}

}  // namespace longhand::engine
