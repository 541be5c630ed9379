#include "engine/text/chat_template.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/utf8.h"

namespace longhand::engine {
namespace {

/// The tags' names as Meta's program has them.
constexpr std::string_view kUserBegin = "[INST]";
constexpr std::string_view kUserEnd = "[/INST]";
constexpr std::string_view kSystemBegin = "<<SYS>>\n";
constexpr std::string_view kSystemEnd = "\n<</SYS>>\n\n";

bool isFinished(const ChatTurn& turn) {
  return turn.answer.has_value() || !turn.answerTokens.empty();
}

/// The user's part of a turn. A system text belongs to the message, which is stripped as a whole.
std::string userPart(std::string_view system, std::string_view user) {
  std::string message;
  if (!system.empty()) message.append(kSystemBegin).append(system).append(kSystemEnd);
  message += user;
  std::string part(kUserBegin);
  part.append(" ").append(stripWhiteSpace(message)).append(" ").append(kUserEnd);
  return part;
}

void append(std::vector<std::int32_t>& ids, std::span<const std::int32_t> more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

void appendControl(std::vector<std::int32_t>& ids, std::int32_t token) {
  if (token >= 0) ids.push_back(token);
}

}  // namespace

std::vector<std::int32_t> encodeChat(const Tokenizer& tokenizer, std::string_view system,
                                     std::span<const ChatTurn> turns,
                                     const EncodeOptions& options) {
  if (turns.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "A chat needs at least one message.");
  }
  if (!std::all_of(turns.begin(), turns.end() - 1, isFinished)) {
    throw Error(ErrorCode::kInvalidArgument, "Only the last message of a chat may be unanswered.");
  }
  std::vector<std::int32_t> ids;
  for (const ChatTurn& turn : turns) {
    const bool isFirst = &turn == turns.data();
    std::string text = userPart(isFirst ? system : std::string_view(), turn.user);
    appendControl(ids, tokenizer.bosToken());
    if (!isFinished(turn)) {
      append(ids, tokenizer.encode(text, options));
    } else if (!turn.answerTokens.empty()) {
      append(ids, tokenizer.encode(text, options));
      append(ids, turn.answerTokens);
      appendControl(ids, tokenizer.eosToken());
    } else {
      text.append(" ").append(stripWhiteSpace(*turn.answer)).append(" ");
      append(ids, tokenizer.encode(text, options));
      appendControl(ids, tokenizer.eosToken());
    }
  }
  return ids;
}

std::string firstUserMessage(std::span<const ChatDocument> documents, std::string_view question) {
  std::string message;
  for (const ChatDocument& document : documents) {
    std::string fileName = document.fileName;
    std::replace_if(
        fileName.begin(), fileName.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    message.append("Document \"").append(fileName).append("\":\n");
    message.append(stripWhiteSpace(document.text)).append("\n\n");
  }
  return message.append(stripWhiteSpace(question));
}

}  // namespace longhand::engine
