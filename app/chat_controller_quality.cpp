// "Check quality": what is measured, and how a check ends.
#include <tuple>
#include <utility>

#include "app/chat_controller_impl.h"

namespace longhand::app {

using engine::ErrorCode;

std::pair<QString, QString> ChatController::Impl::textToCheck() const {
  if (pending) {
    const DocumentContent& content = pending->preview.content;
    return {content.fileName, content.text};
  }
  QStringList names;
  QStringList texts;
  for (const Document& document : currentDocuments()) {
    names << document.fileName;
    texts << document.text;
  }
  if (texts.isEmpty()) {
    for (const Message& message : currentBranch()) texts << message.text;
    if (!texts.isEmpty()) names << QStringLiteral("This chat");
  }
  if (texts.isEmpty()) {
    throwError(ErrorCode::kInvalidArgument,
               QStringLiteral("There is no text to check the quality on."),
               QStringLiteral("Open a document first."));
  }
  return {names.join(QStringLiteral(", ")), texts.join(QStringLiteral("\n\n"))};
}

void ChatController::Impl::stopQualityCheck(const QString& reason) {
  if (!qualityCheck || !qualityCheck->stopReason.isEmpty()) return;
  qualityCheck->stopReason = reason;
  qualityCheck->job.cancel();
}

void ChatController::Impl::onQualityChecked(const Outcome<QualityCheckResult>& outcome) {
  const QString reason = std::exchange(qualityCheck, std::nullopt)->stopReason;
  updateActivity();
  if (outcome) {
    emit owner.qualityChecked(*outcome);
  } else if (outcome.isCancelled()) {
    emit owner.qualityFailed(reason, {});
  } else {
    emit owner.qualityFailed(outcome.error().message, outcome.error().hint);
  }
}

// --- Slots --------------------------------------------------------------------------------------

void ChatController::checkQuality() {
  try {
    if (impl_->qualityCheck && impl_->qualityCheck->stopReason.isEmpty()) return;
    impl_->requireReadyToAnswer();
    if (impl_->reading || impl_->presetSwitch) {
      throwError(ErrorCode::kInvalidArgument, QStringLiteral("The chat is still being read."),
                 QStringLiteral("Check the quality when that is done."));
    }
    QualityCheckRequest request;
    std::tie(request.textName, request.text) = impl_->textToCheck();
    const QString custom = QString::fromUtf16(kCustomPresetId);
    for (const PresetInfo& preset : impl_->presets()) {
      if (preset.id != custom || impl_->presetId == custom) request.presets.push_back(preset);
    }
    impl_->qualityCheck.emplace();
    impl_->qualityCheck->job = impl_->worker->checkQuality(
        std::move(request),
        [this](const QualityCheckProgress& progress) {
          if (impl_->qualityCheck->stopReason.isEmpty()) emit qualityProgress(progress);
        },
        [this](const Outcome<QualityCheckResult>& outcome) { impl_->onQualityChecked(outcome); });
  } catch (...) {
    const ErrorText error = currentErrorText();
    emit qualityFailed(error.message, error.hint);
    return;
  }
  impl_->updateActivity();
}

void ChatController::cancelQualityCheck() {
  impl_->stopQualityCheck(QStringLiteral("The check was stopped."));
}

}  // namespace longhand::app
