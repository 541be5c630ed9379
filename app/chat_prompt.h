#pragma once
// From what is stored to what the model reads: documents and a branch of messages as chat turns.

#include <cstdint>
#include <optional>
#include <vector>

#include <QString>

#include "app/conversation_store.h"
#include "app/document_store.h"
#include "app/engine_worker.h"

namespace longhand::app {

/// The turns of a branch (root to leaf), with the documents in front of the first question.
/// `question` is asked after the branch; without one the branch itself is the prompt. With neither
/// messages nor a question, the prompt is the documents alone: a prefix of any question about them.
/// Stored ids of answers are used where they come from the tokenizer `tokenizerFingerprint`; else
/// the text is encoded again.
ChatPrompt buildPrompt(const std::vector<Document>& documents, const std::vector<Message>& branch,
                       const std::optional<QString>& question, std::uint64_t tokenizerFingerprint);

/// A document as it stands in the prompt, to count its tokens.
QString documentInPrompt(const QString& fileName, const QString& text);

/// The first line of a question, at most about 60 characters, cut between words.
QString titleFromQuestion(const QString& question);

}  // namespace longhand::app
