#pragma once
// The chat: a scrolling column of messages of any number and length.
//
// Only messages in sight own a text document (and the 64 used last); the heights of the others are
// estimates until they come into sight. The view follows the end while the end is in sight, and
// stays where it is once the user has scrolled up. Give it a text as often as 30 times a second:
// an update rebuilds only the blocks that changed.
//
// Keys: arrows, Page Up/Down, Home, End and Space scroll; Ctrl+Up and Ctrl+Down go from message to
// message; Ctrl+C copies the selection or, without one, nothing; Ctrl+A selects the current
// message; the Menu key opens its menu. All on the GUI thread.

#include <memory>
#include <vector>

#include <QAbstractScrollArea>
#include <QPointer>
#include <QTimer>
#include <QVector>

#include "ui/style/theme.h"
#include "ui/transcript/transcript_message.h"

class QMenu;

namespace longhand::ui {

class MessageItem;

class TranscriptView final : public QAbstractScrollArea {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(TranscriptView)

 public:
  explicit TranscriptView(const Theme& theme, QWidget* parent = nullptr);
  ~TranscriptView() override;

  void setTheme(const Theme& theme);

  /// Replaces everything and shows the end.
  void setMessages(const QVector<TranscriptMessage>& messages);
  void appendMessage(const TranscriptMessage& message);
  /// Replaces the message with this id; appends it when there is none.
  void updateMessage(const TranscriptMessage& message);
  /// Streaming: sets the text (and state kStreaming) of one message. Unknown ids are ignored.
  void setMessageText(qint64 id, const QString& text);
  void removeMessage(qint64 id);
  void clear();

  int messageCount() const;
  const TranscriptMessage& message(int index) const;  // 0 <= index < messageCount()
  int indexOf(qint64 id) const;                       // -1 when unknown
  bool contains(qint64 id) const { return indexOf(id) >= 0; }

  /// Puts the message's first line at the top.
  void scrollToMessage(qint64 id);
  void scrollToEnd();
  bool isAtEnd() const;

  /// Marks every occurrence (case ignored) and goes to the nearest one below the top of the view.
  /// An empty text ends the search. Emits findChanged().
  void setFindText(const QString& text);
  void findNext();
  void findPrevious();
  int findCount() const;
  int findCurrent() const;  // 0-based, -1: none

  bool hasSelection() const;
  QString selectedText() const;
  void clearSelection();
  /// Selects all text of a message.
  void selectMessage(qint64 id);

  /// The message of the keyboard and of the menu; 0: none.
  qint64 currentMessage() const { return currentId_; }
  void setCurrentMessage(qint64 id);

  /// For tests and accessibility: where a message stands in the viewport (may lie outside).
  QRect messageRect(int index) const;
  /// Role, state, text and footer of a message as one text, for screen readers.
  QString messageDescription(int index) const;
  /// For tests: how many text documents are alive.
  int liveDocuments() const;

 signals:
  void regenerateRequested(qint64 id);
  void editRequested(qint64 id);
  void branchRequested(qint64 id, int delta);  // -1 or +1
  void linkActivated(const QString& target);   // the user clicked; the receiver asks and opens
  void findChanged(int current, int count);    // current from 0, -1: none
  void atEndChanged(bool atEnd);
  void copied(const QString& what);  // "Message copied", for a status line

 protected:
  bool viewportEvent(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void scrollContentsBy(int dx, int dy) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void contextMenuEvent(QContextMenuEvent* event) override;
  void focusInEvent(QFocusEvent* event) override;
  void focusOutEvent(QFocusEvent* event) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  qint64 currentId_ = 0;
};

}  // namespace longhand::ui
