#pragma once
// The project's one error type. Thrown in engine and app, caught where a thread or a program ends.
//
//   throw Error(ErrorCode::kFileDamaged, "model.safetensors: header ends after 12 of 900 bytes",
//               "Download the file again.");

#include <exception>
#include <string>
#include <utility>

namespace longhand::engine {

enum class ErrorCode {
  kInvalidArgument,  // the caller's or the user's value is out of range
  kFileNotFound,
  kFileUnreadable,    // exists, but cannot be opened or read
  kFileUnwritable,    // cannot be made, written or replaced: permissions, a full disk
  kFileDamaged,       // contents contradict themselves or their format
  kUnsupportedModel,  // well-formed, but of a kind this engine does not run
  kOutOfMemory,
  kContextFull,  // the tokens do not fit the context length
  kCancelled,    // the user stopped it
  kDevice,       // the processor or its driver failed
  kDatabase,
  kInternal,  // a bug of ours
};

/// `message` is one sentence that names what is wrong and where; `hint` says what to do about it
/// (may be empty). Both are for people and hold no line breaks.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, std::string hint = {})
      : code_(code), message_(std::move(message)), hint_(std::move(hint)) {}

  ErrorCode code() const noexcept { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const noexcept { return message_; }
  const std::string& hint() const noexcept { return hint_; }
  /// Message and hint in one line.
  std::string line() const { return hint_.empty() ? message_ : message_ + " " + hint_; }

 private:
  ErrorCode code_;
  std::string message_;
  std::string hint_;
};

}  // namespace longhand::engine
