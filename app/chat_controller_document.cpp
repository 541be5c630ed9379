// Documents: opened, counted, shown with their forecast, attached.
#include <algorithm>
#include <utility>

#include "app/chat_controller_impl.h"

namespace longhand::app {

using engine::ErrorCode;

void ChatController::Impl::connectDocumentEvents() {
  connect(&documentReader, &DocumentReader::progressed, &owner,
          &ChatController::documentReadProgress);
  connect(&documentReader, &DocumentReader::failed, &owner,
          [this](const ErrorText& error) { reportError(error); });
  connect(&documentReader, &DocumentReader::finished, &owner,
          [this](const DocumentContent& content) {
            pending.emplace();
            pending->preview.content = content;
            countPendingDocument();
          });
}

void ChatController::Impl::countPendingDocument() {
  pending->count = {};
  pending->preview.tokenCount = -1;
  if (!model) {
    showPendingDocument();
    return;
  }
  stopQualityCheck(QStringLiteral("The check was stopped: a document is being opened."));
  const DocumentContent& content = pending->preview.content;
  pending->count = worker->countTokens(
      documentInPrompt(content.fileName, content.text),
      [this](std::uint64_t done, std::uint64_t total) {
        if (total == 0) return;
        emit owner.documentCountProgress(static_cast<double>(done) / static_cast<double>(total));
      },
      [this](const Outcome<std::int64_t>& tokens) {
        if (tokens) pending->preview.tokenCount = *tokens;
        guarded([this] { showPendingDocument(); });
      });
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
  recounts.clear();
  if (!model || load.isUnderWay()) return;
  for (const Document& document : currentDocuments()) {
    if (document.tokenizerFingerprint == model->tokenizerFingerprint) continue;
    Recount& recount = recounts.emplace_back();
    recount.documentId = document.id;
    recount.tokenizerFingerprint = model->tokenizerFingerprint;
    recount.job =
        worker->countTokens(documentInPrompt(document.fileName, document.text), {},
                            [this, id = document.id](const Outcome<std::int64_t>& tokens) {
                              guarded([&] { onRecounted(id, tokens); });
                            });
  }
}

void ChatController::Impl::onRecounted(std::int64_t documentId,
                                       const Outcome<std::int64_t>& tokens) {
  const auto recount = std::find_if(recounts.begin(), recounts.end(), [&](const Recount& each) {
    return each.documentId == documentId;
  });
  const std::uint64_t fingerprint = recount->tokenizerFingerprint;
  recounts.erase(recount);
  if (!tokens) return;
  documentStore.setTokenCount(documentId, *tokens, fingerprint);
  if (recounts.empty()) emit owner.documentsChanged();
}

// --- Slots and queries --------------------------------------------------------------------------

std::optional<DocumentPreview> ChatController::pendingDocument() const {
  if (!impl_->pending || !impl_->pending->isReady) return std::nullopt;
  return impl_->pending->preview;
}

void ChatController::openDocument(const QString& path) {
  impl_->pending.reset();
  impl_->documentReader.read(path);
}

void ChatController::discardDocument() {
  impl_->documentReader.cancel();
  impl_->pending.reset();
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
