#pragma once
// The transcript for screen readers: a list whose children are the messages.

namespace longhand::ui {

/// Makes Qt ask this file for the interface of each TranscriptView. May be called again.
void installTranscriptAccessibility();

}  // namespace longhand::ui
