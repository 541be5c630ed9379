#pragma once
// What the transcript shows of stored messages and documents: states in words, numbers in footers.

#include "app/chat_controller.h"
#include "ui/transcript/transcript_message.h"

namespace longhand::ui {

/// Message ids of the transcript are those of the database; a document's card has the id -id.
inline qint64 documentCardId(qint64 documentId) { return -documentId; }

/// "41.3 tokens/s, first token after 0.4 s, stopped by you".
QString answerFooter(const app::MessageStatistics& statistics, app::MessageState state,
                     const QString& stopReason);
/// "Reading 512 of 1,209 tokens, 3,200 tokens/s, 0.2 s left".
QString readingFooter(const engine::PrefillProgress& progress);
/// 0 to 1; 1 where there is nothing to read.
double readingShare(const engine::PrefillProgress& progress);

/// `isLast`: the newest message of the branch: an answer that can be asked for again.
TranscriptMessage displayMessage(const app::Message& message, bool isLast);
TranscriptMessage displayDocument(const app::Document& document);

}  // namespace longhand::ui
