#pragma once
// Connects the controller with the centre of the window: messages in, commands out. Holds what the
// view does not: which message is being edited, which sample question waits for its document.

#include <optional>

#include <QElapsedTimer>
#include <QObject>

#include "app/chat_controller.h"

class QTimer;

namespace longhand::ui {

class ChatPane;

class ChatPresenter final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(ChatPresenter)

 public:
  /// Both must outlive the presenter.
  ChatPresenter(app::ChatController& controller, ChatPane& pane, QObject* parent);

  /// Scrolls to a message, now or once its chat is open.
  void showMessage(qint64 messageId);
  /// Stores what stands in the composer. To be called before the chat changes or the window closes.
  void saveDraft();
  /// While true, the progress of a reading is not shown here too.
  void setReadingShownElsewhere(bool isElsewhere) { isReadingShownElsewhere_ = isElsewhere; }
  /// A document is being opened: a question asked from now on waits for it.
  void awaitDocument();
  /// Esc anywhere in the window: stops what runs, else ends an edit, else dismisses a notice.
  void escape();

 private:
  void connectChat();
  void connectReading();
  void connectModel();
  void showConversation();
  void showMessages();
  void showPage();
  void showComposerState();
  void addMessage(const app::Message& message);
  void changeMessage(qint64 id, const QString& text, app::MessageState state);
  void finishAnswer(qint64 id);
  /// "12.3 tokens/s" of the answer that streams; empty until that is known.
  QString liveRate();
  void showReading(const engine::PrefillProgress& progress);
  void send(const QString& text);
  void ask(const QString& sampleQuestion);
  void sendWaitingQuestion();
  void refuseWaitingQuestion(const QString& reason);
  void startEdit(qint64 id);
  void endEdit();
  void showBranch(qint64 id, int delta);
  void showError(const QString& message, const QString& hint);

  app::ChatController& controller_;
  ChatPane& pane_;
  QTimer* draftTimer_;
  bool isReadingShownElsewhere_ = false;
  qint64 shownChat_ = 0;
  qint64 editedMessage_ = 0;
  qint64 editedChat_ = 0;  // the one with that message
  qint64 streamingMessage_ = 0;
  qint64 rateMessage_ = 0;      // whose rate is measured
  qint64 rateStartTokens_ = 0;  // in the context when its text began
  QElapsedTimer sinceRateStart_;
  QElapsedTimer sinceRateShown_;
  QString rateShown_;
  qint64 messageToShow_ = 0;
  QString draftBeforeEdit_;  // what stood in the composer when the edit began
  bool isDocumentOpening_ = false;
  QString waitingQuestion_;              // sent when the pending document is part of the chat
  bool isWaitingQuestionTyped_ = false;  // in the composer, where it stays when it is refused
};

}  // namespace longhand::ui
