#include "app/chat_prompt.h"

#include <utility>

namespace longhand::app {

namespace {

std::vector<engine::ChatDocument> chatDocuments(const std::vector<Document>& documents) {
  std::vector<engine::ChatDocument> result;
  result.reserve(documents.size());
  for (const Document& document : documents) {
    result.push_back({document.fileName.toStdString(), document.text.toStdString()});
  }
  return result;
}

}  // namespace

ChatPrompt buildPrompt(const std::vector<Document>& documents, const std::vector<Message>& branch,
                       const std::optional<QString>& question, std::uint64_t tokenizerFingerprint) {
  ChatPrompt prompt;
  const auto ask = [&](const QString& text) {
    // A question that never got an answer (a crash before the first token) stays one without.
    if (!prompt.turns.empty() && !prompt.turns.back().answer) prompt.turns.back().answer = "";
    const bool isFirst = prompt.turns.empty();
    prompt.turns.push_back(
        {isFirst && !documents.empty()
             ? engine::firstUserMessage(chatDocuments(documents), text.toStdString())
             : text.toStdString(),
         std::nullopt,
         {}});
  };
  for (const Message& message : branch) {
    if (message.role == MessageRole::kUser) {
      ask(message.text);
    } else if (!prompt.turns.empty()) {
      engine::ChatTurn& turn = prompt.turns.back();
      turn.answer = message.text.toStdString();
      if (message.tokenizerFingerprint == tokenizerFingerprint) turn.answerTokens = message.tokens;
    }
  }
  if (question) {
    ask(*question);
  } else if (prompt.turns.empty()) {
    ask(QString());
  }
  return prompt;
}

QString documentInPrompt(const QString& fileName, const QString& text) {
  const engine::ChatDocument document{fileName.toStdString(), text.toStdString()};
  return QString::fromStdString(engine::firstUserMessage({&document, 1}, {}));
}

QString titleFromQuestion(const QString& question) {
  constexpr qsizetype kLongest = 60;
  const QString line = question.trimmed().section(QLatin1Char('\n'), 0, 0).simplified();
  if (line.size() <= kLongest) return line;
  qsizetype end = line.lastIndexOf(QLatin1Char(' '), kLongest - 1);
  if (end < kLongest / 2) end = kLongest - 1;  // one long word, or a script without blanks
  if (line.at(end - 1).isHighSurrogate()) --end;
  return line.left(end) + QStringLiteral("…");
}

}  // namespace longhand::app
