#include "engine/text/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/text/tokenizer_impl.h"

namespace longhand::engine {
namespace {

constexpr std::size_t kLimitBytes = std::size_t{256} << 20U;  // Llama-2's has half a MiB
constexpr std::string_view kBlankSign = "\xE2\x96\x81";       // U+2581, a blank inside of pieces

std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001B3U;
  }
  return hash;
}

std::string withBlanks(std::string piece) {
  for (std::size_t at = piece.find(kBlankSign); at != std::string::npos;
       at = piece.find(kBlankSign, at + 1)) {
    piece.replace(at, kBlankSign.size(), " ");
  }
  return piece;
}

/// "<0x0A>" -> '\n'.
char byteOfPiece(const std::string& piece) {
  return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
}

PieceText readPiece(const sentencepiece::SentencePieceProcessor& processor, int id) {
  const std::string& piece = processor.IdToPiece(id);
  if (processor.IsControl(id)) return {PieceKind::kControl, false, {}};
  if (processor.IsUnknown(id)) return {PieceKind::kUnknown, false, processor.DecodeIds({id})};
  if (processor.IsByte(id)) return {PieceKind::kByte, false, std::string(1, byteOfPiece(piece))};
  return {PieceKind::kText, piece.starts_with(kBlankSign), withBlanks(piece)};
}

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path& tokenizerModel)
    : impl_(std::make_unique<Impl>()) {
  const std::string contents = readTextFile(tokenizerModel, kLimitBytes);
  const auto status = impl_->processor.LoadFromSerializedProto(contents);
  if (!status.ok() || impl_->processor.GetPieceSize() == 0) {
    throw Error(ErrorCode::kFileDamaged,
                tokenizerModel.string() + ": this is no sentencepiece model, or it is damaged.",
                "Download the file again; Longhand reads tokenizer.model, not tokenizer.json.");
  }
  impl_->fingerprint = fnv1a(contents);
  const int nPieces = impl_->processor.GetPieceSize();
  impl_->pieces.reserve(static_cast<std::size_t>(nPieces));
  for (int id = 0; id < nPieces; ++id) impl_->pieces.push_back(readPiece(impl_->processor, id));

  impl_->findOutWhetherSliceable();

  // The header of sentencepiece does not tell the file's flags about blanks: see what two blanks
  // at the start become. Where no piece is a lone blank, the second flag makes no difference.
  const auto blank = std::find_if(
      impl_->pieces.begin(), impl_->pieces.end(),
      [](const PieceText& p) { return p.kind == PieceKind::kText && p.beginsWithBlank; });
  const auto loneBlank =
      std::find_if(impl_->pieces.begin(), impl_->pieces.end(), [](const PieceText& p) {
        return p.kind == PieceKind::kText && p.beginsWithBlank && p.text == " ";
      });
  if (blank == impl_->pieces.end()) return;
  const int blankId = static_cast<int>(blank - impl_->pieces.begin());
  impl_->removesLeadingBlank = impl_->processor.DecodeIds({blankId}) != blank->text;
  if (loneBlank == impl_->pieces.end()) return;
  const int loneBlankId = static_cast<int>(loneBlank - impl_->pieces.begin());
  impl_->removesAllLeadingBlanks = impl_->processor.DecodeIds({loneBlankId, loneBlankId}).empty();
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<std::int32_t> Tokenizer::Impl::encodeWhole(std::string_view text) const {
  std::vector<int> ids;
  const auto status = processor.Encode({text.data(), text.size()}, &ids);
  if (!status.ok()) {
    throw Error(ErrorCode::kInternal, "The tokenizer failed: " + status.ToString());
  }
  return ids;
}

std::vector<std::int32_t> Tokenizer::Impl::encodeBehind(std::string_view slice) const {
  // Behind a line feed, not at the start of a text, where a blank is added.
  std::vector<std::int32_t> ids = encodeWhole("\n" + std::string(slice));
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(lineFeedPrefix + 1));
  return ids;
}

void Tokenizer::Impl::findOutWhetherSliceable() {
  for (const PieceText& each : pieces) {
    if (each.kind == PieceKind::kText) boundaries.addPiece(each.text);
  }
  if (!boundaries.isLineFeedAlone()) return;
  // The line feed must come out as itself, at the end ...
  const std::vector<std::int32_t> lineFeed = encodeWhole("\n");
  if (lineFeed.empty()) return;
  const PieceText& last = pieces[static_cast<std::size_t>(lineFeed.back())];
  if (last.kind != PieceKind::kByte || last.text != "\n") return;
  lineFeedPrefix = lineFeed.size() - 1;
  // ... no blank may be dropped, at an end or beside others ...
  std::vector<std::int32_t> sliced = encodeWhole(" ");
  for (const std::string_view slice : {"\n  ", "\n "}) {
    const std::vector<std::int32_t> ids = encodeBehind(slice);
    sliced.insert(sliced.end(), ids.begin(), ids.end());
  }
  if (encodeWhole(" \n  \n ") != sliced) return;
  // ... and no character changed.
  std::string ascii = "\n";
  for (char character = ' '; character < '\x7F'; ++character) ascii += character;
  std::string decoded;
  for (const std::int32_t id : encodeBehind(ascii)) {
    decoded += pieces[static_cast<std::size_t>(id)].text;
  }
  isSliceable = decoded == ascii;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text,
                                            const EncodeOptions& options) const {
  std::vector<std::int32_t> ids;
  std::size_t done = 0;
  do {
    if (options.stop.stop_requested()) {
      throw Error(ErrorCode::kCancelled, "Stopped while the text was being encoded.");
    }
    std::size_t end = text.size();
    if (impl_->isSliceable && text.size() - done > options.sliceBytes) {
      end = impl_->boundaries.boundaryFrom(text, done + options.sliceBytes);
    }
    const std::string_view slice = text.substr(done, end - done);
    const std::vector<std::int32_t> more =
        done == 0 ? impl_->encodeWhole(slice) : impl_->encodeBehind(slice);
    ids.insert(ids.end(), more.begin(), more.end());
    done = end;
    if (options.progress) options.progress(done, text.size());
  } while (done < text.size());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::vector<int> known;
  known.reserve(ids.size());
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(known),
               [this](std::int32_t id) { return impl_->contains(id); });
  return impl_->processor.DecodeIds(known);
}

std::string Tokenizer::piece(std::int32_t id) const {
  if (!impl_->contains(id)) {
    throw Error(ErrorCode::kInvalidArgument, "Token " + std::to_string(id) +
                                                 " is not in the vocabulary of " +
                                                 std::to_string(vocabSize()) + " pieces.");
  }
  return impl_->processor.IdToPiece(id);
}

std::int32_t Tokenizer::vocabSize() const {
  return static_cast<std::int32_t>(impl_->pieces.size());
}

std::int32_t Tokenizer::bosToken() const { return impl_->processor.bos_id(); }

std::int32_t Tokenizer::eosToken() const { return impl_->processor.eos_id(); }

bool Tokenizer::isControl(std::int32_t id) const {
  return impl_->contains(id) &&
         impl_->pieces[static_cast<std::size_t>(id)].kind == PieceKind::kControl;
}

std::uint64_t Tokenizer::fingerprint() const { return impl_->fingerprint; }

}  // namespace longhand::engine
