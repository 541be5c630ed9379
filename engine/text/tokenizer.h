#pragma once
// Text to token ids and back, by the model's own sentencepiece file (tokenizer.model).
//
// Text never becomes a control token: "</s>" typed by a user or standing in a document is encoded
// as ordinary pieces. BOS and EOS are only added by callers who mean them.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace longhand::engine {

/// A long text is encoded slice by slice, with the ids that it has as a whole.
struct EncodeOptions {
  std::stop_token stop;  // asked before each slice, that is, some ten times a second
  std::function<void(std::uint64_t doneBytes, std::uint64_t totalBytes)> progress;  // likewise
  std::size_t sliceBytes = std::size_t{1} << 16U;  // and what follows up to a place to cut
};

class Tokenizer {
 public:
  /// Throws Error (kFileNotFound, kFileUnreadable, kFileDamaged).
  explicit Tokenizer(const std::filesystem::path& tokenizerModel);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // All const functions may be called from several threads at once.

  /// No BOS, no EOS. Bad UTF-8 becomes U+FFFD, byte by byte. Throws kCancelled. A text without a
  /// place to cut (slice_boundaries.h; such as one letter over and over) is one slice.
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// Control tokens, and ids outside the vocabulary (a model's table may be padded), give no text.
  /// A leading blank added by encode is removed.
  std::string decode(std::span<const std::int32_t> ids) const;
  /// The piece as the model file spells it ("▁the", "<0x0A>"). Throws kInvalidArgument.
  std::string piece(std::int32_t id) const;

  std::int32_t vocabSize() const;
  std::int32_t bosToken() const;  // -1 where the file has none
  std::int32_t eosToken() const;  // likewise
  bool isControl(std::int32_t id) const;
  /// FNV-1a of the file, for fingerprints of saved sessions.
  std::uint64_t fingerprint() const;

 private:
  friend class StreamDetokenizer;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Turns ids into text one at a time, and never emits half a character: bytes of an incomplete
/// UTF-8 sequence are held back until they are complete or can no longer become so (then U+FFFD).
/// The concatenation of all returned strings equals Tokenizer::decode of all ids.
class StreamDetokenizer {
 public:
  /// `tokenizer` must outlive this object.
  explicit StreamDetokenizer(const Tokenizer& tokenizer);

  std::string append(std::int32_t id);
  /// What was held back, as U+FFFD; the object is then as new.
  std::string finish();

 private:
  std::string takeBytes(bool isRunComplete);

  const Tokenizer* tokenizer_;
  std::string pending_;     // bytes of byte pieces not yet returned: at most 3 between calls
  bool isAtStart_ = true;   // a leading blank is still to be removed
  bool sawBlank_ = false;   // the last piece was, or began with, a blank that was removed
  bool hasOutput_ = false;  // some text was returned
};

}  // namespace longhand::engine
