#pragma once
// One entry of the transcript, as the view is told about it.

#include <QMetaType>
#include <QString>

namespace longhand::ui {

enum class TranscriptRole {
  kUser,       // plain text, in a bubble
  kAssistant,  // Markdown
  kNotice,     // one or two sentences from the program itself
  kDocument,   // a card: `title` is the file, `text` its facts
};

enum class TranscriptState {
  kComplete,
  kWaiting,    // nothing generated yet; `progress` and `footer` say how far reading is
  kStreaming,  // text grows
  kStopped,    // the user stopped it, text is kept
  kFailed,     // `footer` says why
};

struct TranscriptMessage {
  qint64 id = 0;  // unique in the view
  TranscriptRole role = TranscriptRole::kUser;
  TranscriptState state = TranscriptState::kComplete;
  QString title;          // document: its file name
  QString text;           // what the user or the model wrote
  QString footer;         // "12.3 tokens/s, first token after 0.4 s, stopped by you"
  double progress = -1;   // 0 to 1 draws a bar (waiting messages and documents); below 0: none
  int branchIndex = 0;    // which of its siblings is shown, from 0
  int branchCount = 1;    // 1: no siblings, no arrows
  bool canEdit = true;    // a user's message: offer "Edit"
  bool canRetry = false;  // offer "Regenerate" (the last answer)

  bool operator==(const TranscriptMessage&) const = default;
};

}  // namespace longhand::ui
