// Sending, answers and branches.
#include <algorithm>
#include <utility>

#include "app/chat_controller_impl.h"

namespace longhand::app {

using engine::ErrorCode;

void ChatController::Impl::connectStoreTimer() {
  connect(&storeTimer, &QTimer::timeout, &owner, [this] {
    if (!answer || !answer->isDirty) return;
    const bool isStored = guarded([this] {
      conversationStore.updateStreaming(answer->message.id, answer->message.text);
      answer->isDirty = false;
    });
    if (!isStored) storeTimer.stop();  // said once, not twice a second
  });
}

void ChatController::Impl::requireReadyToAnswer() const {
  if (answer) {
    throwError(ErrorCode::kInvalidArgument, QStringLiteral("An answer is being written."),
               QStringLiteral("Wait for its end, or stop it."));
  }
  if (load.isUnderWay()) {
    throwError(ErrorCode::kInvalidArgument, QStringLiteral("The model is still being loaded."),
               QStringLiteral("Send the message when it is ready."));
  }
  if (!model) {
    throwError(ErrorCode::kInvalidArgument, QStringLiteral("No model is loaded."),
               QStringLiteral("Choose a model folder first."));
  }
}

void ChatController::Impl::beginAnswer(Answer started) {
  requireReadyToAnswer();
  // What has been read ahead so far is used by the answer's own prefill.
  if (reading) owner.cancelReading();
  stopQualityCheck(QStringLiteral("The check was stopped: a question was asked."));
  started.createsConversation = conversationId == 0;
  started.conversationId = ensureConversation();
  if (started.question && !started.opensBranch) {
    conversationStore.setDraft(conversationId, *started.question);  // until it is a message
  }
  started.sinceSend.start();
  recounts.clear();
  measure = {};  // the answer counts anew
  const std::vector<Message> branch =
      started.parentId == 0 ? std::vector<Message>{} : conversationStore.branchTo(started.parentId);
  cache.prepare();
  started.encode = worker->encodePrompt(
      buildPrompt(currentDocuments(), branch, started.question, model->tokenizerFingerprint),
      [this](const Outcome<EncodedPrompt>& prompt) {
        guarded([&] { prompt ? onAnswerEncoded(*prompt) : refuseAnswer(prompt.error()); });
      });
  answer = std::move(started);
  updateActivity();
}

void ChatController::Impl::refuseAnswer(const ErrorText& error) {
  const Answer refused = *std::exchange(answer, std::nullopt);
  updateActivity();
  guarded([&] { takeBackConversation(refused); });
  if (error.code != ErrorCode::kCancelled) reportError(error);
  if (refused.question) emit owner.sendRefused(*refused.question);
  measureContext();
}

/// A question that was refused leaves no empty chat behind, but a draft.
void ChatController::Impl::takeBackConversation(const Answer& refused) {
  const std::int64_t id = refused.conversationId;
  if (!refused.createsConversation || !refused.question || !settings.newChatDraft.isEmpty() ||
      !documentStore.documentsOf(id).empty()) {
    return;
  }
  conversationStore.deleteConversation(id);
  settings.newChatDraft = *refused.question;
  if (conversationId == id) {
    conversationId = 0;  // so that the new chat keeps the context length, too
    openConversation(0);
  } else {
    settingsStore.save(settings);
  }
  emit owner.conversationListChanged();
}

void ChatController::Impl::onAnswerEncoded(const EncodedPrompt& prompt) {
  if (answer->stopRequested) {
    refuseAnswer({ErrorCode::kCancelled, QStringLiteral("Stopped."), {}});
    return;
  }
  const auto nTokens = static_cast<std::int64_t>(prompt.tokens.size());
  if (const std::optional<ErrorText> refusal = contextRefusal(nTokens)) {
    refuseAnswer(*refusal);
    return;
  }
  try {
    storeQuestionAndAnswer();
  } catch (...) {
    refuseAnswer(currentErrorText());
    return;
  }
  answer->encodeSeconds = static_cast<double>(answer->sinceSend.elapsed()) / 1000.0;
  answer->message.statistics.promptTokens = nTokens;
  answer->message.statistics.reusedTokens = prompt.reusableTokens;
  answer->generate = worker->generate(
      prompt.tokens, generateOptions(),
      [this](const engine::PrefillProgress& progress) { emit owner.prefillProgress(progress); },
      [this](const AnswerPiece& piece) { onAnswerGrew(piece); },
      [this](const Outcome<engine::GenerateResult>& outcome) { onAnswerFinished(outcome); });
  cache.belongsTo(answer->conversationId, prompt.reusableTokens);
  storeTimer.start();
  if (isAnsweringHere()) setUsedTokens(nTokens);
  emit owner.generationStarted(answer->message.id);
}

void ChatController::Impl::storeQuestionAndAnswer() {
  const bool isShown = answer->conversationId == conversationId;
  std::int64_t questionId = answer->parentId;
  if (answer->question) {
    questionId = conversationStore.addUserMessage(answer->conversationId, answer->parentId,
                                                  *answer->question);
    conversationStore.setDraft(answer->conversationId, {});
    if (conversationStore.conversation(answer->conversationId).title.isEmpty()) {
      conversationStore.setTitle(answer->conversationId, titleFromQuestion(*answer->question));
    }
  }
  const std::int64_t answerId = conversationStore.addAnswer(answer->conversationId, questionId);
  answer->message = conversationStore.message(answerId);
  emit owner.conversationListChanged();
  if (!isShown) return;
  if (answer->opensBranch) {
    emit owner.conversationOpened(answer->conversationId);
    return;
  }
  if (answer->question) emit owner.messageAdded(conversationStore.message(questionId));
  emit owner.messageAdded(answer->message);
}

void ChatController::Impl::onAnswerGrew(const AnswerPiece& piece) {
  answer->message.text += piece.text;
  answer->message.statistics.answerTokens += piece.newTokens;
  answer->isDirty = true;
  if (isAnsweringHere()) setUsedTokens(tokensOf(answer->message));
  emit owner.messageChanged(answer->message.id, answer->message.text, MessageState::kStreaming);
}

void ChatController::Impl::onAnswerFinished(const Outcome<engine::GenerateResult>& outcome) {
  if (!outcome) {
    endAnswer(outcome.isCancelled() ? MessageState::kStopped : MessageState::kFailed,
              outcome.isCancelled() ? QStringLiteral("cancelled") : outcome.error().message);
    if (!outcome.isCancelled()) reportError(outcome.error());
    return;
  }
  const engine::GenerateResult& result = *outcome;
  Message& message = answer->message;
  // Blanks at the ends belong to the template; the ids keep them.
  message.text = QString::fromStdString(result.text).trimmed();
  message.tokens = result.tokens;
  message.tokenizerFingerprint = model ? model->tokenizerFingerprint : 0;
  message.statistics.promptTokens = result.promptTokens;
  message.statistics.reusedTokens = result.reusedTokens;
  message.statistics.answerTokens = static_cast<std::int64_t>(result.tokens.size());
  message.statistics.firstTokenSeconds = answer->encodeSeconds + result.firstTokenSeconds;
  message.statistics.tokensPerSecond = result.decodeTokensPerSecond;
  message.statistics.prefillTokensPerSecond = result.prefillTokensPerSecond;
  cache.computed(result.promptTokens - result.reusedTokens + message.statistics.answerTokens);
  const bool isCancelled = result.stopReason == engine::StopReason::kCancelled;
  const std::string_view reason = engine::stopReasonName(result.stopReason);
  endAnswer(isCancelled ? MessageState::kStopped : MessageState::kComplete,
            QString::fromUtf8(reason.data(), static_cast<qsizetype>(reason.size())));
}

void ChatController::Impl::endAnswer(MessageState state, const QString& stopReason) {
  storeTimer.stop();
  Message message = std::exchange(answer, std::nullopt)->message;
  message.state = state;
  message.stopReason = stopReason;
  guarded([&] { conversationStore.finishAnswer(message); });
  if (message.conversationId == conversationId) setUsedTokens(tokensOf(message));
  if (message.statistics.prefillTokensPerSecond > 0.0) {
    lastPrefillTokensPerSecond = message.statistics.prefillTokensPerSecond;
  }
  emit owner.messageChanged(message.id, message.text, state);
  emit owner.generationFinished(message.id, message.statistics, stopReason);
  emit owner.conversationListChanged();
  updateActivity();
  recountDocuments();
  refreshPendingDocument();
}

/// The last token of an answer that has filled the context is not in it any more.
std::int64_t ChatController::Impl::tokensOf(const Message& message) const {
  const std::int64_t tokens = message.statistics.promptTokens + message.statistics.answerTokens;
  return std::min(tokens, std::max(allowedContext(), message.statistics.promptTokens));
}

void ChatController::Impl::storeInterruptedAnswer() {
  if (!answer || answer->message.id == 0) return;
  answer->message.state = MessageState::kStopped;
  answer->message.stopReason = QStringLiteral("interrupted");
  try {
    conversationStore.finishAnswer(answer->message);
  } catch (const engine::Error&) {
    // The window is gone; what was stored within the last second stays.
  }
}

engine::GenerateOptions ChatController::Impl::generateOptions() const {
  engine::GenerateOptions options;
  options.sampler = settings.sampler;
  options.maxTokens = settings.maxAnswerTokens;
  // Another answer to the same question draws other numbers, the same ones each time.
  if (answer) options.sampler.seed += static_cast<std::uint64_t>(answer->message.siblingIndex);
  if (model && model->isDemo) options.sampler.temperature = 0.0;  // it was trained to be exact
  return options;
}

// --- Slots --------------------------------------------------------------------------------------

void ChatController::send(const QString& text) {
  const bool isBegun = impl_->guarded([&] {
    if (text.trimmed().isEmpty()) {
      throwError(ErrorCode::kInvalidArgument, QStringLiteral("The message is empty."));
    }
    Impl::Answer answer;
    answer.question = text;
    if (impl_->conversationId != 0) {
      answer.parentId = impl_->conversationStore.conversation(impl_->conversationId).activeLeafId;
    }
    impl_->beginAnswer(std::move(answer));
  });
  if (!isBegun) emit sendRefused(text);
}

void ChatController::stop() {
  if (impl_->answer) {
    impl_->answer->stopRequested = true;
    if (impl_->answer->generate.isUnderWay()) {
      impl_->answer->generate.cancel();
    } else {
      impl_->answer->encode.cancel();
      impl_->cache.cancelRestoring();  // it is in front
    }
  }
  cancelReading();
}

void ChatController::regenerate() {
  impl_->guarded([this] {
    const std::vector<Message> branch = impl_->currentBranch();
    const auto question = std::find_if(branch.rbegin(), branch.rend(), [](const Message& m) {
      return m.role == MessageRole::kUser;
    });
    if (question == branch.rend()) {
      throwError(ErrorCode::kInvalidArgument, QStringLiteral("There is no question to answer."));
    }
    Impl::Answer answer;
    answer.parentId = question->id;
    answer.opensBranch = true;
    impl_->beginAnswer(std::move(answer));
  });
}

void ChatController::editMessage(qint64 messageId, const QString& text) {
  const bool isBegun = impl_->guarded([&] {
    const Message edited = impl_->conversationStore.message(messageId);
    if (edited.role != MessageRole::kUser || edited.conversationId != impl_->conversationId) {
      throwError(ErrorCode::kInvalidArgument,
                 QStringLiteral("Only questions of the open chat can be edited."));
    }
    if (text.trimmed().isEmpty()) {
      throwError(ErrorCode::kInvalidArgument, QStringLiteral("The message is empty."));
    }
    Impl::Answer answer;
    answer.question = text;
    answer.parentId = edited.parentId;
    answer.opensBranch = true;
    impl_->beginAnswer(std::move(answer));
  });
  if (!isBegun) emit sendRefused(text);
}

void ChatController::selectBranch(qint64 messageId) {
  impl_->guarded([&] {
    impl_->conversationStore.selectBranch(messageId);
    emit conversationOpened(impl_->conversationId);
    impl_->measureContext();
  });
}

}  // namespace longhand::app
