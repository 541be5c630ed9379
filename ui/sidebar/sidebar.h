#pragma once
// The left side of the window: search, "New chat", the chats, the documents of the open chat.
// Talks to the controller itself.

#include <vector>

#include <QWidget>

#include "app/conversation_store.h"
#include "ui/style/theme.h"

class QLabel;
class QLineEdit;
class QListWidget;
class QListWidgetItem;
class QPushButton;
class QTimer;

namespace longhand::app {
class ChatController;
}

namespace longhand::ui {

class ConversationList;
class NoticeBar;

class Sidebar final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Sidebar)

 public:
  /// The controller must outlive the sidebar.
  Sidebar(app::ChatController& controller, const Theme& theme, QWidget* parent);

  void setTheme(const Theme& theme);
  void focusSearch();

 signals:
  /// Another chat is about to be opened: what stands in the composer must be stored.
  void chatAboutToChange();
  /// A search hit was chosen: show this message once its chat is open.
  void messageChosen(qint64 messageId);
  /// A document of the chat was chosen in the list.
  void documentChosen(qint64 documentId);
  void openDocumentRequested();
  /// Something was chosen that is written to: the composer should have the focus.
  void composerWanted();

 protected:
  /// From the search field, Down and Enter lead into the list.
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  QWidget* makeHead();
  QWidget* makeDocuments();
  void connectController();
  void runSearch();
  void showConversations();
  void showHits(const QString& text, const std::vector<app::SearchHit>& hits);
  void showDocuments();
  void showDocumentMenu(const QPoint& position);
  void choose(qint64 conversationId, qint64 messageId);

  app::ChatController& controller_;
  Theme theme_;
  QPushButton* newChat_;
  QLineEdit* search_;
  QLabel* listState_;
  ConversationList* list_;
  NoticeBar* undoBar_;
  QWidget* documentArea_;
  QPushButton* addDocument_;
  QListWidget* documents_;
  QTimer* searchTimer_;
};

}  // namespace longhand::ui
