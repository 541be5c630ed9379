#pragma once
// Whether the document that was opened, and is not used yet, fits the open chat as it is now.

#include <optional>

#include <QString>

#include "app/chat_controller.h"

namespace longhand::ui {

/// The pending document with today's numbers: chat, preset, context and memory may have changed
/// since it was opened. Nothing when no document is pending.
std::optional<app::DocumentPreview> pendingDocument(const app::ChatController& controller);

/// Tokens of the chat, the document and an answer; 0 while they are not known.
qint64 neededContext(const app::DocumentPreview& preview);

/// Why the document cannot become part of the chat, with both numbers; empty when it can.
QString documentRefusal(const app::DocumentPreview& preview);

}  // namespace longhand::ui
