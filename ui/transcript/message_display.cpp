#include "ui/transcript/message_display.h"

#include <QCoreApplication>

#include "ui/style/format.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

QString tr(const char* text) { return QCoreApplication::translate("longhand::ui::Message", text); }

/// Why an answer ended; empty for the usual end.
QString stopReasonText(app::MessageState state, const QString& stopReason) {
  if (stopReason == u"cancelled"_s) return tr("stopped by you");
  if (stopReason == u"token_limit"_s) return tr("stopped at the longest answer of the settings");
  if (stopReason == u"context_full"_s) return tr("stopped because the context is full");
  if (stopReason == u"interrupted"_s) return tr("interrupted when Longhand ended");
  if (state == app::MessageState::kFailed) {
    return stopReason.isEmpty() ? tr("failed") : tr("failed: %1").arg(stopReason);
  }
  if (state == app::MessageState::kStopped) return tr("stopped");
  return {};
}

TranscriptState displayState(const app::Message& message) {
  switch (message.state) {
    case app::MessageState::kComplete:
      return TranscriptState::kComplete;
    case app::MessageState::kStreaming:
      return message.text.isEmpty() ? TranscriptState::kWaiting : TranscriptState::kStreaming;
    case app::MessageState::kStopped:
      return TranscriptState::kStopped;
    case app::MessageState::kFailed:
      return TranscriptState::kFailed;
  }
  return TranscriptState::kComplete;
}

}  // namespace

QString answerFooter(const app::MessageStatistics& statistics, app::MessageState state,
                     const QString& stopReason) {
  QStringList parts;
  if (statistics.tokensPerSecond > 0.0) parts << formatRate(statistics.tokensPerSecond);
  if (statistics.firstTokenSeconds > 0.0) {
    parts << tr("first token after %1").arg(formatDuration(statistics.firstTokenSeconds));
  }
  const QString reason = stopReasonText(state, stopReason);
  if (!reason.isEmpty()) parts << reason;
  return parts.join(u" \u00b7 "_s);
}

QString readingFooter(const engine::PrefillProgress& progress) {
  QString text = tr("Reading %1 of %2")
                     .arg(formatCount(progress.tokensDone), formatTokens(progress.tokensTotal));
  if (progress.tokensPerSecond > 0.0) {
    text += tr(", %1, %2 left")
                .arg(formatRate(progress.tokensPerSecond), formatDuration(progress.secondsLeft));
  }
  if (progress.tokensReused > 0) {
    text += tr(" (%1 known already)").arg(formatCount(progress.tokensReused));
  }
  return text;
}

double readingShare(const engine::PrefillProgress& progress) {
  if (progress.tokensTotal <= 0) return 1.0;
  return static_cast<double>(progress.tokensDone) / static_cast<double>(progress.tokensTotal);
}

TranscriptMessage displayMessage(const app::Message& message, bool isLast) {
  const bool isAnswer = message.role == app::MessageRole::kAssistant;
  TranscriptMessage result;
  result.id = message.id;
  result.role = isAnswer ? TranscriptRole::kAssistant : TranscriptRole::kUser;
  result.state = displayState(message);
  result.text = message.text;
  if (isAnswer && message.state != app::MessageState::kStreaming) {
    result.footer = answerFooter(message.statistics, message.state, message.stopReason);
  }
  result.branchIndex = message.siblingIndex;
  result.branchCount = std::max(1, static_cast<int>(message.siblingIds.size()));
  result.canEdit = !isAnswer;
  result.canRetry = isAnswer && isLast && message.state != app::MessageState::kStreaming;
  return result;
}

TranscriptMessage displayDocument(const app::Document& document) {
  TranscriptMessage result;
  result.id = documentCardId(document.id);
  result.role = TranscriptRole::kDocument;
  result.title = document.fileName;
  QStringList facts = {formatTokens(document.tokenCount),
                       tr("%1 characters").arg(formatCount(document.text.size()))};
  if (!document.encoding.isEmpty()) facts << document.encoding;
  result.text = facts.join(u" \u00b7 "_s);
  result.canEdit = false;
  return result;
}

}  // namespace longhand::ui
