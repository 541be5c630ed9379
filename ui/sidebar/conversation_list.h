#pragma once
// The sidebar's list of chats, or of search hits: title, date and, of a hit, the text around it.
// Rename with F2 or the menu, delete with the menu only: no single key deletes.

#include <vector>

#include <QAbstractListModel>
#include <QListView>
#include <QStyledItemDelegate>

#include "app/conversation_store.h"
#include "ui/style/theme.h"

namespace longhand::ui {

/// One row: a chat, or a place in one.
struct ConversationRow {
  qint64 conversationId = 0;
  qint64 messageId = 0;  // of a hit: where; else 0
  QString title;
  QString when;
  QString snippet;  // of a hit; else empty
};

std::vector<ConversationRow> conversationRows(const std::vector<app::Conversation>& conversations);
std::vector<ConversationRow> conversationRows(const std::vector<app::SearchHit>& hits);

class ConversationListModel final : public QAbstractListModel {
  Q_OBJECT

 public:
  enum Role { kConversationIdRole = Qt::UserRole + 1, kMessageIdRole, kWhenRole, kSnippetRole };

  using QAbstractListModel::QAbstractListModel;

  void setRows(std::vector<ConversationRow> rows);
  int rowOf(qint64 conversationId) const;  // -1: none

  int rowCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role) const override;
  bool setData(const QModelIndex& index, const QVariant& value, int role) override;
  Qt::ItemFlags flags(const QModelIndex& index) const override;

 signals:
  void renamed(qint64 conversationId, const QString& title);

 private:
  std::vector<ConversationRow> rows_;
};

class ConversationList final : public QListView {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(ConversationList)

 public:
  ConversationList(const Theme& theme, QWidget* parent);

  void setTheme(const Theme& theme);
  void setRows(std::vector<ConversationRow> rows);
  /// Marks a chat as the open one without emitting anything; 0: none.
  void setCurrentConversation(qint64 conversationId);
  qint64 currentConversation() const;

 signals:
  /// A click, or Enter.
  void conversationChosen(qint64 conversationId, qint64 messageId);
  void renameRequested(qint64 conversationId, const QString& title);
  void deleteRequested(qint64 conversationId);

 protected:
  void contextMenuEvent(QContextMenuEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;

 private:
  class Delegate;
  void showMenu(const QModelIndex& index, const QPoint& globalPosition);
  void choose(const QModelIndex& index);

  ConversationListModel* model_;
  Delegate* delegate_;
};

}  // namespace longhand::ui
