#include "ui/chat/chat_presenter.h"

#include <algorithm>

#include <QFileInfo>
#include <QTimer>

#include "ui/chat/chat_pane.h"
#include "ui/chat/composer.h"
#include "ui/chat/find_bar.h"
#include "ui/chat/welcome_panel.h"
#include "ui/document/document_fit.h"
#include "ui/style/format.h"
#include "ui/style/notice_bar.h"
#include "ui/style/progress_card.h"
#include "ui/transcript/message_display.h"
#include "ui/transcript/transcript_view.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {
constexpr int kDraftPauseMs = 500;
constexpr int kRatePauseMs = 250;
}  // namespace

using app::Activity;
using app::ChatController;

ChatPresenter::ChatPresenter(ChatController& controller, ChatPane& pane, QObject* parent)
    : QObject(parent), controller_(controller), pane_(pane), draftTimer_(new QTimer(this)) {
  draftTimer_->setSingleShot(true);
  draftTimer_->setInterval(kDraftPauseMs);
  connect(draftTimer_, &QTimer::timeout, this, &ChatPresenter::saveDraft);
  connectChat();
  connectReading();
  connectModel();
  connect(&controller_, &ChatController::errorOccurred, this, &ChatPresenter::showError);
  connect(&controller_, &ChatController::notice, this,
          [this](const QString& message, const QString& hint) {
            pane_.noticeBar().showNotice(message, hint, QString());
          });
  showConversation();
}

// --- Wiring -------------------------------------------------------------------------------------

void ChatPresenter::connectChat() {
  const Composer& composer = pane_.composer();
  connect(&composer, &Composer::sendRequested, this, &ChatPresenter::send);
  connect(&composer, &Composer::stopRequested, this, &ChatPresenter::escape);
  connect(&composer, &Composer::escapePressed, this, &ChatPresenter::escape);
  connect(&composer, &Composer::editCancelled, this, &ChatPresenter::endEdit);
  connect(&composer, &Composer::textChanged, draftTimer_, qOverload<>(&QTimer::start));
  connect(&composer, &Composer::documentDropped, &pane_, &ChatPane::fileDropped);

  const TranscriptView& transcript = pane_.transcript();
  connect(&transcript, &TranscriptView::regenerateRequested, this, [this] {
    saveDraft();  // the new branch shows the stored one
    controller_.regenerate();
  });
  connect(&transcript, &TranscriptView::editRequested, this, &ChatPresenter::startEdit);
  connect(&transcript, &TranscriptView::branchRequested, this, &ChatPresenter::showBranch);

  const WelcomePanel& welcome = pane_.welcome();
  connect(&welcome, &WelcomePanel::questionChosen, this, &ChatPresenter::ask);

  connect(&controller_, &ChatController::conversationOpened, this,
          &ChatPresenter::showConversation);
  connect(&controller_, &ChatController::messageAdded, this, &ChatPresenter::addMessage);
  connect(&controller_, &ChatController::messageChanged, this, &ChatPresenter::changeMessage);
  connect(&controller_, &ChatController::generationStarted, this,
          [this](qint64 id) { streamingMessage_ = id; });
  connect(&controller_, &ChatController::generationFinished, this, &ChatPresenter::finishAnswer);
  connect(&controller_, &ChatController::sendRefused, this,
          [this] { pane_.composer().rejected(tr("Not sent.")); });
  connect(&controller_, &ChatController::contextStateChanged, this,
          [this](const app::ContextState& state) {
            pane_.composer().setContextUse(state.usedTokens, state.contextLength,
                                           state.trainedLength, state.forgottenTokens);
          });
  connect(&controller_, &ChatController::activityChanged, this, [this] {
    if (controller_.activity() != Activity::kAnswering) streamingMessage_ = 0;
    showPage();
    showComposerState();
  });
}

void ChatPresenter::connectReading() {
  connect(&controller_, &ChatController::prefillProgress, this, &ChatPresenter::showReading);
  connect(&controller_, &ChatController::prefillFinished, this,
          [this] { pane_.readingCard().hide(); });
  connect(&pane_.readingCard(), &ProgressCard::cancelRequested, &controller_,
          &ChatController::cancelReading);
  connect(&controller_, &ChatController::documentPreviewReady, this, [this] {
    isDocumentOpening_ = false;
    showPage();
    sendWaitingQuestion();
  });
  connect(&controller_, &ChatController::documentDiscarded, this, [this] {
    isDocumentOpening_ = false;
    refuseWaitingQuestion(tr("Not sent: the document was put away."));
    showPage();
  });
  connect(&controller_, &ChatController::documentsChanged, this, [this] {
    showMessages();
    showPage();
  });
}

void ChatPresenter::connectModel() {
  ProgressCard& card = pane_.loadingCard();
  connect(&card, &ProgressCard::cancelRequested, &controller_, &ChatController::cancelLoading);
  connect(&controller_, &ChatController::modelLoading, this,
          [this](quint64 doneBytes, quint64 totalBytes) {
            ProgressCard& loading = pane_.loadingCard();
            if (!loading.isVisibleTo(&pane_)) loading.begin(tr("Loading the model"), QString());
            loading.setProgress(
                doneBytes, totalBytes,
                tr("%1 of %2").arg(formatBytes(doneBytes), formatBytes(totalBytes)));
          });
  connect(&controller_, &ChatController::modelLoaded, this, [this] {
    pane_.loadingCard().hide();
    showPage();
    showComposerState();
  });
  connect(&controller_, &ChatController::modelFailed, this,
          [this](const QString& message, const QString& hint) {
            pane_.loadingCard().hide();
            showError(message, hint);
            showPage();
            showComposerState();
          });
}

// --- Showing ------------------------------------------------------------------------------------

void ChatPresenter::showConversation() {
  if (shownChat_ != controller_.currentConversation()) pane_.noticeBar().dismiss();
  shownChat_ = controller_.currentConversation();
  // An edited question opens its branch: what was written before the edit comes back.
  const bool isEditedChat = editedMessage_ != 0 && editedChat_ == controller_.currentConversation();
  const QString draft = isEditedChat ? draftBeforeEdit_ : controller_.draft();
  endEdit();
  streamingMessage_ = 0;
  showMessages();
  showPage();
  showComposerState();
  pane_.composer().accepted();
  pane_.composer().setText(draft);
  if (isEditedChat) saveDraft();
  draftTimer_->stop();
  if (messageToShow_ != 0) showMessage(std::exchange(messageToShow_, 0));
}

void ChatPresenter::showMessages() {
  QVector<TranscriptMessage> shown;
  for (const app::Document& document : controller_.documents()) shown << displayDocument(document);
  const std::vector<app::Message> messages = controller_.messages();
  for (const app::Message& message : messages) {
    shown << displayMessage(message, message.id == messages.back().id);
    if (message.state == app::MessageState::kStreaming) streamingMessage_ = message.id;
  }
  pane_.transcript().setMessages(shown);
}

void ChatPresenter::showPage() {
  const bool isLoading = controller_.activity() == Activity::kLoadingModel;
  const bool isEmpty = controller_.messages().empty();
  if (isEmpty) {
    WelcomeContent content;
    content.hasModel = controller_.model().has_value();
    content.isDemo = content.hasModel && controller_.model()->isDemo;
    if (const std::optional<app::DemoModel> demo = controller_.demo()) {
      const std::vector<app::Document> documents = controller_.documents();
      content.hasDocument = !documents.empty();
      const QString sampleName = QFileInfo(demo->documentPath).fileName();
      // The questions are about the sample: they are not offered for a document of the user's own,
      // also while that is only looked at.
      const std::optional<app::DocumentPreview> pending = controller_.pendingDocument();
      const bool isPendingOther = pending && pending->content.fileName != sampleName;
      const bool isOnSample =
          !isDocumentOpening_ && !isPendingOther &&
          std::all_of(documents.begin(), documents.end(),
                      [&](const app::Document& d) { return d.fileName == sampleName; });
      if (isOnSample) content.questions = demo->questions;
    } else {
      content.hasDocument = !controller_.documents().empty();
    }
    const std::optional<app::DocumentPreview> pending = pendingDocument(controller_);
    if (pending && pending->fitsContext) content.openDocument = pending->content.fileName;
    // A check gives way to a question.
    content.isBusy = controller_.activity() != Activity::kIdle &&
                     controller_.activity() != Activity::kCheckingQuality;
    pane_.welcome().setContent(content);
  }
  pane_.showPage(isLoading && isEmpty ? ChatPane::Page::kLoading
                 : isEmpty            ? ChatPane::Page::kWelcome
                                      : ChatPane::Page::kTranscript);
}

void ChatPresenter::showComposerState() {
  Composer& composer = pane_.composer();
  composer.setGenerating(controller_.activity() == Activity::kAnswering);
  // A question may be sent while the context is being read: it goes on with what is read so far.
  composer.setDisabledReason(controller_.activity() == Activity::kLoadingModel
                                 ? tr("The model is being loaded.")
                             : controller_.model() ? QString()
                                                   : tr("Load a model first."));
  const app::ContextState state = controller_.contextState();
  composer.setContextUse(state.usedTokens, state.contextLength, state.trainedLength,
                         state.forgottenTokens);
}

void ChatPresenter::addMessage(const app::Message& message) {
  TranscriptView& transcript = pane_.transcript();
  if (message.role == app::MessageRole::kUser) {
    pane_.composer().accepted();
    endEdit();
    saveDraft();
  }
  if (transcript.messageCount() > 0) {
    TranscriptMessage before = transcript.message(transcript.messageCount() - 1);
    before.canRetry = false;  // only the last answer can be asked for again
    transcript.updateMessage(before);
  }
  transcript.updateMessage(displayMessage(message, true));
  if (message.state == app::MessageState::kStreaming) streamingMessage_ = message.id;
  transcript.scrollToEnd();
  showPage();
}

void ChatPresenter::changeMessage(qint64 id, const QString& text, app::MessageState state) {
  TranscriptView& transcript = pane_.transcript();
  const int index = transcript.indexOf(id);
  if (index < 0) return;
  if (state == app::MessageState::kStreaming) {
    if (text.isEmpty()) return;
    TranscriptMessage grown = transcript.message(index);
    grown.text = text;
    grown.state = TranscriptState::kStreaming;
    grown.progress = -1;  // the reading is over
    if (rateMessage_ != id) {
      rateMessage_ = id;
      rateStartTokens_ = controller_.contextState().usedTokens;
      sinceRateStart_.start();
      sinceRateShown_.start();
      rateShown_.clear();
    }
    grown.footer = liveRate();
    transcript.updateMessage(grown);
    return;
  }
  finishAnswer(id);
}

QString ChatPresenter::liveRate() {
  if (sinceRateShown_.elapsed() >= kRatePauseMs) {  // a number that changes with each frame blurs
    sinceRateShown_.restart();
    const double seconds = static_cast<double>(sinceRateStart_.elapsed()) / 1000.0;
    const qint64 tokens = controller_.contextState().usedTokens - rateStartTokens_;
    if (tokens > 0) rateShown_ = formatRate(static_cast<double>(tokens) / seconds);
  }
  return rateShown_;
}

void ChatPresenter::finishAnswer(qint64 id) {
  const std::vector<app::Message> messages = controller_.messages();
  for (const app::Message& message : messages) {
    if (message.id != id) continue;
    pane_.transcript().updateMessage(displayMessage(message, id == messages.back().id));
  }
}

void ChatPresenter::showReading(const engine::PrefillProgress& progress) {
  if (controller_.activity() == Activity::kAnswering) {
    const int index = pane_.transcript().indexOf(streamingMessage_);
    if (index < 0) return;
    TranscriptMessage waiting = pane_.transcript().message(index);
    if (!waiting.text.isEmpty()) return;
    waiting.state = TranscriptState::kWaiting;
    waiting.progress = readingShare(progress);
    waiting.footer = readingFooter(progress);
    pane_.transcript().updateMessage(waiting);
    return;
  }
  if (isReadingShownElsewhere_) return;
  ProgressCard& card = pane_.readingCard();
  if (!card.isVisibleTo(&pane_)) card.begin(tr("Reading the context"), QString());
  card.setProgress(static_cast<quint64>(std::max<qint64>(0, progress.tokensDone)),
                   static_cast<quint64>(std::max<qint64>(0, progress.tokensTotal)),
                   readingFooter(progress));
}

void ChatPresenter::showMessage(qint64 messageId) {
  if (pane_.transcript().contains(messageId)) {
    pane_.transcript().scrollToMessage(messageId);
    pane_.transcript().setCurrentMessage(messageId);
    return;
  }
  messageToShow_ = messageId;
  if (controller_.currentConversation() != 0) controller_.selectBranch(messageId);
}

void ChatPresenter::showError(const QString& message, const QString& hint) {
  isDocumentOpening_ = false;
  refuseWaitingQuestion(tr("Not sent."));
  pane_.errorBar().showNotice(message, hint, QString());
}

// --- Doing --------------------------------------------------------------------------------------

void ChatPresenter::send(const QString& text) {
  pane_.errorBar().dismiss();
  waitingQuestion_ = text;
  isWaitingQuestionTyped_ = true;
  if (!isDocumentOpening_) sendWaitingQuestion();
}

void ChatPresenter::ask(const QString& sampleQuestion) {
  pane_.errorBar().dismiss();
  waitingQuestion_ = sampleQuestion;
  isWaitingQuestionTyped_ = false;
  const std::optional<app::DemoModel> demo = controller_.demo();
  if (isDocumentOpening_) return;
  if (demo && controller_.documents().empty() && !controller_.pendingDocument()) {
    controller_.openDocument(demo->documentPath);
  } else {
    sendWaitingQuestion();
  }
}

void ChatPresenter::awaitDocument() {
  isDocumentOpening_ = true;
  showPage();
}

void ChatPresenter::sendWaitingQuestion() {
  if (waitingQuestion_.isEmpty()) return;
  // Who asks while a document lies open asks about that document.
  if (const std::optional<app::DocumentPreview> pending = pendingDocument(controller_)) {
    const QString refusal = documentRefusal(*pending);
    if (!refusal.isEmpty()) {
      refuseWaitingQuestion(refusal);
      return;
    }
    controller_.attachDocument();  // an error refuses the question
  }
  const QString question = std::exchange(waitingQuestion_, QString());
  if (question.isEmpty()) return;
  if (isWaitingQuestionTyped_ && editedMessage_ != 0) {
    controller_.editMessage(editedMessage_, question);
  } else {
    controller_.send(question);
  }
}

void ChatPresenter::refuseWaitingQuestion(const QString& reason) {
  if (std::exchange(waitingQuestion_, QString()).isEmpty()) return;
  if (isWaitingQuestionTyped_) {
    pane_.composer().rejected(reason);
  } else {
    pane_.errorBar().showNotice(reason, QString(), QString());
  }
}

void ChatPresenter::startEdit(qint64 id) {
  const int index = pane_.transcript().indexOf(id);
  if (index < 0 || controller_.activity() == Activity::kAnswering) return;
  if (editedMessage_ == 0) {
    saveDraft();
    draftBeforeEdit_ = pane_.composer().text();
  }
  editedMessage_ = id;
  editedChat_ = controller_.currentConversation();
  pane_.composer().setEditing(true);
  pane_.composer().setText(pane_.transcript().message(index).text);
  pane_.composer().setFocus(Qt::OtherFocusReason);
}

void ChatPresenter::endEdit() {
  if (editedMessage_ == 0) return;
  editedMessage_ = 0;
  pane_.composer().setEditing(false);
  pane_.composer().setText(draftBeforeEdit_);
}

void ChatPresenter::showBranch(qint64 id, int delta) {
  for (const app::Message& message : controller_.messages()) {
    if (message.id != id) continue;
    const int sibling = message.siblingIndex + delta;
    saveDraft();  // the other branch shows the stored one
    if (sibling >= 0 && sibling < static_cast<int>(message.siblingIds.size())) {
      controller_.selectBranch(message.siblingIds[static_cast<std::size_t>(sibling)]);
    }
    return;
  }
}

void ChatPresenter::saveDraft() {
  draftTimer_->stop();
  if (editedMessage_ == 0) controller_.saveDraft(pane_.composer().text());
}

void ChatPresenter::escape() {
  switch (controller_.activity()) {
    case Activity::kAnswering:
      controller_.stop();
      return;
    case Activity::kReading:
      controller_.cancelReading();
      return;
    case Activity::kSwitchingPreset:
      controller_.cancelSwitch();
      return;
    case Activity::kRestoring:
      controller_.cancelRestoring();
      return;
    case Activity::kCheckingQuality:
      controller_.cancelQualityCheck();
      return;
    case Activity::kLoadingModel:
    case Activity::kIdle:
      break;
  }
  if (editedMessage_ != 0) {
    endEdit();
  } else if (pane_.findBar().isVisible()) {
    pane_.findBar().close();
  } else if (pane_.presetBar().isVisible()) {
    pane_.presetBar().dismiss();
  } else if (pane_.noticeBar().isVisible()) {
    pane_.noticeBar().dismiss();
  } else {
    pane_.errorBar().dismiss();
  }
}

}  // namespace longhand::ui
