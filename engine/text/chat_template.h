#pragma once
// The Llama-2-chat format, turn by turn, as Meta's program encodes it:
//   BOS [INST] <<SYS>>\n{system}\n<</SYS>>\n\n{user} [/INST] {answer} EOS   BOS [INST] {user}
//   [/INST]
// Each finished pair is encoded apart from the others; user text, answers and documents are
// stripped and always encoded as plain text, so tags in them are only characters.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace longhand::engine {

/// One user message and, unless it is the open turn, its answer.
struct ChatTurn {
  std::string user;
  std::optional<std::string> answer;
  /// When not empty: the ids the model itself generated for the answer, without EOS. They are used
  /// instead of encoding `answer` again, so that the cache's tokens match on the next turn.
  std::vector<std::int32_t> answerTokens;
};

/// Ids of a whole chat, ready for prefill. Only the last turn may be open. Throws kInvalidArgument
/// for an open turn in the middle or no turns, and kCancelled. The progress is that of each text.
std::vector<std::int32_t> encodeChat(const Tokenizer& tokenizer, std::string_view system,
                                     std::span<const ChatTurn> turns,
                                     const EncodeOptions& options = {});

struct ChatDocument {
  std::string fileName;
  std::string text;
};

/// The first user message of a chat about documents: for each document `Document "{file name}":`, a
/// newline, the text, an empty line; then the question. So documents are a common prefix.
std::string firstUserMessage(std::span<const ChatDocument> documents, std::string_view question);

}  // namespace longhand::engine
