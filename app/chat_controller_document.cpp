// Documents: opened, counted, shown with their forecast, attached.
#include <algorithm>
#include <utility>

#include "app/chat_controller_impl.h"

namespace longhand::app {

using engine::ErrorCode;

void ChatController::Impl::connectDocumentEvents() {
  connect(&documentReader, &DocumentReader::progressed, &owner,
          &ChatController::documentReadProgress);
  connect(worker.get(), &EngineWorker::tokenCountProgressed, &owner,
          [this](const TokenCountProgressEvent& event) {
            if (!pending || event.command != pending->count || event.totalBytes == 0) return;
            emit owner.documentCountProgress(static_cast<double>(event.doneBytes) /
                                             static_cast<double>(event.totalBytes));
          });
  connect(&documentReader, &DocumentReader::failed, &owner,
          [this](const ErrorText& error) { reportError(error); });
  connect(&documentReader, &DocumentReader::finished, &owner,
          [this](const DocumentContent& content) {
            dropPendingDocument();
            pending.emplace();
            pending->preview.content = content;
            countPendingDocument();
          });
}

void ChatController::Impl::dropPendingDocument() {
  if (pending && !pending->isReady) worker->cancel(pending->count);
  pending.reset();
}

void ChatController::Impl::countPendingDocument() {
  if (pending->count != 0) worker->cancel(std::exchange(pending->count, 0));
  pending->preview.tokenCount = -1;
  if (!model) {
    showPendingDocument();
    return;
  }
  stopQualityCheck(QStringLiteral("The check was stopped: a document is being opened."));
  const DocumentContent& content = pending->preview.content;
  pending->count = worker->countTokens(documentInPrompt(content.fileName, content.text));
}

void ChatController::Impl::onTokensCounted(const TokensCountedEvent& event) {
  const auto recount = std::find_if(recounts.begin(), recounts.end(), [&](const Recount& each) {
    return each.command == event.command;
  });
  if (recount != recounts.end()) {
    documentStore.setTokenCount(recount->documentId, event.tokens, recount->tokenizerFingerprint);
    recounts.erase(recount);
    if (recounts.empty()) emit owner.documentsChanged();
    return;
  }
  if (!pending || event.command != pending->count) return;
  pending->preview.tokenCount = event.tokens;
  showPendingDocument();
}

void ChatController::Impl::showPendingDocument() {
  DocumentPreview& preview = pending->preview;
  pending->isReady = true;
  preview.contextLength = allowedContext();
  preview.trainedLength = model ? model->config.trainedLength : 0;
  preview.tokensInUse = usedTokens;
  const std::int64_t needed =
      usedTokens + std::max<std::int64_t>(0, preview.tokenCount) + kAnswerRoomTokens;
  preview.fitsContext = preview.tokenCount >= 0 && needed <= preview.contextLength;
  preview.forecasts = owner.forecast(needed);
  // A copy: a receiver that attaches or discards the document ends `pending`.
  emit owner.documentPreviewReady(DocumentPreview(preview));
}

void ChatController::Impl::refreshPendingDocument() {
  if (!pending || !pending->isReady) return;
  const DocumentPreview& shown = pending->preview;
  if (shown.tokensInUse == usedTokens && shown.contextLength == allowedContext()) return;
  showPendingDocument();
}

void ChatController::Impl::recountDocuments() {
  cancelRecounts();
  if (!model || load != 0) return;
  for (const Document& document : currentDocuments()) {
    if (document.tokenizerFingerprint == model->tokenizerFingerprint) continue;
    recounts.push_back({worker->countTokens(documentInPrompt(document.fileName, document.text)),
                        document.id, model->tokenizerFingerprint});
  }
}

void ChatController::Impl::cancelRecounts() {
  for (const Recount& recount : recounts) worker->cancel(recount.command);
  recounts.clear();
}

// --- Slots and queries --------------------------------------------------------------------------

std::optional<DocumentPreview> ChatController::pendingDocument() const {
  if (!impl_->pending || !impl_->pending->isReady) return std::nullopt;
  return impl_->pending->preview;
}

void ChatController::openDocument(const QString& path) {
  impl_->dropPendingDocument();
  impl_->documentReader.read(path);
}

void ChatController::discardDocument() {
  impl_->documentReader.cancel();
  impl_->dropPendingDocument();
  emit documentDiscarded();
}

void ChatController::attachDocument() {
  impl_->guarded([this] {
    if (!impl_->pending || !impl_->pending->isReady) {
      throwError(ErrorCode::kInvalidArgument, QStringLiteral("No document is open."));
    }
    const DocumentPreview& preview = impl_->pending->preview;
    const std::int64_t documentId = impl_->documentStore.add(
        preview.content, preview.tokenCount,
        impl_->model && preview.tokenCount >= 0 ? impl_->model->tokenizerFingerprint : 0);
    const std::int64_t conversationId = impl_->ensureConversation();
    const std::vector<Document> before = impl_->documentStore.documentsOf(conversationId);
    const auto same = std::find_if(before.begin(), before.end(),
                                   [&](const Document& each) { return each.id == documentId; });
    impl_->documentStore.attach(conversationId, documentId);
    impl_->pending.reset();
    emit documentsChanged();
    emit conversationListChanged();  // it may be what the chat is called
    impl_->measureContext();
    if (same != before.end()) {
      throwError(ErrorCode::kInvalidArgument,
                 QStringLiteral("%1 is already in this chat.").arg(same->fileName),
                 QStringLiteral("Its text is the same; it is read once."));
    }
  });
}

void ChatController::detachDocument(qint64 documentId) {
  impl_->guarded([&] {
    if (impl_->conversationId == 0) return;
    impl_->documentStore.detach(impl_->conversationId, documentId);
    emit documentsChanged();
    emit conversationListChanged();
    impl_->measureContext();
  });
}

}  // namespace longhand::app
